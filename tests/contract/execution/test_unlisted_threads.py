"""Threads that `threading` knows nothing of: raw ones, and those that are just ending."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.running import Running
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

Write = Callable[..., Source]

RAW = """
    import _thread, threading, time

    came = threading.Event()
    over = threading.Event()

    def raw():
        n = 1  # @raw
        came.set()
        time.sleep(1000)

    def brief():
        m = 2  # @brief
        over.set()
"""


def test_a_thread_that_nobody_holds_leaves_no_entry(
    relay: Client, source: Write, python: str
) -> None:
    """It is let go of by itself, when it is being taken apart."""
    program = source(
        """
        import threading, time

        class Last(object):
            def __del__(self):
                ended.append(1)

        ended = []
        own = threading.local()

        def job():
            time.sleep(0.01)
            own.last = Last()

        for _ in range(3):
            threading.Thread(target=job).start()
        while len(ended) < 3:
            time.sleep(0.01)
        time.sleep(0.1)
        print(threading.active_count(), [thread.name for thread in threading.enumerate()])
        print("over")  # @here
        """
    )
    with relay.session(python_path=python) as session:
        session.break_at(program, program["here"])
        session.launch(program)
        names = [thread["name"] for thread in session.get("/threads").ok()["threads"]]
        assert names == ["MainThread"]
        assert session.resume()["exit_code"] == 0
        assert session.printed("stderr") == ""
        assert session.printed("stdout") == "1 ['MainThread']\nover\n"


def test_raw_threads_stop_and_end_with_the_program(
    relay: Client, source: Write, python: str
) -> None:
    program = source(
        RAW
        + """
    _thread.start_new_thread(raw, ())
    came.wait()
    for _ in range(3):
        over.clear()
        _thread.start_new_thread(brief, ())
        over.wait()
        time.sleep(0.05)
    """
    )
    with relay.session(python_path=python) as session:
        session.break_at(program, program["raw"])
        session.break_at(program, program["brief"])
        stop: Any = session.launch(program)
        assert stop["current_location"]["line"] == program["raw"]
        for _ in range(3):
            # Each lies where the one before has lain.
            assert session.resume()["current_location"]["line"] == program["brief"]
        assert session.resume()["exit_code"] == 0
        assert session.printed("stderr") == ""


@pytest.mark.slow
def test_raw_threads_of_an_attached_program_end_with_it(
    relay: Client, start: Callable[..., Running], python: str
) -> None:
    one = start(
        RAW
        + """
    print("up", flush=True)
    while input() == "go":
        came.clear()
        _thread.start_new_thread(raw, ())
        came.wait()
        print("went", flush=True)
    print(sorted(thread.name for thread in threading.enumerate()), flush=True)
    """,
        python=python,
    )
    stdin = one.process.stdin
    assert stdin is not None
    with relay.session() as session:
        session.post("/attach", {"pid": one.pid, "connect_timeout": 30}).ok()
        session.break_at(one.program, one.program["raw"])
        stdin.write("go\n")
        stdin.flush()
        session.get("/wait", until="paused", timeout=20)
        (event,) = session.events("stopped", timeout=10)
        assert event["body"]["reason"] == "breakpoint"
        session.post("/detach").ok()
    assert one.line() == "went"
    stdin.write("over\n")
    stdin.flush()
    assert one.line() == "['MainThread']"
    assert one.process.wait(20) == 0
    assert one.stderr() == ""
