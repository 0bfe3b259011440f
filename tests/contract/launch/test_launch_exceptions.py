"""Stopping at exceptions: which ones, where, how often, and what is told of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.client import Client, Session
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

Write = Callable[..., Source]

CRASH = """
    class Broken(ValueError):
        pass

    def inner(value):
        raise Broken("no good: %r" % value)  # @raised

    def outer():
        inner(7)

    print("before")
    outer()
"""

HANDLED = """
    import os
    import sys

    def inner():
        raise KeyError("first")  # @raised

    def outer():
        inner()

    try:
        outer()
    except KeyError:
        print("handled")
    os.makedirs(os.getcwd(), exist_ok=True)  # raised and handled inside os
    getattr(sys, "no such name", None)
    for _ in iter([]):
        pass
    try:
        sys.exit(3)
    except SystemExit:
        print("exit held back")
    print("end")
"""


def stops(session: Session) -> list[Any]:
    return [event["body"] for event in session.events("stopped")]


def test_false_never_stops(relay: Client, source: Write, python: str) -> None:
    with relay.session(python_path=python) as session:
        ended = session.launch(source(CRASH), stop_on_exception=False)
        assert (ended["status"], ended["exit_code"]) == ("terminated", 1)
        assert "Broken: no good: 7" in session.printed("stderr")
        assert stops(session) == []


def test_uncaught_is_the_default(relay: Client, source: Write, python: str) -> None:
    program = source(CRASH)
    with relay.session(python_path=python) as session:
        stopped = session.launch(program)
        assert (stopped["status"], stopped["stop_reason"]) == ("paused", "exception")
        assert stopped["current_location"]["line"] == program["raised"]
        assert session.locals()["value"] == "7"
        exception = session.get().ok()["exception"]
        assert exception["type"].rpartition(".")[2] == "Broken"
        assert exception["message"] == "no good: 7"
        for words in ("in inner", "in outer", f"line {program['raised']}", str(program)):
            assert words in exception["traceback"]
        assert "debug_relay" not in exception["traceback"]
        assert "pydevd" not in exception["traceback"]
        ended = session.resume()
        assert (ended["status"], ended["exit_code"]) == ("terminated", 1)
        (stop,) = stops(session)
        assert stop["reason"] == "exception"
        assert stop["text"] == "Broken: no good: 7"
        assert stop["exception_info"]["exception_id"] == "Broken"


def test_uncaught_lets_handled_ones_pass(relay: Client, source: Write, python: str) -> None:
    with relay.session(python_path=python) as session:
        ended = session.launch(source(HANDLED), stop_on_exception="uncaught")
        assert (ended["status"], ended["exit_code"]) == ("terminated", 0)
        assert session.printed() == "handled\nexit held back\nend\n"


def test_raised_stops_once_and_not_for_what_the_library_handles(
    relay: Client, source: Write, python: str
) -> None:
    program = source(HANDLED)
    with relay.session(python_path=python) as session:
        stopped = session.launch(program, stop_on_exception="raised")
        assert (stopped["stop_reason"], session.line()) == ("exception", program["raised"])
        exception = session.get().ok()["exception"]
        assert (exception["type"], exception["message"]) == ("KeyError", "'first'")
        ended = session.resume()
        assert (ended["status"], ended["exit_code"]) == ("terminated", 0), session.status()
        assert len(stops(session)) == 1


def test_true_tells_a_crash_where_it_is_raised(relay: Client, source: Write, python: str) -> None:
    program = source(CRASH)
    with relay.session(python_path=python) as session:
        session.launch(program, stop_on_exception=True)
        assert session.line() == program["raised"]
        ended = session.resume()
        assert (ended["status"], ended["exit_code"]) == ("terminated", 1), session.status()
        assert len(stops(session)) == 1


@pytest.mark.parametrize(("choice", "code"), [("uncaught", 0), ("raised", 3), (True, "'in words'")])
def test_an_exit_is_no_exception(
    relay: Client, source: Write, choice: str | bool, code: str | int
) -> None:
    with relay.session() as session:
        ended = session.launch(source(f"import sys\nsys.exit({code})"), stop_on_exception=choice)
        assert ended["status"] == "terminated"
        assert ended["exit_code"] == (code if isinstance(code, int) else 1)


def test_raised_in_the_library_and_passed_on_stops_in_the_program(
    relay: Client, source: Write, python: str
) -> None:
    program = source(
        """
        import json
        try:
            json.loads("{")  # @call
        except ValueError:
            print("handled")
        """
    )
    with relay.session(python_path=python) as session:
        stopped = session.launch(program, stop_on_exception="raised")
        assert stopped["stop_reason"] == "exception"
        assert stopped["current_location"]["path"] == str(program)
        assert session.line() == program["call"]
        assert session.resume()["exit_code"] == 0
        assert len(stops(session)) == 1


def test_uncaught_in_a_thread(relay: Client, source: Write, python: str) -> None:
    program = source(
        """
        import threading
        def fail():
            raise OSError(5, "of a thread")  # @raised
        thread = threading.Thread(target=fail, name="failing")
        thread.start()
        thread.join()
        print("main goes on")
        """
    )
    with relay.session(python_path=python) as session:
        stopped = session.launch(program)
        assert (stopped["stop_reason"], session.line()) == ("exception", program["raised"])
        assert session.get().ok()["exception"]["message"] == "[Errno 5] of a thread"
        ended = session.resume()
        assert (ended["status"], ended["exit_code"]) == ("terminated", 0), session.status()
        assert session.printed("stdout") == "main goes on\n"
        assert len(stops(session)) == 1
    with relay.session(python_path=python) as session:
        # As text its functions have the name of any text that is compiled.
        session.launch(code=program.text, wait=10)
        assert (session.status()["stop_reason"], session.line()) == (
            "exception", program["raised"],
        )  # fmt: skip


def test_a_stack_overflow_that_nobody_handles_stops(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source("def f(n):\n    return f(n + 1)\nf(0)\n")
    with relay.session(python_path=python) as session:
        stopped = session.launch(program)
        assert (stopped["status"], stopped["stop_reason"]) == ("paused", "exception")
        # In the program, wherever in the debugger there was no more room.
        assert stopped["current_location"]["function"] == "f"
        assert session.get("/exception").ok()["type"] == "RecursionError"
        assert len(session.get("/stacktrace", levels=1000).ok()["frames"]) > 900
        ended = session.resume()
        assert (ended["status"], ended["exit_code"]) == ("terminated", 1)
        assert "RecursionError" in session.printed("stderr")
