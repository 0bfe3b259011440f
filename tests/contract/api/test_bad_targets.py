"""Targets, methods and headers that do not fit are refused or replaced, never guessed at."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from debug_relay.protocol.operations import OPERATIONS
from tests.kit.client import Client
from tests.kit.wire import Wire

UPGRADE = (
    "Upgrade: websocket",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version: 13",
)


@pytest.fixture
def wire(relay: Client) -> Wire:
    return Wire(relay)


def fields_of(error: dict[str, Any]) -> dict[str, str]:
    return {one["field"]: one["message"] for one in error["details"]["errors"]}


# -- paths, queries, methods


@pytest.mark.parametrize(
    "id",
    ["..", ".", "%2e%2e", "%2F", "a%2Fb", "%00", "sess_%0d%0aX", "%F0%9F%90%8D", "x" * 3000, "%25"],
)
def test_an_id_that_no_session_has(wire: Wire, id: str) -> None:
    answer = wire.ask(f"GET {wire.prefix}/sessions/{id}/status")
    assert len(answer.refused("SESSION_NOT_FOUND", 404)["message"]) < 300
    assert "X" not in answer.headers


@pytest.mark.parametrize("id", ["%", "%2", "%zz", "%ff", "%c3%28", "%ed%a0%80"])
def test_a_path_that_is_not_percent_encoded_utf_8(wire: Wire, id: str) -> None:
    wire.ask(f"GET {wire.prefix}/sessions/{id}/status").refused("INVALID_PARAMETER", 400)


@pytest.mark.parametrize("query", ["label=%ff%3D1", "label=%zz", "%ff=1", "limit=5%", "x=%c3%28"])
def test_a_query_that_is_not_percent_encoded_utf_8(wire: Wire, query: str) -> None:
    error = wire.ask(f"GET {wire.prefix}/sessions?{query}").refused("INVALID_PARAMETER", 400)
    assert "percent-encoded" in error["message"]


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("limit=1001", "1000"),
        ("limit=0", ">= 1"),
        ("limit=-5", ">= 1"),
        ("limit=1_0", "int"),
        ("limit=%201", "int"),
        ("limit=+1", "int"),
        ("limit=%D9%A1", "int"),
        ("limit=1.5", "int"),
        ("limit=true", "int"),
        ("limit=", "int"),
        ("limit=" + "9" * 5000, "int"),
        ("offset=-1", ">= 0"),
        ("status=Paused", "status"),
        ("label=x", "label"),
        ("limt=5", "did you mean limit?"),
        ("limit=1&limit=2", "twice"),
        ("LIMIT=1", "unknown"),
        ("limit[]=1", "unknown"),
    ],
    ids=lambda text: text[:20],
)
def test_parameters_that_do_not_fit(wire: Wire, query: str, told: str) -> None:
    answer = wire.ask(f"GET {wire.prefix}/sessions?{query}")
    assert told in answer.refused("INVALID_PARAMETER", 400)["message"]


def test_a_wait_that_does_not_fit(relay: Client) -> None:
    with relay.session() as session:
        for timeout in ("nan", "inf", "1e999", "301", "-1", "0x1", "1,5"):
            session.get("/events", timeout=timeout).refused("INVALID_PARAMETER", 400)


@pytest.mark.parametrize("method", ["DELETE", "PUT", "OPTIONS", "TRACE", "POST"])
def test_a_known_method_in_the_wrong_place(wire: Wire, method: str) -> None:
    answer = wire.ask(f"{method} {wire.prefix}/health")
    answer.refused("METHOD_NOT_ALLOWED", 405)
    assert answer.headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize("method", ["FOO", "get", "GET-", "M" * 9000, "PROPFIND2", "G\xe9T"])
def test_a_method_that_nobody_knows(wire: Wire, method: str) -> None:
    answer = wire.ask(f"{method} {wire.prefix}/health")
    assert answer.status in (400, 405)
    assert answer.body["error"]["details"]["suggestion"]


def test_head_is_get_without_the_body(wire: Wire) -> None:
    answer = wire.ask(f"HEAD {wire.prefix}/sessions")
    assert (answer.status, answer.raw) == (200, b"")
    assert int(answer.headers["Content-Length"]) > 100
    refused = wire.ask(f"HEAD {wire.prefix}/nothing")
    assert (refused.status, refused.raw) == (404, b"")


@pytest.mark.parametrize("target", ["*", "{host}", "ftp://{host}{prefix}/health"])
def test_targets_of_other_forms_lead_nowhere(wire: Wire, target: str) -> None:
    method = "CONNECT" if target == "{host}" else "OPTIONS" if target == "*" else "GET"
    told = wire.ask(f"{method} {target.format(host=wire.host, prefix=wire.prefix)}")
    error = told.refused("NOT_FOUND", 404)
    assert "/api/v1/" in error["details"]["suggestion"]


def test_an_absolute_target_of_a_foreign_name_creates_nothing(relay: Client, wire: Wire) -> None:
    for host in (wire.host, "evil.example"):
        answer = wire.ask(f"POST http://evil.example{wire.prefix}/sessions", body=b"{}", host=host)
        assert "evil.example" in answer.refused("FORBIDDEN_HOST", 403)["message"]
    assert relay.get("/sessions").ok()["total"] == 0


# -- headers


@pytest.mark.parametrize("given", ["abc", "a b", '"q" \\ {}', "%00", "x" * 200, "<script>"])
def test_a_request_id_comes_back(wire: Wire, given: str) -> None:
    answer = wire.ask(f"GET {wire.prefix}/health", f"X-Request-ID: {given}")
    answer.ok()
    assert answer.headers["X-Request-ID"] == answer.body["meta"]["request_id"] == given


@pytest.mark.parametrize("given", ["", "  ", "x" * 201, "a\tb", "\xff\xfe", "\xc3\xa9"], ids=ascii)
def test_an_odd_request_id_is_replaced(wire: Wire, given: str) -> None:
    answer = wire.ask(f"GET {wire.prefix}/health", f"X-Request-ID: {given}")
    answer.ok()
    made = answer.headers["X-Request-ID"]
    assert uuid.UUID(made).version == 4
    assert answer.body["meta"]["request_id"] == made


@pytest.mark.parametrize(
    ("given", "fits"),
    [("", True), ("a" * 100, True), ("\xc3\xa9", True), ("a" * 101, False), ("\xff", False)],
    ids=ascii,
)
def test_an_odd_agent(wire: Wire, given: str, fits: bool) -> None:
    answer = wire.ask(f"GET {wire.prefix}/sessions", f"X-Agent: {given}")
    if fits:
        answer.ok()
    else:
        assert fields_of(answer.refused("INVALID_PARAMETER", 400)).keys() == {"X-Agent"}


@pytest.mark.parametrize(
    "given", ["x", "-1", "", "1.0", "1e3", "9" * 17, "\xb2", "1, 2"], ids=ascii
)
def test_an_odd_if_stop(relay: Client, wire: Wire, given: str) -> None:
    with relay.session() as session:
        answer = wire.ask(f"POST {wire.prefix}/sessions/{session.id}/pause", f"If-Stop: {given}")
        assert fields_of(answer.refused("INVALID_PARAMETER", 400)).keys() == {"If-Stop"}


# -- WebSockets


@pytest.mark.parametrize(
    "name", [row.name for row in OPERATIONS.values() if row.kind == "websocket"]
)
def test_an_upgrade_passes_the_same_guard(relay: Client, wire: Wire, name: str) -> None:
    with relay.session() as session:
        line = f"GET {wire.prefix}" + OPERATIONS[name].path.format(session_id=session.id)
        wire.ask(line, *UPGRADE, host="evil.example").refused("FORBIDDEN_HOST", 403)
        for origin in ("null", "http://evil.example", "http://127.0.0.1:1", f"https://{wire.host}"):
            wire.ask(line, *UPGRADE, f"Origin: {origin}").refused("FORBIDDEN_ORIGIN", 403)


def test_an_upgrade_of_a_plain_call_is_ignored(wire: Wire) -> None:
    assert wire.ask(f"GET {wire.prefix}/health", *UPGRADE).ok()["status"] == "healthy"


def test_every_refusal_is_in_the_envelope(wire: Wire) -> None:
    for line in ("GET /", "GET /favicon.ico", "GET //", f"GET {wire.prefix}", "GET /%2e%2e/etc"):
        answer = wire.ask(line)
        assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
        json.loads(answer.raw)
