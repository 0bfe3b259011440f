"""Calls that come to nothing: waits on a deleted session, foreign cursors, the wrong state."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.kit.client import Answer, Client
from tests.kit.relay import Relay, eventually
from tests.kit.source import Source

STUBBORN = """
    import signal, time

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("ready", flush=True)
    while True:
        time.sleep(0.05)  # @asleep
"""
PROGRAM = """
    x = 1
    y = 2  # @here
"""
WAITS: dict[str, Callable[[Client, str], Answer]] = {
    "events": lambda client, path: client.get(path + "/events", timeout=30, types="terminated"),
    "continue": lambda client, path: client.post(path + "/continue", {"wait": 30}),
    "evaluate": lambda client, path: client.post(
        path + "/evaluate", {"expression": "time.sleep(20)", "timeout": 30}
    ),
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_a_wait_ends_at_once_when_its_session_is_deleted(
    shared_relay: Relay, relay: Client, source: Callable[..., Source], wait: Callable[..., Answer]
) -> None:
    program = source(STUBBORN)
    with relay.session() as session, ThreadPoolExecutor(2) as pool:
        session.break_at(program, program["asleep"])
        assert session.launch(program)["status"] == "paused"
        session.delete("/breakpoints").ok()
        eventually(lambda: shared_relay.calls() == 0)
        waiting = pool.submit(wait, relay, f"/sessions/{session.id}")
        eventually(lambda: shared_relay.calls() > 0, what="the wait has begun")
        # The program does not care for SIGTERM: its end takes two seconds.
        started = time.monotonic()
        deleting = pool.submit(session.delete)
        waiting.result(20).refused("SESSION_NOT_FOUND", 404)
        assert time.monotonic() - started < 1.5
        deleting.result(20).ok()


def test_news_of_its_end_are_no_answer_for_a_deleted_session(
    shared_relay: Relay, relay: Client, source: Callable[..., Source]
) -> None:
    session = relay.session()
    session.launch(source(STUBBORN), wait=0)
    with ThreadPoolExecutor(1) as pool:
        eventually(lambda: shared_relay.calls() == 0)
        waiting = pool.submit(session.get, "/events", types="terminated", timeout=30)
        eventually(lambda: shared_relay.calls() > 0, what="the wait has begun")
        session.delete(force="true").ok()
        waiting.result(20).refused("SESSION_NOT_FOUND", 404)


def test_a_wait_ends_when_the_relay_stops(own_relay: Callable[..., Relay]) -> None:
    relay = own_relay()
    session = relay.client.session()
    cursor = session.get("/events").ok()["next_cursor"]
    with ThreadPoolExecutor(1) as pool:
        eventually(lambda: relay.calls() == 0)
        waiting = pool.submit(session.get, "/events", cursor=cursor, types="thread", timeout=30)
        eventually(lambda: relay.calls() > 0, what="the wait has begun")
        relay.client.post("/shutdown", {"keep_sessions": True}).ok()
        answer = waiting.result(20)
        answer.refused("SHUTTING_DOWN", 503)
        assert answer.headers["Retry-After"]
    relay.wait()


def test_a_cursor_is_good_for_its_session_and_endpoint_only(
    relay: Client, source: Callable[..., Source]
) -> None:
    with relay.session() as session, relay.session() as other:
        for one in (session, other):
            one.launch(source("print('a')\n"))
        cursors = {
            (one.id, path): one.get(path).ok()["next_cursor"]
            for one in (session, other)
            for path in ("/output", "/events")
        }
        for (id, path), cursor in cursors.items():
            if (id, path) == (session.id, "/output"):
                assert session.get("/output", cursor=cursor).ok()["entries"] == []
                continue
            error = session.get("/output", cursor=cursor).refused("INVALID_PARAMETER", 400)
            assert (
                f"belongs to another session or endpoint, not to the output of {session.id}"
                in (error["message"])
            )


def test_every_label_can_be_found(relay: Client) -> None:
    labels = {"team": "search", "empty": "", "formula": "a=b", "lines": "a\nb", " ": "blank"}
    with relay.session(labels=labels) as session, relay.session():
        for key, value in labels.items():
            found = relay.get("/sessions", label=f"{key}={value}").ok()
            assert [item["session_id"] for item in found["items"]] == [session.id]
        relay.get("/sessions", label="team").refused("INVALID_PARAMETER", 400)
        relay.get("/sessions", label="=x").refused("INVALID_PARAMETER", 400)


def test_pause_of_what_is_paused_and_the_stack_of_what_runs(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source(STUBBORN)
    with relay.session() as session:
        session.launch(program, wait=0)
        error = session.get("/stacktrace").refused("INVALID_SESSION_STATE", 409)
        assert error["details"]["required_state"] == "paused"
        assert f"POST /api/v1/sessions/{session.id}/pause" in error["details"]["suggestion"]
        waits = f"GET /api/v1/sessions/{session.id}/snapshot?wait=30"
        assert waits in error["details"]["suggestion"]
        for verb in ("GET", "POST"):
            lost = session.client.call(verb, f"/sessions/{session.id}/wait")
            assert waits in lost.refused("NOT_FOUND", 404)["details"]["suggestion"]
        session.post("/pause").ok()
        error = session.post("/pause").refused("INVALID_SESSION_STATE", 409)
        assert (error["details"]["current_state"], error["details"]["required_state"]) == (
            "paused",
            "running",
        )
        assert f"GET /api/v1/sessions/{session.id}/stacktrace" in error["details"]["suggestion"]
        assert session.get("/stacktrace").ok()["frames"][0]["source"]["path"] == str(program)


@pytest.fixture
def foreign_port() -> Iterator[int]:
    """Where something else listens: it answers every connection with its own greeting."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            with server.accept()[0] as there:
                there.sendall(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
                there.recv(65536)

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(5)


def test_attach_to_a_port_where_no_debugger_listens(relay: Client, foreign_port: int) -> None:
    with relay.session() as session:
        error = session.post("/attach", {"port": foreign_port}).refused("ATTACH_REFUSED", 502)
        assert "not debugpy" in error["message"]
        assert "another" not in error["details"]["suggestion"]
        assert session.status()["status"] == "created"


def test_a_launch_in_a_terminal_speaks_of_the_console(relay: Client) -> None:
    with relay.session() as session:
        body = {"code": "1", "console": "externalTerminal"}
        error = session.post("/launch", body).refused("INVALID_REQUEST", 400)
        assert error["details"]["errors"][0]["field"] == "console"


def test_what_turns_stops_at_exceptions_off_is_told(relay: Client) -> None:
    with relay.session() as session:
        error = session.try_launch(code="pass", stop_on_exception="never").refused(
            "INVALID_REQUEST", 400
        )
    (wrong,) = error["details"]["errors"]
    assert wrong["field"] == "stop_on_exception"
    assert wrong["message"].endswith("accepted: true, false, uncaught, raised")
