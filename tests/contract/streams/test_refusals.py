"""Nobody reads a stream who may not: at every door, before any data."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from tests.kit.client import Session
from tests.kit.relay import Relay
from tests.kit.source import Source
from tests.kit.streams import all_of, connect, curl, needs_curl, received
from tests.kit.tokens import new_token, token_command
from tests.kit.wire import Wire

EVENTS, OUTPUT, LOGS, DEBUG = "/events/stream", "/output/stream", "/logs", "/debug"


@pytest.fixture
def guarded(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> tuple[Relay, Session]:
    """A relay that needs tokens, and a program that has printed."""
    relay = own_relay()
    token = new_token(relay, "--scope", "admin", "--name", "boss")
    session = relay.client.called(Authorization=f"Bearer {token}").session()
    session.launch(source("print('c4nary')"))
    return relay, session


def test_an_unknown_session_is_no_stream(guarded: tuple[Relay, Session]) -> None:
    _, session = guarded
    wire = Wire(session.client)
    good = f"Authorization: {session.client.headers['Authorization']}"
    for prefix, path in product(("/api/v1", ""), (EVENTS, OUTPUT)):
        wire.ask(f"GET {prefix}/sessions/sess_none{path}", good).refused("SESSION_NOT_FOUND", 404)
    # Before the upgrade a refusal has the form that is asked for, as every other.
    for path in (EVENTS, LOGS):
        answer = session.client.get(f"/sessions/sess_none{path}", format="text")
        assert answer.headers["Content-Type"].startswith("text/plain")
        assert answer.raw.startswith(b"error ")
    for prefix, path in product(("/api/v1", ""), (LOGS, DEBUG)):
        with connect(Session(session.client, "sess_none"), path, prefix=prefix) as socket:
            messages, code, reason = all_of(socket)
        assert (messages, code, reason.partition(":")[0]) == ([], 1008, "SESSION_NOT_FOUND")


@needs_curl
def test_a_revoked_token_ends_its_streams(guarded: tuple[Relay, Session]) -> None:
    relay, session = guarded
    token = new_token(relay, "--scope", "admin", "--name", "short")
    theirs = session.called(Authorization=f"Bearer {token}")
    with (
        connect(theirs, LOGS) as logs,
        connect(theirs, DEBUG) as debug,
        curl(theirs, EVENTS, "-H", f"Authorization: Bearer {token}") as events,
    ):
        assert received(logs)["text"] == "c4nary\n"
        events.until("terminated")
        token_command("revoke", "short", "--data-dir", str(relay.data_dir))
        session.post("/restart", {"wait": 0}).ok()
        assert all_of(logs) == (
            [],
            1008,
            "UNAUTHENTICATED: The token is unknown, or it has been revoked.",
        )
        assert all_of(debug)[:2] == ([], 1008)
        [*_, end] = events.rest()
        assert (end.event, end.data["reason"]) == ("end", "refused")


def test_what_a_socket_may_send(guarded: tuple[Relay, Session]) -> None:
    """Its commands need their own scopes, and none gets more than its bound."""
    relay, session = guarded
    token = new_token(relay, "--scope", "sessions:write", "--scope", "sessions:read")
    theirs = session.called(Authorization=f"Bearer {token}")
    with connect(theirs, DEBUG) as debug:
        for number, (command, code) in enumerate(
            (
                ('{"action": "list-breakpoints"}', None),
                ('{"action": "output"}', "INSUFFICIENT_SCOPE"),
                ('{"action": "shutdown"}', "INSUFFICIENT_SCOPE"),
                ('{"action": "step", "arguments": {"session_id": "sess_none"}}', "INVALID_REQUEST"),
                ('{"action": "evaluate", "arguments": {"expresion": "1"}}', "INVALID_REQUEST"),
                ('{"action": "stepp"}', "NOT_FOUND"),
                ('{"action": "logs"}', "NOT_FOUND"),
                ('{"action": 1, "id": 8}', "INVALID_REQUEST"),
                ('{"no": "action", "id": 9}', "INVALID_REQUEST"),
                ('{"action": "step", "id": 10, "if_stop": "3"}', "INVALID_REQUEST"),
                ("[" * 1000, "INVALID_REQUEST"),
                ("nonsense", "INVALID_REQUEST"),
                ("", "INVALID_REQUEST"),
            )
        ):
            debug.send(command)
            answer = received(debug)
            while answer["kind"] != "result":
                answer = received(debug)
            error = answer["payload"]["error"]
            assert (error and error["code"]) == code, (number, answer)
            assert code is None or error["details"]["suggestion"]
            assert answer.get("id") == (number + 1 if '"id"' in command else None)
        # Programs of others may print what this caller may not read.
        session.post("/restart", {"wait": 20}).ok()
        told = [received(debug)]
        while told[-1]["event"] != "terminated":
            told.append(received(debug))
        [printed] = [one["payload"] for one in told if one["event"] == "output"]
        assert (printed["output"], "artifacts:read" in printed["note"]) == ("", True)
        debug.send('{"action": "' + "x" * 300_000 + '"}')
        assert all_of(debug)[1] == 1009
    with connect(session, LOGS) as logs:
        logs.send("hello")  # is ignored
        assert received(logs)["text"] == "c4nary\n"
