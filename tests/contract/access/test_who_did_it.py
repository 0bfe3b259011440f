"""Events of an action say whose it was; what a program does by itself is nobody's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.kit.client import Client, Session
from tests.kit.source import Source
from tests.kit.streams import all_of, connect

PROGRAM = """
    import time
    for n in range(3):
        print(n)  # @inside
    time.sleep(600)
"""


def by(name: str) -> dict[str, str]:
    return {"X-Agent": name}


def callers(session: Session, *types: str) -> list[Any]:
    return [event["body"].get("caller") for event in session.events(*types)]


def test_events_carry_who_acted(relay: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    with relay.session() as session:
        body = {"file": str(program), "line": program["inside"]}
        session.post("/breakpoints", body, headers=by("ann")).ok()
        launch = {"script": str(program), "wait": 20}
        session.post("/launch", launch, headers=by("bob")).ok()
        session.post("/step-over", headers=by("cat")).ok()
        session.patch("/breakpoints/bp_1", {"enabled": False}, headers=by("dan")).ok()
        session.post("/continue", headers=by("eve")).ok()
        session.post("/pause", headers=by("fay")).ok()
        assert callers(session, "breakpoint") == ["ann", "dan"]
        # The breakpoint was met by the program; the step and the pause were wished for.
        assert callers(session, "stopped") == [None, "cat", "fay"]
        assert callers(session, "continued") == ["cat", "eve"]
        assert callers(session, "session")[:2] == ["bob", "bob"]
        assert set(callers(session, "output")) == {None}
        session.post("/terminate", headers=by("gus")).ok()
        assert callers(session, "terminated") == ["gus"]


def test_a_deletion_carries_who_asked_for_it(relay: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    session = relay.called(X_Agent="ann").session()
    session.break_at(program, program["inside"])
    session.launch(program)
    with connect(session, "/debug") as socket:
        session.called(X_Agent="zoe").delete().ok()
        events = [one for one in all_of(socket)[0] if one["kind"] == "event"]
    ends = [one for one in events if one["event"] in ("continued", "terminated")]
    assert ends[-1]["event"] == "terminated"
    assert {one["payload"].get("caller") for one in ends} == {"zoe"}


def test_an_end_of_its_own_is_nobodys(relay: Client, source: Callable[..., Source]) -> None:
    with relay.session() as session:
        body = {"script": str(source("print()\n")), "wait": 20}
        session.post("/launch", body, headers=by("ann")).ok()
        assert callers(session, "terminated") == [None]


def test_without_a_name_it_is_the_user(relay: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    with relay.session() as session:
        session.break_at(program, program["inside"])
        session.launch(program)
        session.step()
        assert callers(session, "continued") == [session.get().ok()["created_by"]]
