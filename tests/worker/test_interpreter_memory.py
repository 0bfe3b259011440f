"""What the probe reads in the interpreter's memory: no other thread runs meanwhile."""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.kit.statements import python_path

ROOT = Path(__file__).parents[2]
# Threads end and functions return all the time, and garbage is collected, which runs Python code.
# One thread wants the interpreter after a microsecond, as other threads do where the kernel keeps
# the reading thread from running.
PROGRAM = """
    import _thread, gc, os, sys, threading, time, types, weakref

    package = types.ModuleType("debug_relay")
    package.__path__ = [sys.argv[1]]
    sys.modules["debug_relay"] = package
    from debug_relay.worker.probe.engine import fast_locals
    from debug_relay.worker.probe.engine.settrace import interpreter_threads

    class Node(object):
        pass

    refs = []

    def work(n):
        node = Node()
        node.me = node
        refs.append(weakref.ref(node, lambda ref: time.sleep(0.0001)))
        del refs[:-50]
        return [n]

    def starts():
        while True:
            _thread.start_new_thread(work, (1,))

    def hurries():
        while True:
            sys.setswitchinterval(1e-6)
            work(1)

    def runs():
        while True:
            work(1)

    gc.set_threshold(50)
    for target in (starts, hurries, runs):
        threading.Thread(target=target, daemon=True).start()
    rounds, until = 0, time.monotonic() + 0.3
    while time.monotonic() < until or rounds < 2:
        assert threading.get_ident() in interpreter_threads.tracers()
        assert interpreter_threads.interpreters() == 1
        for frame in interpreter_threads.all_frames.of_all().values():
            while frame is not None:
                fast_locals.values_of(frame)
                frame = frame.f_back
        rounds += 1
    os._exit(0)
"""


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.11"])
def test_no_other_thread_runs(version: str) -> None:
    command = [python_path(version), "-c", textwrap.dedent(PROGRAM), str(ROOT)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
