"""Where a session is joined: who is told, who is let in, and what programs know of it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.kit.client import Client, Session
from tests.kit.intruder import NOBODY
from tests.kit.relay import Relay
from tests.kit.source import Source
from tests.kit.tokens import with_token

ENVIRONMENT = """
    import os
    uri, token = os.environ.get("DEBUG_SESSION_URI"), os.environ.get("DEBUG_SESSION_TOKEN")
    print(uri, token)  # @line
"""


def connected(session: Session, uid: int = -1) -> socket.socket:
    """A connection to the session's port, of this user."""
    uri = urlsplit(session.get().ok()["debugger"]["uri"])
    assert uri.scheme == "tcp"
    if uid >= 0:
        os.seteuid(uid)
    try:
        peer = socket.socket()
    finally:
        os.seteuid(os.getuid())
    peer.settimeout(10)
    peer.connect((uri.hostname, uri.port))
    return peer


def test_programs_know_where(relay: Client, source: Callable[..., Source]) -> None:
    program = source(ENVIRONMENT)
    with relay.session() as session:
        created = session.get().ok()["debugger"]
        assert created["adapter"] == "debugpy"
        assert len(created["token"]) > 40
        session.break_at(program, program["line"])
        session.launch(program)
        assert session.value("uri") == repr(created["uri"])
        assert session.value("token") == repr(created["token"])
        session.resume()
        # A caller may leave them out.
        without = {"DEBUG_SESSION_URI": None, "DEBUG_SESSION_TOKEN": None}
        session.post("/restart", {"env": without, "wait": 20}).ok()
        assert session.value("[uri, token]") == "[None, None]"
        assert session.get().ok()["program"]["env"] == without


def test_the_token_is_shown_to_drivers_alone(
    own_relay: Callable[..., Relay], tmp_path: Path
) -> None:
    relay = own_relay()
    reader = with_token(relay, "--name", "reader", "--scope", "sessions:read")
    driver = with_token(relay, "--name", "driver", "--scope", "sessions:read,sessions:write")
    keyed = {"Idempotency-Key": "once"}
    created = driver.post("/sessions", {}, headers=keyed).ok(201)
    shown = driver.get(f"/sessions/{created['session_id']}").ok()["debugger"]
    assert created["debugger"] == {**shown, "token": None}
    hidden = reader.get(f"/sessions/{created['session_id']}").ok()["debugger"]
    assert hidden == created["debugger"]
    for folder in (relay.data_dir, relay.run_dir):
        for file in folder.rglob("*"):
            if file.is_file():
                assert shown["token"].encode() not in file.read_bytes(), file
    assert shown["token"] not in relay.stderr()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a second user")
def test_no_other_user_is_let_in(relay: Client, shared_relay: Relay) -> None:
    with relay.session() as session:
        for _ in range(3):
            with connected(session, NOBODY) as peer:
                assert peer.recv(1) == b""
        log = shared_relay.run_dir / session.id / "worker.log"
        assert log.read_text().count("join.refused") == 1
