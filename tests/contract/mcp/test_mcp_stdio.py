"""`debug-relay mcp`: eras of the protocol, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kit.stdio_ide import Ide

pytest.importorskip("mcp", reason="the extra [mcp] is not installed")

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
        super().__init__(*flags, word="mcp")
        self.id = 0

    def ask_for(self, method: str, **params: Any) -> dict[str, Any]:
        """The whole answer to a request; notifications are passed over."""
        self.id += 1
        message = {"jsonrpc": "2.0", "id": self.id, "method": method, "params": params}
        self.write(json.dumps(message).encode() + b"\n")
        while True:
            answer = json.loads(self._events.get(timeout=40) or "")
            if answer.get("id") == self.id:
                return dict(answer)


@pytest.mark.parametrize("end", ["input", "SIGKILL"])
def test_a_handshake_and_an_end_that_leaves_nothing(end: str):
    with Speaker() as client:
        # Some clients ask this first, and insist on just this refusal before they shake hands.
        assert client.ask_for("server/discover", **DISCOVER)["error"]["code"] == -32601
        hello = client.ask_for("initialize", **HELLO)["result"]
        assert hello["protocolVersion"] == "2025-06-18"
        assert "debug_start" in hello["instructions"]
        client.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        arguments = {"code": "while True: pass", "wait": 0}
        answer = client.ask_for("tools/call", name="debug_start", arguments=arguments)
        assert "running" in answer["result"]["content"][0]["text"]
        if end == "SIGKILL":
            client.process.kill()
    assert client.process.returncode == (-9 if end == "SIGKILL" else 0)


def test_both_eras_are_served_when_they_are_asked_for():
    with Speaker("--era", "auto") as client:
        found = client.ask_for("server/discover", **DISCOVER)
        assert "2026-07-28" in found["result"]["supportedVersions"]


def test_without_the_extra_it_says_how_to_install_it(tmp_path: Path):
    (tmp_path / "mcp.py").write_text("raise ImportError('no mcp here')")
    done = subprocess.run(
        [sys.executable, "-m", "debug_relay.supervisor", "mcp"],
        env={"PYTHONPATH": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "pip install 'opencode-debug-relay[mcp]'" in done.stderr
    assert "Traceback" not in done.stderr
