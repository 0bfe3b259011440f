"""Nobody reads a stream who may not: at every door, before any data."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from itertools import product

import pytest

from tests.kit.client import Session
from tests.kit.relay import Relay
from tests.kit.source import Source
from tests.kit.streams import all_of, connect, curl, needs_curl, received
from tests.kit.tokens import new_token, token_command
from tests.kit.wire import Wire, parsed

NOBODY = 65534
SECRET = b"c4nary"
UPGRADE = (
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version: 13",
)
EVENTS, OUTPUT, LOGS, DEBUG = "/events/stream", "/output/stream", "/logs", "/debug"
DOORS = [
    (prefix, path, UPGRADE if path in (LOGS, DEBUG) else ())
    for prefix, path in product(("/api/v1", ""), (EVENTS, OUTPUT, LOGS, DEBUG))
]
LACKING = {
    EVENTS: ["artifacts:read", "sessions:write", "processes:attach"],
    OUTPUT: ["sessions:read", "sessions:write", "processes:attach"],
    LOGS: ["sessions:read", "artifacts:read", "sessions:write"],
    DEBUG: ["sessions:read", "artifacts:read", "processes:attach"],
}


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


def closed_at_once(raw: bytes) -> int:
    """The close code that is the first frame behind the upgrade."""
    head, _, frames = raw.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101"), head
    assert frames[0] == 0x88, frames
    return int.from_bytes(frames[2:4], "big")


def refused(wire: Wire, session: str, door: tuple[str, str, tuple[str, ...]], *bad: str) -> int:
    """HTTP's status, or the close code. `bad` are headers."""
    prefix, path, upgrade = door
    host = next((line[6:] for line in bad if line.startswith("Host: ")), None)
    headers = [line for line in bad if not line.startswith("Host: ")]
    sent = wire.request(
        f"GET {prefix}/sessions/{session}{path}", *upgrade, *headers, host=host
    ).replace(b"Connection: close\r\n", b"" if upgrade else b"Connection: close\r\n")
    # The answer to a close frame is sent ahead, so that the relay need not wait for it.
    raw = wire.exchange(sent + (b"\x88\x80\0\0\0\0" if upgrade else b""))
    assert SECRET not in raw
    assert b"data: " not in raw
    return parsed(raw).status if not raw.startswith(b"HTTP/1.1 101") else closed_at_once(raw)


def test_every_door_refuses(guarded: tuple[Relay, Session]) -> None:
    relay, session = guarded
    wire = Wire(session.client)
    good = f"Authorization: {session.client.headers['Authorization']}"
    revoked = new_token(relay, "--scope", "admin", "--name", "gone")
    token_command("revoke", "gone", "--data-dir", str(relay.data_dir))
    scopes = {scope for lacking in LACKING.values() for scope in lacking}
    weak = {
        scope: f"Authorization: Bearer {new_token(relay, '--scope', scope)}" for scope in scopes
    }
    at_the_door = [
        [good, "Host: evil.example"],
        [good, f"Host: localhost6:{session.client.port}"],
        [good, "Origin: http://evil.example"],
        [good, "Origin: null"],
        [good, "Origin: http://localhost:1"],
        [good, "Sec-Fetch-Site: cross-site"],
    ]
    without_token = [
        [],
        ["Authorization: Bearer nonsense"],
        ["Authorization: Basic Ym9zczpib3Nz"],
        [f"Authorization: Bearer {revoked}"],
        [good, good],
    ]
    tried = 0
    for door in DOORS:
        is_socket = bool(door[2])
        for bad in at_the_door:
            assert refused(wire, session.id, door, *bad) == 403
        for bad in without_token:
            assert refused(wire, session.id, door, *bad) == (1008 if is_socket else 401)
        for scope in LACKING[door[1]]:
            code = refused(wire, session.id, door, weak[scope])
            assert code == (1008 if is_socket else 403), (door, scope)
        assert refused(wire, "sess_none", door, good) == (1008 if is_socket else 404)
        tried += len(at_the_door) + len(without_token) + len(LACKING[door[1]]) + 1
        if os.geteuid() == 0:
            url = f"http://{wire.host}{door[0]}/sessions/{session.id}{door[1]}"
            headers = [word for line in (good, *door[2]) for word in ("-H", line)]
            stranger = ["curl", "-sSN", "--http1.1", "-m", "10", *headers, url]
            done = subprocess.run(stranger, user=NOBODY, cwd="/", capture_output=True, check=False)
            assert (done.stdout, done.returncode != 0) == (b"", True)
            tried += 1
    print(f"{tried} attacks on {len(DOORS)} doors, accepted 0")


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
                ('{"action": 1}', "INVALID_REQUEST"),
                ('{"no": "action"}', "INVALID_REQUEST"),
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
