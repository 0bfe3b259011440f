"""A step that leaves its line by an exception says which, also where it stops further up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kit.client import Client
from tests.kit.source import Source, version_of

RAISES = """
    def inner(x):
        return 1 / x  # @raise
    def middle(x):
        return inner(x)
    def outer(x):
        try:
            return middle(x)  # @call
        except ZeroDivisionError:  # @handler
            return None  # @quiet
    def fine():
        return 2  # @fine
    outer(0)
    fine()
    print("end")
"""


@pytest.mark.one_python
def test_the_reply_of_the_step(relay: Client, source: Callable[..., Source], python: str) -> None:
    program = source(RAISES)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["raise"])
        session.break_at(program, program["fine"])
        session.launch(program)
        passed = session.step()
        if passed["current_location"]["line"] == program["call"]:  # up to 3.11
            assert "the next step shows which" in passed["exception"]["message"]
            passed = session.step()
        assert passed["current_location"]["line"] == program["handler"]
        told = passed["exception"]
        assert (told["type"], told["message"]) == ("ZeroDivisionError", "division by zero")
        quiet = session.step()
        assert (quiet["current_location"]["line"], quiet["exception"]) == (program["quiet"], None)
        hit = session.resume()
        assert (hit["current_location"]["line"], hit["exception"]) == (program["fine"], None)
        assert session.step("out")["exception"] is None
        session.post("/restart", {"wait": 20}).ok()
        shown = session.post("/step-out", format="text").raw.decode()
        assert "the step left its line by an exception: " in shown


CLEANS_UP = """
    import contextlib

    def fails():
        raise KeyError("k")  # @raise

    def again():
        try:
            fails()
        finally:
            done = True  # @cleans

    def suppressed():
        with contextlib.suppress(KeyError):  # @with
            fails()
        return 1

    suppressed()
    try:
        again()
    except KeyError:  # @handler
        print("end")
"""


def test_a_step_that_ends_in_a_clean_up(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    """A `with` block has the exception before it handles it; `finally` raises it again."""
    program = source(CLEANS_UP)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["raise"])
        session.break_at(program, program["cleans"])
        session.launch(program)
        stepped = session.step("over")
        if version_of(python) >= (3, 11):
            assert stepped["current_location"]["line"] == program["with"]
        while stepped["exception"]["type"] == "unknown":  # up to 3.10: on its way
            assert "not arrived" in stepped["exception"]["message"]
            stepped = session.step("over")
        assert stepped["exception"]["type"] == "KeyError"
        session.resume()
        assert session.resume()["current_location"]["line"] == program["cleans"]
        for _ in range(3):
            stepped = session.step("over")
            if stepped["current_location"]["line"] == program["handler"]:
                break
        assert (stepped["exception"]["type"], stepped["exception"]["message"]) == ("KeyError", "k")


@pytest.mark.one_python
def test_a_function_that_was_never_found(relay: Client, source: Callable[..., Source]) -> None:
    program = source(
        """
        class Account:
            def on_release(self):  # @method
                return 1
        Account().on_release()
        """
    )
    with relay.session() as session:
        points = [{"function": "on_relaese"}, {"function": "Account.on_release", "condition": "0"}]
        session.post("/breakpoints", {"breakpoints": points}).ok()
        ended = session.launch(program)
        assert ended["status"] == "terminated"
        [warning] = ended["never_found"]
        assert "the program has ended, and never had a function on_relaese" in warning
        assert f"Account.on_release ({program}:{program['method']})" in warning
        listed = session.get("/breakpoints").ok()["breakpoints"]
        assert "Account.on_release" in listed[0]["suggestion"]
        waited = session.get("/snapshot", wait=5, format="text").raw.decode()
        assert "Probably meant: Account.on_release" in waited
