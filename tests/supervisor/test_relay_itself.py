"""What a relay says of itself, over HTTP: where to begin, and whether it is well."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable

import pytest

from debug_relay.protocol.version import API_PREFIX, VERSION
from tests.kit.client import Client
from tests.kit.relay import Relay, eventually
from tests.kit.source import Source


def root_of(client: Client) -> Client:
    return Client(client.url.removesuffix(API_PREFIX))


def called(line: str) -> str:
    """What the curl line prints."""
    return subprocess.run(shlex.split(line), capture_output=True, text=True, check=True).stdout


def test_the_index_says_where_to_begin(relay: Client) -> None:
    answer = root_of(relay).get("/")
    assert (answer.status, answer.headers["Content-Type"]) == (
        200,
        "application/json; charset=utf-8",
    )
    assert answer.body["version"] == VERSION
    links = {"health", "info", "list-sessions", "openapi", "docs", "llms", "mcp", "metrics"}
    assert set(answer.body["links"]) == links
    for name in links - {"mcp"}:  # which takes POST alone
        url = answer.body["links"][name]
        assert relay.get(url.removeprefix(relay.url)).status == 200
    for path in ("", "/"):
        assert relay.get(path).body == answer.body


def test_the_calls_of_the_index_work(relay: Client, source: Callable[..., Source]) -> None:
    index = root_of(relay).get("/")
    guide, *runs = index.body["try"]
    assert "POST /run" in called(guide)
    program = source("print('hello')\nx = 1")
    run, launch = (called(line.replace("/path/to/program.py", str(program))) for line in runs)
    assert "hello" in run
    assert "print('hello')" in launch
    as_text = root_of(relay).get("/", format="text").raw.decode()
    assert [line for line in index.body["try"] if line not in as_text] == []


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
