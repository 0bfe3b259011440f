"""Log points: f-string text instead of a stop."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kit.client import Client
from tests.kit.relay import eventually
from tests.kit.source import Source

PROGRAM = """
    def work():
        total = 0
        for i in range(3):
            total += i  # @line
        return total

    print(work())
"""


@pytest.mark.one_python
def test_log_points_write_and_never_stop(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(PROGRAM)
    with relay.session(python_path=python) as session:
        message = "{i}: {total!r:>4} {{}} {[j for j in range(i)]}"
        set_ = session.break_at(program, program["line"], log_message=message, condition="i > 0")
        assert set_["log_message"] == message
        assert session.launch(program)["exit_code"] == 0
        entries = session.get("/output", category="console").ok()["entries"]
        assert [entry["output"] for entry in entries] == ["1:    0 {} [0]\n", "2:    1 {} [0, 1]\n"]
        assert entries[0]["source"] == str(program)
        assert entries[0]["line"] == program["line"]


def test_a_hot_log_point_does_not_flood(relay: Client, source: Callable[..., Source]) -> None:
    program = source("for i in range(20000):\n    pass  # @line\nprint('done')\n")
    with relay.session() as session:
        session.break_at(program, program["line"], log_message="at {i}")
        assert session.launch(program)["exit_code"] == 0
        lines = session.printed("console").splitlines()
        assert 100 <= len(lines) < 2000
        # All are accounted for, though no line was written after the last that were skipped.
        skipped = [int(line.split(" ")[0][1:]) for line in lines if line.startswith("(")]
        assert len(lines) - len(skipped) + sum(skipped) == 20000
        assert lines[-1].startswith("(")


def test_skipped_log_lines_are_told_at_the_end_of_the_burst(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source("""
        for i in range(5000):
            pass  # @line
        input()
        for i in range(2):
            pass  # @later
        import os; os._exit(0)
    """)
    with relay.session() as session:
        session.break_at(program, program["line"], log_message="at {i}")
        session.break_at(program, program["later"], log_message="then {i}")
        session.launch(program, wait=0)

        def last() -> str:
            return (session.printed("console").splitlines() or [""])[-1]

        eventually(lambda: last().endswith("lines of this log point were skipped)"), 15)
        assert session.status()["status"] == "running"
        session.post("/input", {"input": "\n"}).ok()
        eventually(lambda: session.status()["status"] == "terminated")
        assert session.printed("console").splitlines()[-2:] == ["then 0", "then 1"]


def test_a_log_message_that_does_not_compile(relay: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    with relay.session() as session:
        body = {"file": str(program), "line": program["line"], "log_message": "{1 +}"}
        error = session.post("/breakpoints", body).refused("BREAKPOINT_INVALID_CONDITION", 400)
        assert "{1 +}" in error["message"]
        assert session.break_at(program, program["line"], log_message="")["log_message"] is None
