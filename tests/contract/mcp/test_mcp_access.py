"""`/mcp` is guarded as every path is, and each tool needs the scopes of its operations."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.client import Answer, Client
from tests.kit.relay import Relay
from tests.kit.tokens import with_token

pytest.importorskip("mcp", reason="the extra [mcp] is not installed")


def send(
    client: Client, method: str, headers: dict[str, str] | None = None, **params: Any
) -> Answer:
    """One message, as curl would send it."""
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    accept = {"Accept": "application/json, text/event-stream"}
    return client.call("POST", "/mcp", message, {**accept, **(headers or {})}, is_text=False)


def call(client: Client, tool: str, **arguments: Any) -> tuple[bool, str]:
    """Whether the tool failed, and what it said."""
    answer = send(client, "tools/call", name=tool, arguments=arguments)
    assert answer.status == 200, answer.raw
    text = answer.raw.decode()
    if answer.headers["Content-Type"].startswith("text/event-stream"):
        text = text.partition("data: ")[2].partition("\r\n")[0]
    result = json.loads(text)["result"]
    return bool(result.get("isError")), result["content"][0]["text"]


def test_tokens_and_scopes_hold(own_relay: Callable[..., Relay]):
    relay = own_relay()
    reader = with_token(relay, "--name", "reader", "--scope", "sessions:read")
    writer = with_token(relay, "--name", "writer", "--scope", "sessions:read,sessions:write")
    artifacts = with_token(relay, "--name", "artifacts", "--scope", "artifacts:read")
    send(relay.client, "tools/list").refused("UNAUTHENTICATED", 401)
    send(artifacts, "tools/list").refused("INSUFFICIENT_SCOPE", 403)
    assert call(reader, "debug_list", what="sessions") == (False, "no sessions")
    for tool, arguments, scope in (
        ("debug_run", {"code": "1"}, "sessions:write"),
        ("debug_start", {"code": "1"}, "sessions:write"),
        ("debug_list", {"what": "processes"}, "processes:attach"),
    ):
        failed, text = call(reader, tool, **arguments)
        assert failed
        assert scope in text
    failed, text = call(writer, "debug_start", code="x = 1\ny = 2", stop_on_entry=True)
    assert not failed, text
    assert "→ 1  x = 1" in text
    # The same session, through the same operations, as far as the scopes go.
    assert "entry" in call(reader, "debug_inspect", what="stop")[1]
    failed, text = call(reader, "debug_evaluate", expression="1")
    assert failed
    assert "sessions:write" in text
    failed, text = call(writer, "debug_inspect", what="output")
    assert failed
    assert "artifacts:read" in text
    assert call(writer, "debug_end")[0] is False


def test_hosts_origins_and_verbs(relay: Client):
    send(relay, "tools/list", {"Host": "evil.example"}).refused("FORBIDDEN_HOST", 403)
    send(relay, "tools/list", {"Origin": "http://evil.example"}).refused("FORBIDDEN_ORIGIN", 403)
    assert relay.get("/mcp").refused("METHOD_NOT_ALLOWED", 405)["details"]["allow"] == ["POST"]
    answer = relay.call("POST", "/mcp", b"{", {"Accept": "*/*"}, is_text=False)
    assert json.loads(answer.raw)["error"]["code"] == -32700


def test_without_the_extra_it_says_how_to_install_it(
    own_relay: Callable[..., Relay], tmp_path: Path
):
    (tmp_path / "lacking").mkdir()
    (tmp_path / "lacking" / "mcp_types.py").write_text("raise ImportError('no mcp_types here')")
    relay = own_relay(env={"PYTHONPATH": str(tmp_path / "lacking")})
    error = send(relay.client, "tools/list").refused("NOT_IMPLEMENTED", 501)
    assert "pip install 'opencode-debug-relay[mcp]'" in error["details"]["suggestion"]
    relay.client.get("/sessions").ok()
