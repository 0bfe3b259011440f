"""`debug-relay mcp`: eras of the protocol, and how it ends."""

from __future__ import annotations

import json
import signal
import time
from typing import Any

import pytest

from tests.kit.stdio_ide import Ide
from tests.meta.documents import block

DISCOVER = {
    "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
}
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


class Speaker(Ide):
    """A client that writes messages as it likes."""

    def __init__(self, *flags: str) -> None:
        servers = map(json.loads, block("mcp-servers").splitlines())
        [server] = [one for s in servers if "args" in (one := s["mcpServers"]["debug-relay"])]
        super().__init__(*server["args"][1:], *flags, word=server["args"][0])
        self.id = 0

    def ask_for(self, method: str, **params: Any) -> dict[str, Any]:
        """The whole answer to a request; notifications are passed over."""
        id = self.begin(method, **params)
        while True:
            answer = json.loads(self._events.get(timeout=40) or "")
            if answer.get("id") == id:
                return dict(answer)

    def begin(self, method: str, **params: Any) -> int:
        """Sends a request; returns its id."""
        self.id += 1
        self.tell(method, id=self.id, params=params)
        return self.id

    def tell(self, method: str, **more: Any) -> None:
        message = {"jsonrpc": "2.0", "method": method, **more}
        self.write(json.dumps(message).encode() + b"\n")


@pytest.mark.parametrize("end", ["input", "SIGKILL"])
def test_a_handshake_and_an_end_that_leaves_nothing(end: str):
    with Speaker() as client:
        # Some clients ask this first, and insist on just this refusal before they shake hands.
        assert client.ask_for("server/discover", **DISCOVER)["error"]["code"] == -32601
        hello = client.ask_for("initialize", **HELLO)["result"]
        assert hello["protocolVersion"] == "2025-06-18"
        assert "debug_start" in hello["instructions"]
        client.tell("notifications/initialized")
        for noise in (b"no JSON\n", b"[]\n", b"\xff\n", b'{"jsonrpc": "2.0", "id": 0}\n'):
            client.write(noise)
        arguments = {"code": "while True: pass", "wait": 0}
        answer = client.ask_for("tools/call", name="debug_start", arguments=arguments)
        assert "running" in answer["result"]["content"][0]["text"]
        # Calls that are cancelled, and many that wait, keep nobody from calling.
        waits = [client.begin("tools/call", name="debug_wait", arguments={}) for _ in range(20)]
        for id in waits[:10]:
            client.tell("notifications/cancelled", params={"requestId": id})
        began = time.monotonic()
        client.ask_for("tools/call", name="debug_list", arguments={"what": "sessions"})
        if end == "input":  # which nothing that waits delays
            assert client.process.stdin is not None
            client.process.stdin.close()
            client.process.wait(20)
            assert time.monotonic() - began < 20
        if end == "SIGKILL":
            client.process.kill()
    assert client.process.returncode == (-9 if end == "SIGKILL" else 0)


def test_both_eras_are_served_when_they_are_asked_for():
    with Speaker("--era", "auto") as client:
        found = client.ask_for("server/discover", **DISCOVER)
        assert "2026-07-28" in found["result"]["supportedVersions"]
        client.process.send_signal(signal.SIGINT)
        assert client.process.wait(20) == -signal.SIGINT
