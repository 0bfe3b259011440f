"""The loop that every debugging session is: create, break, launch, look, step, let go."""

from __future__ import annotations

from collections.abc import Callable

from tests.kit.client import Client
from tests.kit.source import Source

PROGRAM = """
    def add(a, b):
        c = a + b  # @inside
        return c

    def main():
        total = 0
        for i in range(5):
            total = add(total, i)  # @call
        print("total", total)  # @after
        return total

    main()
"""


def test_break_step_look_and_let_go(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(PROGRAM)
    with relay.session(name="loop", python_path=python) as session:
        breakpoint = session.break_at(program, program["call"], condition="i > 1")
        assert breakpoint["verified"] is True
        stopped = session.launch(program)
        assert (stopped["status"], stopped["stop_reason"]) == ("paused", "breakpoint")
        assert stopped["current_location"]["line"] == program["call"]
        assert session.locals() == {"i": "2", "total": "1"}
        assert session.value("total + i") == "3"
        assert session.step("into")["current_location"]["line"] == program["inside"]
        out = session.step("out")
        assert out["current_location"]["function"] == "main"
        assert out["return_value"] == {"type": "int", "value": "3"}
        assert session.delete(f"/breakpoints/{breakpoint['id']}").ok()["deleted"] is True
        ended = session.resume()
        assert (ended["status"], ended["exit_code"]) == ("terminated", 0)
        assert session.printed("stdout") == "total 10\n"
