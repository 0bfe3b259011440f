"""Conditions and log messages that fail: the program goes on as without them, and why is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kit.client import Client
from tests.kit.source import Source, interpreters

pytestmark = pytest.mark.one_python

PROGRAM = """
    import signal

    class Late(Exception):
        pass

    def late(*_):
        raise Late

    signal.signal(signal.SIGUSR1, late)
    text = "x" * 70000

    def work(i):
        a = i  # @exit
        b = i  # @closed
        c = i  # @log
        d = i  # @signal
        return b  # @last

    for i in range(3):
        try:
            work(i)
        except Late:
            print("late at", i)
"""


def test_what_fails_is_told_and_ends_no_program(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(PROGRAM)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["exit"], condition="exit()")
        session.break_at(
            program, program["closed"], condition="(_ for _ in ()).throw(GeneratorExit('no'))"
        )
        session.break_at(program, program["log"], log_message="{nothing}")
        # The program's own handler raises: that is the program's, whoever ran just then.
        on_signal = "i == 1 and signal.raise_signal(signal.SIGUSR1)"
        session.break_at(program, program["signal"], condition=on_signal)
        session.break_at(program, program["last"], log_message="{text} {*[i], 1}")
        assert session.launch(program)["exit_code"] == 0
        assert session.printed("stdout") == "late at 1\n"
        told = [bp["message"] for bp in session.get("/breakpoints").ok()["breakpoints"]]
        assert told == [
            "condition raised SystemExit: None",
            "condition raised GeneratorExit: no",
            "log message raised NameError: name 'nothing' is not defined",
            None,
            None,
        ]
        logged = session.printed("console")
        assert "x… (" in logged
        assert "more characters)" in logged


def test_a_log_message_is_read_by_the_session_s_python(
    relay: Client, source: Callable[..., Source]
) -> None:
    """What only newer ones read is refused by older ones, and where it comes too late, told."""
    known = interpreters()
    if "3.8" not in known or "3.12" not in known:
        pytest.skip("needs Python 3.8 and 3.12")
    program = source(PROGRAM)
    place = {"file": str(program), "line": program["last"]}
    newer, nested = "{[1][i := 0]}", "{f'{'a'}'} {i}"
    with relay.session(python_path=known["3.12"]) as session:
        session.break_at(program, program["last"], log_message=nested)
        session.break_at(program, program["log"], condition="[1][j := 0] > 1")
        assert session.launch(program, python_path=known["3.12"])["exit_code"] == 0
        assert session.printed("console") == "a 0\na 1\na 2\n"
    with relay.session(python_path=known["3.8"]) as session:
        body = {**place, "log_message": nested}
        session.post("/breakpoints", body).refused("BREAKPOINT_INVALID_CONDITION", 400)
        session.break_at(program, program["last"], log_message=newer)
        session.break_at(program, program["log"], condition="[1][j := 0] > 1")
        assert session.launch(program)["exit_code"] == 0
        told = [bp["message"] for bp in session.get("/breakpoints").ok()["breakpoints"]]
        assert told[0].startswith("the log message does not compile on Python 3.8: ")
        assert told[1].startswith("the condition does not compile on Python 3.8: ")
