"""What a relay says of itself, over HTTP: where to begin, and whether it is well."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable

import pytest

from debug_relay.protocol.version import API_PREFIX, VERSION
from tests.kit.client import Client
from tests.kit.relay import Relay, eventually
from tests.kit.source import Source


def root_of(client: Client) -> Client:
    return Client(client.url.removesuffix(API_PREFIX))


def called(client: Client, line: str) -> object:
    """The curl line, made as a call."""
    words = shlex.split(line)
    assert words[:2] == ["curl", "-s"]
    assert words[2].startswith(client.url)
    path = words[2].removeprefix(client.url)
    if len(words) == 3:
        return client.get(path).ok()
    header, kind, data, body = words[3:]
    assert (header, kind, data) == ("-H", "Content-Type: application/json", "-d")
    answer = client.post(path, json.loads(body))
    return answer.ok(answer.status)


def test_the_index_says_where_to_begin(relay: Client) -> None:
    answer = root_of(relay).get("/")
    assert (answer.status, answer.headers["Content-Type"]) == (
        200,
        "application/json; charset=utf-8",
    )
    assert answer.body["version"] == VERSION
    links = {"health", "info", "list-sessions", "openapi", "docs", "metrics"}
    assert set(answer.body["links"]) == links
    for url in answer.body["links"].values():
        assert relay.get(url.removeprefix(relay.url)).status == 200
    for path in ("", "/"):
        assert relay.get(path).body == answer.body


def test_the_calls_of_the_index_work(relay: Client, source: Callable[..., Source]) -> None:
    create, launch, look = root_of(relay).get("/").body["try"]
    id = called(relay, create)["session_id"]
    launch = launch.replace("ID", id).replace("/path/to/program.py", str(source("x = 1")))
    assert called(relay, launch)["status"] == "paused"
    assert called(relay, look.replace("ID", id))["frames"][0]["line"] == 1


def test_a_relay_whose_lock_was_taken_away_is_not_well(own_relay: Callable[..., Relay]) -> None:
    relay = own_relay()
    assert relay.client.get("/health").ok()["status"] == "healthy"
    (relay.data_dir / "relay.lock").unlink()
    health = relay.client.get("/health").ok(503)
    assert health["status"] == "unhealthy"
    assert "lock" in health["warnings"][0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only a relay of root's says so")
def test_a_relay_of_roots_says_so(own_relay: Callable[..., Relay]) -> None:
    relay = own_relay()
    assert relay.client.get("/info").ok()["runs_as_root"] is True
    eventually(lambda: "relay.root" in relay.stderr())
