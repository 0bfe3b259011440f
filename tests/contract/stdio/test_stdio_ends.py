"""However the front ends, its relay, worker and program end with it, and no file is left."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import ExitStack

import psutil
import pytest

from tests.kit.relay import eventually
from tests.kit.source import Source
from tests.kit.stdio_ide import Ide

PROGRAM = """\
import time
x = 1
print("up", flush=True)
while True:
    time.sleep(0.01)
    print("x" * 1000)
"""


def relay_of(ide: Ide) -> psutil.Process:
    found = [one for one in ide.left() if "debug_relay.supervisor.private_relay" in one.cmdline()]
    assert len(found) == 1
    return found[0]


ENDS = [
    ("input", "running"),
    ("input", "starting"),
    ("SIGTERM", "paused"),
    ("SIGINT", "starting"),
    ("SIGKILL", "running"),
    ("output", "running"),
    ("output", "paused"),
    ("terminate", "evaluating"),
]


@pytest.mark.long
def test_nothing_is_left_behind(source: Callable[..., Source]):
    """All at once: each takes a relay, and most of the time waits."""
    program = source(PROGRAM)
    with ExitStack() as stack:
        ides = [stack.enter_context(Ide()) for _ in ENDS]
        for ide, (_, state) in zip(ides, ENDS, strict=True):
            if state != "starting":
                ide.send("initialize", file=str(program.path))
                ide.send("start")
        for ide, (end, state) in zip(ides, ENDS, strict=True):
            if state != "starting":
                ide.expect("initialized", "started", "stopped")
            if state == "running":
                ide.ask("continue", "output")
            finish(ide, end, state)


def finish(ide: Ide, end: str, state: str) -> None:
    match end:
        case "input":
            ide.process.stdin.close()  # type: ignore[union-attr]
        case "terminate":
            ide.send("evaluate", expression="__import__('time').sleep(600)")
            ide.send("terminate")
            error, _ = ide.expect("error", "terminated")
            # The evaluation has not come to its bound of ten seconds.
            assert error["message"].startswith("The program has ended during evaluate")
        case "output":
            ide.stop_reading()
            if state != "running":
                ide.send("nothing")
        case _:
            ide.process.send_signal(getattr(signal, end))
    code = ide.process.wait(40)
    if end == "SIGKILL":
        assert code == -9
    elif end in ("input", "output", "terminate"):
        assert code == 0


@pytest.mark.parametrize("victim", ["relay", "both"])
def test_a_killed_relay_leaves_no_program(victim: str, source: Callable[..., Source]):
    with Ide() as ide:
        ide.ask("initialize", "initialized", file=str(source(PROGRAM).path))
        ide.ask("start", "started", "stopped")
        ide.ask("continue", "output")
        relay = relay_of(ide)
        if victim == "both":
            ide.process.kill()
        relay.kill()
        if victim == "relay":
            assert "relay does not answer" in ide.until("error")["message"]
            assert ide.process.wait(40) == 1
        else:
            # Nobody is left to remove the files: the next private relay does, a minute later.
            eventually(lambda: ide.left() == [], 40)
            for folder in ide.folder.iterdir():
                os.utime(folder, (0, 0))
            with Ide(TMPDIR=str(ide.folder)) as next_ide:
                next_ide.ask("initialize", "initialized", file=__file__)
