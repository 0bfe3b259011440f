"""Steps whose frame is left by an exception: they end in the caller, and nothing was returned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

PROGRAM = """
    import asyncio

    def fail(wrong):
        if wrong:  # @asked
            raise ValueError("no")  # @raise
        return 5

    def middle():
        fail(True)
        print("never")

    def catches():
        try:
            middle()  # @call
        except ValueError:  # @except
            print("caught")

    def numbers():
        yield 1
        raise ValueError("no more")  # @broken
        print("never")

    def reads():
        try:
            for number in numbers():  # @for
                print(number)
        except ValueError:  # @stale
            print("over")

    async def breaks():
        await asyncio.sleep(0)  # @pause
        raise ValueError("in vain")  # @vain
        print("never")

    async def passes():
        await breaks()  # @passed
        print("never")

    async def waits():
        try:
            await passes()  # @await
        except ValueError:  # @saved
            print("saved")

    catches()
    reads()
    asyncio.new_event_loop().run_until_complete(waits())
"""


def test_a_step_ends_where_the_exception_arrives(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(PROGRAM)
    names = {line: name for name, line in program.marks.items()}

    def at(answer: Any) -> Any:
        assert answer["status"] == "paused", answer
        assert answer["stop_reason"] == "step"
        return names.get(answer["current_location"]["line"])

    with relay.session(python_path=python) as session:

        def to(mark: str) -> None:
            session.delete("/breakpoints").ok()
            session.break_at(program, program[mark])

        to("asked")
        session.launch(program)
        to("raise")
        session.resume()
        # In the caller that does nothing about it, and further up in the one that does.
        left = session.step("out")
        assert left["return_value"] is None, "it did not return"
        if at(left) != "except":  # up to 3.11 each frame on the way is shown
            while at(session.step()) != "except":
                pass
        to("broken")
        session.resume()
        assert at(session.step()) in ("for", "stale")
        to("pause")
        session.resume()
        assert at(session.step()) == "vain", "a pause is no end"
        while (where := at(session.step())) != "saved":
            assert where in (None, "passed", "await"), "through all who wait for it"
        session.delete("/breakpoints").ok()
        assert session.resume()["exit_code"] == 0


def test_what_is_returned_after_all(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    """An exception that was handled on the way is none."""
    program = source("""
        def risky():
            raise KeyError("x")

        def calm():
            try:
                risky()  # @risky
            except KeyError:
                pass
            return 7

        calm()
    """)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["risky"])
        session.launch(program)
        session.step()
        assert session.step("out")["return_value"] == {"type": "int", "value": "7"}
