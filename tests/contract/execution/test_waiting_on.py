"""What a call that ends before the next stop says: how to wait on, and who asks for input."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.client import Client, Session
from tests.kit.relay import eventually
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

Write = Callable[..., Source]

SLOW = """
    import sys, time

    for i in range(3):
        pass  # @here
        if len(sys.argv) > 1:
            sys.stdin.readline()
        time.sleep(0.4)
"""
ASKS = """
    x = 1  # @here
    name = input("Name? ")
    age = input("Age? ")
    print(name, age)
"""
ASKS_BESIDE = """
    import threading, time

    def other():
        time.sleep(0.7)
        print("here")  # @here

    threading.Thread(target=other).start()
    input("Name? ")
"""
EARLY = 10.0  # seconds; they wait for thirty


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    began = time.monotonic()
    return call(), time.monotonic() - began


def asked(answer: Any) -> tuple[str, bool, bool, str | None]:
    return (
        answer["status"],
        answer["completed"],
        answer["waiting_for_input"],
        answer["prompt"],
    )


def in_words(session: Session, path: str, body: dict[str, Any]) -> str:
    return session.post(path, body, format="text").raw.decode()


def waits_on(session: Session, text: str) -> Any:
    """What the hint leads to."""
    found = re.search(r"GET /api/v1/sessions/\w+(/snapshot\?wait=30)", text)
    assert found is not None, text
    return session.get(found.group(1)).ok()


def test_the_hint_leads_to_what_comes_next(relay: Client, source: Write) -> None:
    program = source(SLOW)
    with relay.session() as session:
        session.break_at(program, program["here"])
        first = session.launch(program)
        # From a reply that knows a stop, too, what comes after that is told.
        nothing = session.get("/events", types="stopped", cursor=first["events_cursor"]).ok()
        assert nothing["events"] == []
        for stop in (2, 3):
            text = in_words(session, "/continue", {"wait": 0})
            assert waits_on(session, text)["stop"]["stop_id"] == stop
        text = in_words(session, "/continue", {"wait": 0})
        assert waits_on(session, text)["status"] == "terminated"


def test_the_hint_leads_to_a_question(relay: Client, source: Write) -> None:
    program = source(SLOW)
    with relay.session() as session:
        session.break_at(program, program["here"], hit_condition="1")
        session.launch(program, args=["ask"])
        text = in_words(session, "/continue", {"wait": 0})
        asks = waits_on(session, text)
        assert (asks["status"], asks["waiting_for_input"]) == ("running", True)


def test_a_refusal_while_it_runs_names_the_call_that_waits(relay: Client, source: Write) -> None:
    program = source(SLOW)
    with relay.session() as session:
        running = session.launch(program, wait=0, args=["ask"])
        error = session.get("/stacktrace").refused("INVALID_SESSION_STATE", 409)
        assert "/snapshot?wait=" in error["details"]["suggestion"]
        error = session.post("/step-over", headers={"If-Stop": "7"}).refused("STOP_CHANGED", 409)
        assert "/snapshot?wait=" in error["details"]["suggestion"]
        query = {"types": "stopped", "timeout": 0.3, "cursor": running["events_cursor"]}
        assert session.get("/events", **query).ok()["events"] == []


def test_a_wait_ends_with_a_question(relay: Client, source: Write, python: str) -> None:
    program = source(ASKS)
    with relay.session(python_path=python) as session:
        launched, took = timed(lambda: session.launch(program, wait=30))
        assert took < EARLY
        assert asked(launched) == ("running", False, True, "Name? ")
        again, took = timed(lambda: session.post("/restart", {"wait": 30}).ok())
        assert took < EARLY
        assert asked(again) == ("running", False, True, "Name? ")
        session.break_at(program, program["here"])
        assert session.post("/restart", {"wait": 30}).ok()["status"] == "paused"
        stepped = session.step()
        assert asked(stepped) == ("paused", True, False, None)
        on, took = timed(lambda: session.post("/continue", {"wait": 30}).ok())
        assert took < EARLY
        assert asked(on) == ("running", False, True, "Name? ")
        session.post("/input", {"input": "Ada\n36\n"}).ok()
        eventually(lambda: session.status()["status"] == "terminated")


def test_a_question_in_words(relay: Client, source: Write) -> None:
    with relay.session() as session:
        body = {"script": str(source(ASKS)), "wait": 30}
        text = in_words(session, "/launch", body)
        assert (
            f"waits for input: 'Name? ': send it with POST /api/v1/sessions/{session.id}/input"
            in text
        )
        assert "not stopped yet" in text


def test_input_that_is_there_is_no_question(relay: Client, source: Write) -> None:
    with relay.session() as session:
        ended = session.launch(source(ASKS), wait=30, stdin_inputs=["Ada", "36"])
        assert asked(ended) == ("terminated", True, False, None)
    with relay.session() as session:
        # The second of two is a question, though the first was none.
        half = session.launch(source(ASKS), wait=30, stdin_inputs=["Ada"])
        assert asked(half) == ("running", False, True, "Name? Age? ")


def test_a_question_that_was_there_before_ends_no_wait(relay: Client, source: Write) -> None:
    with relay.session() as session:
        session.launch(source(ASKS), wait=30)
        assert session.post("/pause", {"wait": 20}).ok()["status"] == "paused"
        on, took = timed(lambda: session.post("/continue", {"wait": 0.7}).ok())
        assert took >= 0.7
        assert asked(on) == ("running", False, True, "Name? ")


@pytest.mark.parametrize("stops", [True, False])
def test_a_question_beside_another_thread_ends_no_wait(
    relay: Client, source: Write, stops: bool
) -> None:
    program = source(ASKS_BESIDE)
    with relay.session() as session:
        if stops:
            session.break_at(program, program["here"])
        launched, took = timed(lambda: session.launch(program, wait=1.5))
        assert took >= 0.7
        assert launched["status"] == ("paused" if stops else "running")
        assert launched["waiting_for_input"] is not stops
