"""`user_unhandled` stops where an exception leaves the program's code, and nowhere else: coroutines
and generators come back to a library's code at each pause, whatever they have handled before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.source import Source

LIBRARY = """
    import asyncio

    async def fails():
        await asyncio.sleep(0)
        try:
            raise KeyError(1)
        except KeyError as error:
            raise ValueError("library") from error

    def drain(rows):
        return [row for row in rows]
"""
PROGRAM = """
    import asyncio, library

    async def handles():
        for _ in range(2):
            try:
                await library.fails()
            except ValueError:
                pass
        try:
            await asyncio.wait_for(asyncio.sleep(60), 0.001)
        except asyncio.TimeoutError:
            pass
        await asyncio.sleep(0)
        raise OSError("its own")  # @own

    async def lets_through():
        try:
            await library.fails()
        except KeyError:
            pass

    def rows():
        for text in ("1", "x", "2"):
            try:
                yield int(text)
            except ValueError:
                yield 0

    def bad_rows():
        yield 1
        int("y")  # @row

    assert library.drain(rows()) == [1, 0, 2]
    for run in (lambda: asyncio.run(handles()), lambda: asyncio.run(lets_through()),
                lambda: library.drain(bad_rows())):
        try:
            run()
        except (OSError, ValueError) as error:
            print(error)
"""


@pytest.mark.one_python
def test_a_pause_is_no_end(relay: Client, source: Callable[..., Source], python: str) -> None:
    library = source(LIBRARY, "lib/python3/site-packages/library.py")
    program = source(PROGRAM)
    with relay.session(python_path=python) as session:
        session.post("/exception-breakpoints", {"filters": ["user_unhandled"]}).ok()
        state: Any = session.launch(program, env={"PYTHONPATH": str(library.path.parent)})
        stops = []
        while state["status"] == "paused":
            told = session.get("/exception").ok()
            stops.append((told["type"], told["message"]))
            if told["type"] == "OSError":
                assert session.line() == program["own"]
            state = session.resume()
        assert stops == [
            ("OSError", "its own"),
            ("ValueError", "library"),
            ("ValueError", "invalid literal for int() with base 10: 'y'"),
        ]
        assert state["exit_code"] == 0, session.printed()
