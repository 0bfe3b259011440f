"""`/mcp` is guarded as every path is, and each tool needs the scopes of its operations."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.kit.client import Answer, Client
from tests.kit.relay import Relay, eventually
from tests.kit.tokens import with_token
from tests.meta.documents import block


def send(
    client: Client, method: str, headers: dict[str, str] | None = None, **params: Any
) -> Answer:
    """One message, as curl would send it."""
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    accept = {"Accept": "application/json, text/event-stream"}
    return client.call("POST", "/mcp", message, {**accept, **(headers or {})})


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
    relay.call("POST", "/mcp", b"{", {"Accept": "*/*"}).refused("INVALID_REQUEST", 400)
    relay.call("POST", "/mcp", b"[" * 100_000).refused("INVALID_REQUEST", 400)
    long = {"jsonrpc": "2.0", "id": 1, "method": "x" * 300_000}
    relay.call("POST", "/mcp", long).refused("REQUEST_TOO_LARGE", 413)
    # Without the header that the protocol demands, as a person types it; where the guide says.
    written = json.loads(block("mcp-servers").splitlines()[0])["mcpServers"]["debug-relay"]["url"]
    root = Client(relay.url.removesuffix("/api/v1"))
    list_tools = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    bare = root.post(urlsplit(written).path, list_tools)
    assert "debug_start" in bare.raw.decode()


def test_without_the_extra_it_says_how_to_install_it(
    own_relay: Callable[..., Relay], tmp_path: Path
):
    (tmp_path / "lacking").mkdir()
    (tmp_path / "lacking" / "mcp_types.py").write_text("raise ImportError('no mcp_types here')")
    relay = own_relay(env={"PYTHONPATH": str(tmp_path / "lacking")})
    error = send(relay.client, "tools/list").refused("ATTACH_NO_DEBUGGER", 503)
    assert "pip install 'opencode-debug-relay[mcp]'" in error["details"]["suggestion"]
    relay.client.get("/sessions").ok()


def waiting(client: Client) -> socket.socket:
    """A connection on which a tool waits for the next stop."""
    body = json.dumps(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "debug_wait", "arguments": {"wait": 45}},
        }
    )
    sock = socket.create_connection((client.host, client.port), 20)
    head = (
        f"POST {client.prefix}/mcp HTTP/1.1\r\nHost: {client.host}\r\nContent-Length: {len(body)}"
    )
    sock.sendall(f"{head}\r\nContent-Type: application/json\r\n\r\n{body}".encode())
    return sock


def test_a_client_that_leaves_and_a_relay_that_stops(own_relay: Callable[..., Relay]):
    relay = own_relay()
    client = relay.client
    started = call(client, "debug_start", code="while True: pass", wait=0)
    assert started[0] is False, started
    refused = call(client, "debug_inspect", what="variables")
    id = client.get("/sessions").ok()["items"][0]["session_id"]
    assert refused == (True, block("mcp-refusal").replace("sess_1a2b3c4d", id).strip())
    client.post(f"/sessions/{id}/lease", {"ttl": 600}, headers={"X-Agent": "ann"}).ok()
    failed, leased = call(client, "debug_control", action="pause")
    assert failed
    assert f"acts. debug_wait session={id} waits for the next stop.\n" in leased
    sockets = [waiting(client) for _ in range(5)]
    eventually(lambda: relay.calls() == 5, what="they wait")
    for sock in sockets[1:]:
        sock.close()
    eventually(lambda: relay.calls() == 1, what="their connections are gone")
    assert call(client, "debug_list", what="sessions")[0] is False
    # One still waits: its session ends, then its connection, then the relay.
    assert relay.stop() == 0
    with sockets[0] as sock:
        while sock.recv(65536):
            pass
    assert "Traceback" not in relay.stderr()
