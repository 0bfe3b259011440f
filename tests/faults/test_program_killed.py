"""The program dies, leaves its debugger, or becomes another one: the session tells and goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.client import Client, Session
from tests.kit.relay import eventually, marked
from tests.kit.source import Source

STANDING = "print('before', flush=True)\nx = 1  # @here\nprint('after')\n"
RUNNING = "import time\nprint('on', flush=True)\ntime.sleep(600)\n"


def ended(session: Session) -> dict[str, object]:
    shown = eventually(lambda: session.status()["status"] == "terminated" and session.status())
    assert isinstance(shown, dict)
    return shown


@pytest.mark.parametrize(
    ("where", "number"), [("paused", signal.SIGKILL), ("running", signal.SIGABRT)]
)
def test_a_killed_program(
    relay: Client, source: Callable[..., Source], where: str, number: signal.Signals
) -> None:
    program = source(STANDING if where == "paused" else RUNNING)
    with relay.session() as session:
        if where == "paused":
            session.break_at(program, program["here"])
        launched = session.launch(program, wait=20 if where == "paused" else 0)
        eventually(lambda: session.printed("stdout"))
        os.kill(launched["pid"], number)
        shown = ended(session)
        assert (shown["exit_code"], shown["signal"]) == (-number, number.name)
        assert (shown["end_reason"], shown["current_location"]) == ("target_exited", None)
        (event,) = session.events("terminated")
        assert (event["body"]["exit_code"], event["body"]["signal"]) == (-number, number.name)
        error = session.post("/continue", {}).refused("INVALID_SESSION_STATE", 409)
        assert error["details"]["current_state"] == "terminated"


def test_a_program_killed_while_it_evaluates(relay: Client, source: Callable[..., Source]) -> None:
    program = source(STANDING)
    with relay.session() as session:
        session.break_at(program, program["here"])
        session.launch(program)
        deadly = "__import__('os').kill(__import__('os').getpid(), 9)"
        error = session.post("/evaluate", {"expression": deadly}).refused("INVALID_SESSION_STATE")
        assert error["message"] == "The program has ended during evaluate, by SIGKILL"
        assert "/output" in error["details"]["suggestion"]
        assert ended(session)["exit_code"] == -9


def test_a_program_killed_while_a_step_waits(relay: Client, source: Callable[..., Source]) -> None:
    program = source("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)  # @here\n")
    with relay.session() as session:
        session.break_at(program, program["here"])
        session.launch(program)
        stepped = session.step("over")
        assert (stepped["status"], stepped["completed"]) == ("terminated", True)
        assert (stepped["exit_code"], stepped["signal"]) == (-9, "SIGKILL")


def test_a_program_that_closes_its_debug_socket(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source("""
        import os, socket, time

        def sockets():
            for fd in range(3, 256):
                try:
                    if os.readlink(f"/proc/self/fd/{fd}").startswith("socket:"):
                        yield fd
                except OSError:
                    continue

        print("debugged", flush=True)  # @here
        for fd in list(sockets()):
            socket.socket(fileno=os.dup(fd)).shutdown(socket.SHUT_RDWR)
            try:
                os.close(fd)
            except OSError:
                pass  # the debugger, which saw its end, was quicker
        print("alone", flush=True)
        time.sleep(0.2)
        raise SystemExit(7)
    """)
    with relay.session() as session:
        session.break_at(program, program["here"])
        session.launch(program)
        session.resume(wait=20)
        shown = ended(session)
        assert (shown["exit_code"], shown["signal"]) == (7, None)
        assert session.printed("stdout") == "debugged\nalone\n"


def test_a_program_that_becomes_another(relay: Client, source: Callable[..., Source]) -> None:
    program = source("""
        import os, sys

        print("first", flush=True)  # @here
        code = "import sys; print('second', input(), flush=True); sys.exit(5)"
        os.execv(sys.executable, [sys.executable, "-c", code])
    """)
    with relay.session() as session:
        session.break_at(program, program["here"])
        pid = session.launch(program)["pid"]
        # The debugger goes with the first program; the session stays and sees the second one out.
        session.resume(wait=0)
        eventually(lambda: b"second" in Path(f"/proc/{pid}/cmdline").read_bytes())
        assert session.status()["status"] == "running"
        error = session.post("/pause", {"wait": 1}).refused("DEBUGPY_ERROR")
        assert error["details"]["suggestion"]
        session.post("/input", {"input": "hello\n"}).ok()
        shown = ended(session)
        assert (shown["exit_code"], shown["signal"]) == (5, None)
        assert session.printed("stdout") == "first\nsecond hello\n"


def test_terminating_one_that_became_another(relay: Client, source: Callable[..., Source]) -> None:
    program = source("""
        import os, sys

        os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)"])
    """)
    with relay.session() as session:
        pid = session.launch(program, wait=0)["pid"]
        eventually(lambda: b"600" in Path(f"/proc/{pid}/cmdline").read_bytes())
        assert session.post("/terminate", {}).ok()["exit_code"] == -15
        assert marked(session.id) == []
