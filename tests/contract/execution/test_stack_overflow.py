"""Stack overflows: the thread is debugged on, and what the program sees of them is its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.client import Client
from tests.kit.relay import eventually
from tests.kit.source import Source, has_monitoring

pytestmark = pytest.mark.one_python

Write = Callable[..., Source]

OVERFLOWS = """
    import os, sys, threading, time

    def deep(n):
        return deep(n + 1)  # @deep

    def plain(n):
        return plain(n + 1)

    def after(name):
        return name  # @after

    def run(name):
        for function in (deep, plain):
            try:
                function(0)
            except RecursionError:
                print("handled", flush=True)
        while not os.path.exists(sys.argv[1] + name):
            time.sleep(0.01)
        after(name)

    thread = threading.Thread(target=run, args=("thread",), name="second")
    thread.start()
    thread.join()
    run("main")
"""


def test_breakpoints_stop_again_after_it(
    relay: Client, source: Write, tmp_path: Path, python: str
) -> None:
    program = source(OVERFLOWS)
    with relay.session(python_path=python) as session:
        # A condition needs more of the stack than there is left at the end.
        counted = session.break_at(program, program["deep"], condition="n < 0")["id"]
        session.break_at(program, program["after"])
        assert session.launch(program, args=[f"{tmp_path}/go-"], wait=0)["status"] == "running"
        for name, thread, times in (("thread", "second", 2), ("main", "MainThread", 4)):
            eventually(lambda n=times: session.printed("stdout").count("handled") == n)
            if not has_monitoring(python):
                # What it passed until then did not stop: so it is told.
                told = f"A stack overflow in thread {thread} ended its tracing"
                eventually(lambda told=told: told in session.printed("console"))
            (tmp_path / f"go-{name}").touch()
            eventually(lambda: session.status()["status"] == "paused")
            assert session.value("name") == repr(name)
            ended = session.resume(wait=20 if name == "main" else 0)
        assert ended["exit_code"] == 0, session.printed()
        assert session.get(f"/breakpoints/{counted}").ok()["hit_count"] == 0


@pytest.mark.parametrize("how", ["uncaught", True])
def test_it_reads_as_without_a_debugger(
    relay: Client, source: Write, python: str, how: str | bool
) -> None:
    program = source("""
        def deep(n):
            return deep(n + 1)  # @deep

        def overflow():
            try:
                deep(0)
            except RecursionError as error:
                return error

        chain, frames, error = [], set(), overflow()
        trace = error.__traceback__
        while error is not None:
            chain.append(type(error).__name__)
            error = error.__context__
        while trace is not None:
            frames.add(trace.tb_frame.f_code.co_filename)
            trace = trace.tb_next
        print(chain, len(frames))
        deep(0)
    """)
    with relay.session(python_path=python) as session:
        traced = not has_monitoring(python)  # and the tracer is what has no room
        moved = session.launch(program, stop_on_exception=how)
        # Both are raised, one of them is caught. There is no room for a stop where they are raised:
        # it comes on their way, once for each.
        for _ in range(2 if how is True and not traced else 1):
            assert moved["status"] == "paused", moved
            told = session.get("/exception").ok()
            assert told["full_type_name"] == "builtins.RecursionError"
            assert session.get("/stacktrace").ok()["total_frames"] > 900
            moved = session.resume()
        assert moved["exit_code"] == 1
        if traced:
            return
        assert session.printed("stdout") == "['RecursionError'] 1\n"
        assert "During handling" not in session.printed("stderr")
        assert "pydevd" not in session.printed("stderr")
