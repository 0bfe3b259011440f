"""Watches: expressions that are evaluated at every stop, with an event when they change."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.client import Client, Session
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

PROGRAM = """
    def main():
        items = []
        for i in range(10):
            items.append(i)  # @line
        return items

    main()
"""


def test_values_and_errors_at_every_stop(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(PROGRAM)
    with relay.session(python_path=python) as session:
        added = session.post("/watch", {"expression": "len(items)"}).ok()
        assert (added["id"], added["value"]) == ("watch_1", None)
        session.post("/watch", {"expression": "[i + k for k in (1, 2)]"}).ok()
        session.post("/watch", {"expression": "items[100]"}).ok()
        session.break_at(program, program["line"])
        report = session.launch(program, snapshot=True)["stop"]
        assert [(w["id"], w["value"], w["type"]) for w in report["watches"][:2]] == [
            ("watch_1", "0", "int"),
            ("watch_2", "[1, 2]", "list"),
        ]
        assert report["watches"][2]["error"] == "IndexError: list index out of range"
        reference = report["watches"][1]["variables_reference"]
        opened = session.get(f"/variables/{reference}").ok()["variables"]
        assert [child["value"] for child in opened] == ["1", "2"]
        session.resume()
        listed = session.get("/watch").ok()
        assert listed["total"] == 3
        assert listed["watches"][0]["value"] == "1"


def test_they_are_added_change_and_go(relay: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    with relay.session() as session:
        for expression in ("i", "i + 1", "i > 1"):
            session.post("/watch", {"expression": expression}).ok()
        assert session.delete("/watch", watch_id="watch_2").ok() == {"deleted": 1}
        session.break_at(program, program["line"])
        report = session.launch(program, snapshot=True)["stop"]
        assert [watch["expression"] for watch in report["watches"]] == ["i", "i > 1"]
        error = session.delete("/watch", watch_id="watch_2").refused("WATCH_NOT_FOUND", 404)
        assert error["details"]["watches"] == ["watch_1", "watch_3"]
        # Added at a stop it has its value at once.
        added = session.post("/watch", {"expression": "items"}).ok()
        assert (added["value"], added["type"]) == ("[]", "list")
        assert session.post("/watch", {"expression": "items"}).ok()["id"] == added["id"]
        for _ in range(3):
            session.resume(snapshot=True)
        # A change is an event.
        changed = [event["body"] for event in session.events("watch")]
        (body,) = (body for body in changed if body["watch_id"] == "watch_3")
        assert (body["before"], body["value"], body["stop_id"]) == ("False", "True", 3)
        assert session.delete("/watch").ok() == {"deleted": 3}
        assert session.resume(snapshot=True)["stop"]["watches"] == []


def test_what_is_no_expression_is_refused(relay: Client) -> None:
    with relay.session() as session:
        error = session.post("/watch", {"expression": "x = 1"}).refused("EVALUATE_ERROR", 400)
        assert "expression" in error["details"]["suggestion"]
        assert session.get("/watch").ok()["total"] == 0


@pytest.mark.slow
def test_a_watch_that_hangs_holds_up_one_stop_and_no_other_watch(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source("""
        class Loud:
            def __repr__(self):
                while True:
                    pass

        class Named:
            def __init__(self, name):
                self.name = name
            def __repr__(self):
                return self.name

        def spin():
            while True:
                pass

        def main():
            loud, named = Loud(), Named("one")
            a = 1  # @a
            a = 2
            a = 3
            a = 4

        main()
    """)
    with relay.session(python_path=python) as session:
        assert "evaluated at the next stop" in told(session, "POST", "/watch", expression="a")
        for expression in ("spin()", "named.nothing", "named"):
            session.post("/watch", {"expression": expression}).ok()
        session.break_at(program, program["a"])
        report = session.launch(program, snapshot=True)["stop"]
        spun = next(watch for watch in report["watches"] if watch["expression"] == "spin()")
        assert "too long" in spun["error"]
        began = time.monotonic()
        report = session.step(snapshot=True)["stop"]
        slow = time.monotonic() - began
        # That the repr could not be asked for at the first stop is no change.
        assert [change["name"] for change in report["changed"]] == ["a"]
        began = time.monotonic()
        report = session.step(snapshot=True)["stop"]
        assert time.monotonic() - began < slow
        watches = {watch["expression"]: watch for watch in report["watches"]}
        assert (watches["a"]["value"], watches["named"]["value"]) == ("2", "one")
        assert "not evaluated: it took too long at another stop" in watches["spin()"]["error"]
        assert [change["name"] for change in report["changed"]] == ["a"]
        text = told(session, "GET", "/snapshot")
        assert "spin(): it took too long" in text
        assert "named.nothing: raised AttributeError" in text
        assert "named: Named = one" in text


def told(session: Session, verb: str, path: str, **body: Any) -> str:
    headers = {"Accept": "text/plain"}
    path = f"/sessions/{session.id}{path}"
    return session.client.call(verb, path, body or None, headers).raw.decode()
