"""The lease: of several callers one drives, the others look on, until it lapses or moves."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.state import State
from tests.kit.client import Client, Session
from tests.kit.ide import Ide
from tests.kit.relay import Relay, eventually
from tests.kit.source import Source

PROGRAM = """
    import time
    n = 0
    while True:
        n += 1  # @first
        time.sleep(0.01)  # @next
"""
# With another thread, which might stop: a question of the only one would end the call's wait.
WAITING = """
    import threading, time
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    print("up", flush=True)
    input()
    print("fed", flush=True)  # @fed
"""
BODIES = {
    "run-to": {"file": "/x.py", "line": 1},
    "trace": {"at": [{"file": "/x.py", "line": 1}]},
    "input": {"input": "x"},
}


@pytest.fixture
def session(relay: Client, source: Callable[..., Source]) -> Iterator[Session]:
    """Paused."""
    program = source(PROGRAM)
    with relay.session() as made:
        made.break_at(program, program["first"])
        assert made.launch(program)["status"] == "paused"
        yield made


def told(session: Session) -> list[tuple[str | None, str | None, str | None]]:
    """Of each change: who had it, who has it, whose doing it was."""
    bodies = [event["body"] for event in session.events("session")]
    return [
        (
            body.get("previous_holder"),
            body["lease"] and body["lease"]["holder"],
            body.get("caller"),
        )
        for body in bodies
        if "lease" in body
    ]


def test_others_look_on(session: Session) -> None:
    ann, bob = session.called(X_Agent="ann"), session.called(X_Agent="bob")
    taken = ann.post("/lease", {"ttl": 300}).ok()
    ends = datetime.fromisoformat(taken["expires_at"]) - datetime.now(UTC)
    assert 290 < ends.total_seconds() <= 300
    assert bob.get().ok()["lease"]["holder"] == "ann"
    error = bob.post("/step-over").refused("SESSION_LEASED", 423)
    assert (error["details"]["holder"], error["details"]["caller"]) == ("ann", "bob")
    assert 290 < error["details"]["seconds_left"] <= 300
    assert bob.locals()["n"] == "0"
    assert bob.value("n + 1") == "1"
    bob.post("/breakpoints", {"file": "/none.py", "line": 1}).ok()
    ann.step()
    ann.delete("/lease").ok()
    bob.step()
    assert session.get().ok()["lease"] is None
    assert told(session) == [(None, "ann", "ann"), ("ann", None, "ann")]


def test_all_that_changes_the_run_is_refused(session: Session) -> None:
    session.called(X_Agent="ann").post("/lease", {"ttl": 300}).ok()
    before = session.status()
    bob = session.client.called(X_Agent="bob")
    # The session is paused here; launch and attach have tests of their own.
    rows = [row for row in OPERATIONS.values() if row.drives and State.PAUSED in row.states]
    assert rows
    for row in rows:
        path = row.path.partition("{session_id}")[2]
        body = BODIES.get(row.name, {}) if row.takes_body else None
        answer = bob.call(row.verb, f"/sessions/{session.id}{path}", body)
        answer.refused("SESSION_LEASED", 423)
        now = session.status()
        assert (now["status"], now["stop_id"]) == (before["status"], before["stop_id"]), row.name


def test_a_launch_and_a_restart_are_the_drivers(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source("print('on')\n")
    with relay.session() as session:
        ann, bob = session.called(X_Agent="ann"), session.called(X_Agent="bob")
        ann.post("/lease").ok()
        bob.try_launch(program).refused("SESSION_LEASED", 423)
        bob.post("/attach", {"port": 1}).refused("SESSION_LEASED", 423)
        assert ann.launch(program)["exit_code"] == 0
        bob.post("/restart").refused("SESSION_LEASED", 423)
        assert ann.post("/restart", {"wait": 20}).ok()["exit_code"] == 0


def test_taking_giving_back_and_taking_over(session: Session) -> None:
    ann, bob = session.called(X_Agent="ann"), session.called(X_Agent="bob")
    assert bob.delete("/lease").ok()["holder"] is None
    ann.post("/lease").ok()
    bob.post("/lease").refused("SESSION_LEASED", 423)
    bob.post("/lease", {"holder": "ann"}).refused("SESSION_LEASED", 423)
    bob.delete("/lease").refused("SESSION_LEASED", 423)
    assert bob.post("/lease", {"take_over": True}).ok()["holder"] == "bob"
    ann.post("/step-over").refused("SESSION_LEASED", 423)
    bob.step()
    # Handed on, and made for somebody else from the start.
    assert bob.post("/lease", {"holder": "cat"}).ok()["holder"] == "cat"
    bob.post("/step-over").refused("SESSION_LEASED", 423)
    session.called(X_Agent="cat").step()
    assert told(session) == [(None, "ann", "ann"), ("ann", "bob", "bob"), ("bob", "cat", "bob")]


def test_it_lapses_by_itself(session: Session) -> None:
    ann, bob = session.called(X_Agent="ann"), session.called(X_Agent="bob")
    cursor = session.get("/events", limit=1000).ok()["next_cursor"]
    ann.post("/lease", {"ttl": 1}).ok()
    began = time.monotonic()
    bob.post("/step-over").refused("SESSION_LEASED", 423)
    seen = session.get("/events", cursor=cursor, timeout=20, types="session").ok()
    while len(seen["events"]) < 2:
        cursor_now = seen["next_cursor"]
        more = session.get("/events", cursor=cursor_now, timeout=20, types="session").ok()
        seen = {**more, "events": seen["events"] + more["events"]}
    assert 0.5 < time.monotonic() - began < 10
    assert session.get().ok()["lease"] is None
    assert told(session) == [(None, "ann", "ann"), ("ann", None, None)]
    bob.step()


def test_acting_renews_it_and_looking_does_not(session: Session) -> None:
    ann = session.called(X_Agent="ann")
    ann.post("/lease", {"ttl": 300}).ok()
    first = session.get().ok()["lease"]["expires_at"]
    ann.value("__import__('time').sleep(0.05)")  # what is renewed ends so much later
    session.called(X_Agent="bob").post("/step-over").refused("SESSION_LEASED", 423)
    assert abs(moment(session.get().ok()["lease"]["expires_at"]) - moment(first)) < 0.01
    ann.step()
    assert moment(session.get().ok()["lease"]["expires_at"]) > moment(first) + 0.04
    ann.post("/lease", {"ttl": 5}).ok()
    assert moment(session.get().ok()["lease"]["expires_at"]) < moment(first)


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_a_call_that_waits_holds_it(relay: Client, source: Callable[..., Source]) -> None:
    program = source(WAITING)
    with relay.session() as session:
        ann, bob = session.called(X_Agent="ann"), session.called(X_Agent="bob")
        session.break_at(program, program["fed"])
        ann.post("/lease", {"ttl": 1}).ok()
        with ThreadPoolExecutor(1) as pool:
            call = pool.submit(ann.launch, program)
            cursor, waits = None, False
            while not waits:
                query = {"cursor": cursor} if cursor else {}
                page = session.get("/events", types="input", timeout=20, **query).ok()
                cursor, waits = page["next_cursor"], bool(page["events"])
            # Longer than the lease by far: only the call that waits holds it.
            page = session.get("/events", types="terminated", timeout=2, cursor=cursor).ok()
            assert page["events"] == []
            bob.post("/pause").refused("SESSION_LEASED", 423)
            ann.post("/input", {"input": "x\n"}).ok()
            assert call.result(20)["status"] == "paused"
        assert told(session)[0] == (None, "ann", "ann")


def test_a_call_that_came_too_late_is_refused(
    session: Session, source: Callable[..., Source]
) -> None:
    """What waits for its turn while the lease moves is the former driver's no more."""
    ann, bob = session.called(X_Agent="ann"), session.called(X_Agent="bob")
    ann.post("/lease").ok()
    with ThreadPoolExecutor(8) as pool:
        steps = [pool.submit(ann.post, "/step-over") for _ in range(8)]
        bob.post("/lease", {"take_over": True}).ok()
        stop = session.status()["stop_id"]
        codes = [step.result(30).status for step in steps]
    assert set(codes) <= {200, 423, 409}
    # At most the one that was under way when the lease moved.
    assert session.status()["stop_id"] <= stop + 1


KEEPS = """
    import ctypes, sys, threading

    def keeps():
        buffer = ctypes.create_string_buffer(1)
        while sys.stdin.readline():
            ctypes.PyDLL(None).read(0, buffer, 1)  # without giving the interpreter away

    threading.Thread(target=keeps, daemon=True).start()
    len("entered")  # @here
    n = 1  # @next
"""


def test_a_lease_that_moves_while_the_program_is_asked(
    relay: Client, shared_relay: Relay, source: Callable[..., Source]
) -> None:
    """A step asks the program before it resumes it; here that takes as long as we like."""
    program = source(KEEPS)
    with relay.session(stop_all=False) as session, ThreadPoolExecutor(1) as pool:
        ann, bob = session.called(X_Agent="ann"), session.called(X_Agent="bob")
        session.break_at(program, program["here"])
        pid = session.launch(program)["pid"]

        def is_kept() -> bool:
            stacks = relay.get(f"/processes/{pid}/stacks").ok()["threads"]
            return any(one["owns_gil"] for one in stacks)

        line = {"line": program["next"]}
        for path, body in [
            ("/step-into", {}),
            ("/step-out", {}),
            ("/run-to", line),
            ("/trace", {"at": [{"file": str(program.path), **line}]}),
        ]:
            bob.post("/input", {"input": "\n"}).ok()
            eventually(is_kept)
            call = pool.submit(ann.post, path, body)
            eventually(lambda: shared_relay.calls() == 1)
            bob.post("/lease").ok()
            bob.post("/input", {"input": "x"}).ok()
            call.result(30).refused("SESSION_LEASED", 423)
            bob.delete("/lease").ok()
        assert session.events("continued") == []
        # Nothing is left of what was asked for.
        bob.post("/input", {"eof": True}).ok()
        assert session.resume()["status"] == "terminated"


def test_it_goes_on_under_the_next_relay(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    relay = own_relay()
    program = source(PROGRAM)
    session = relay.client.session()
    session.break_at(program, program["first"])
    session.launch(program)
    session.called(X_Agent="ann").post("/lease", {"ttl": 300}).ok()
    relay.kill()
    relay.start()
    session = Session(relay.client, session.id)
    assert session.get().ok()["lease"]["holder"] == "ann"
    session.called(X_Agent="bob").post("/step-over").refused("SESSION_LEASED", 423)
    session.called(X_Agent="ann").step()
    relay.worker(session.id).kill()
    eventually(lambda: session.status()["status"] == "failed")
    assert session.get().ok()["lease"] is None
    session.delete(force="true").ok()


@pytest.mark.parametrize(
    "body", [{"ttl": 0}, {"ttl": 86401}, {"holder": ""}, {"holder": "x" * 256}, {"holdr": "x"}]
)
def test_odd_leases(relay: Client, body: dict[str, object]) -> None:
    with relay.session() as session:
        session.post("/lease", body).refused("INVALID_REQUEST", 400)
        assert session.get().ok()["lease"] is None


def person(session: Session, front: str = "editor", **headers: str) -> Session:
    return session.called(X_Human_Front=front, **headers)


def test_a_person_who_acts_takes_a_free_lease(session: Session) -> None:
    ann, bot = person(session, X_Agent="ann"), session.called(X_Agent="bot")
    assert ann.value("n") == "0"
    assert session.get().ok()["lease"] is None  # looking takes nothing
    ann.post("/input", {"input": "x\n"}).ok()
    ann.step()
    lease = session.get().ok()["lease"]
    assert (lease["holder"], lease["front"]) == ("ann (human)", "editor")
    assert 25 < moment(lease["expires_at"]) - time.time() <= 30
    error = bot.post("/step-over").refused("SESSION_LEASED", 423)
    assert error["message"] == (
        "ann (human) drives this session through editor, and step-over came from bot"
    )
    assert (error["details"]["holder"], error["details"]["front"]) == ("ann (human)", "editor")
    assert 25 < error["details"]["seconds_left"] <= 30
    assert bot.locals()["n"] == "1"
    # An agent of the same name, or with the same token, is another driver.
    session.called(X_Agent="ann").post("/step-over").refused("SESSION_LEASED", 423)
    # Another front of the same person is the same driver, and the lease shows where they act now.
    person(session, "page", X_Agent="ann").step()
    assert session.get().ok()["lease"]["front"] == "page"
    assert "driven by ann (human) through page until" in session.get(format="text").raw.decode()
    assert bot.post("/lease", {"take_over": True}).ok() == session.get().ok()["lease"]
    bot.step()
    assert told(session) == [
        (None, "ann (human)", "ann (human)"),
        ("ann (human)", "bot", "bot"),
    ]
    assert {event["body"]["caller"] for event in session.events("continued")} == {
        "ann (human)",
        "bot",
    }


def test_an_agents_lease_refuses_a_person_in_plain_words(session: Session) -> None:
    ann, bot = person(session, X_Agent="ann"), session.called(X_Agent="bot")
    bot.post("/lease", {"ttl": 300}).ok()
    error = ann.post("/step-over").refused("SESSION_LEASED", 423)
    assert error["message"] == (
        "bot drives this session for another 300 s, so your step-over was not done"
    )
    assert "take over" in error["details"]["suggestion"]
    assert session.get().ok()["lease"]["holder"] == "bot"
    taken = ann.post("/lease", {"take_over": True, "ttl": 120}).ok()
    assert (taken["holder"], taken["front"]) == ("ann (human)", "editor")
    ann.step()
    assert moment(session.get().ok()["lease"]["expires_at"]) - time.time() > 90
    ann.delete("/lease").ok()
    bot.step()


def test_a_refused_act_takes_no_lease(session: Session) -> None:
    person(session).post("/restart", {"wait": 0}, headers={"If-Stop": "99"}).refused("STOP_CHANGED")
    person(session).post("/launch", {"code": "1"}).refused("INVALID_SESSION_STATE", 409)
    person(session, "x" * 41).post("/step-over").refused("INVALID_PARAMETER", 400)
    assert session.get().ok()["lease"] is None


def test_a_lease_belongs_to_whoever_has_its_key(session: Session) -> None:
    ann = person(session, X_Agent="ann", X_Lease_Key="of ann's editor")
    ann.step()
    lease = session.get().ok()["lease"]
    assert lease["key_id"] == hashlib.sha256(b"of ann's editor").hexdigest()[:8]
    # Anybody may send the name.
    for other in (
        person(session, X_Agent="ann"),
        person(session, X_Agent="ann", X_Lease_Key="a guess"),
        session.called(X_Agent="ann", X_Lease_Key="of ann's editor"),
    ):
        other.post("/step-over").refused("SESSION_LEASED", 423)
        other.post("/lease", {}).refused("SESSION_LEASED", 423)
        other.delete("/lease").refused("SESSION_LEASED", 423)
    session.called(X_Agent="ann (human)").post("/step-over").refused("INVALID_PARAMETER", 400)
    page = person(session, "page", X_Agent="ann", X_Lease_Key="of ann's page")
    error = page.post("/step-over").refused("SESSION_LEASED", 423)
    assert error["message"].startswith(
        "another front of ann (human) drives this session through editor for another "
    )
    ann.step()
    before = len(told(session))
    page.post("/lease", {"take_over": True}).ok()
    assert told(session)[before:] == [("ann (human)", "ann (human)", "ann (human)")]
    ann.post("/step-over").refused("SESSION_LEASED", 423)
    page.delete("/lease").ok()


def test_the_lease_of_an_ide_belongs_to_its_connection(session: Session) -> None:
    with Ide(session, "vscode") as ide:
        ide.join()
        thread, _ = ide.stopped()
        before = len(ide.messages)
        ide.ask("next", threadId=thread["threadId"])
        ide.stopped(after=before)  # a running program is refused before the lease is looked at
        # The relay may hear of it after the IDE has its answer.
        holder = eventually(lambda: (session.get().ok()["lease"] or {}).get("holder"))
        assert holder == "ide:vscode (human)"
        person(session, X_Agent="ide:vscode").post("/step-over").refused("SESSION_LEASED", 423)
        person(session, X_Agent="ide:vscode").delete("/lease").refused("SESSION_LEASED", 423)
        session.called(X_Agent=holder).post("/step-over").refused("INVALID_PARAMETER", 400)
    eventually(lambda: session.get().ok()["lease"] is None)
