"""The protocol's own judge, where it does not ask for tools and prompts of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.kit.client import Client
from tests.meta.documents import ROOT

MODULES = ROOT / ".ci" / "node" / "node_modules"  # `.ci/run` installs them
NODE = MODULES / "node" / "bin" / "node"
JUDGE = MODULES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
SCENARIOS = [
    "server-initialize",
    "ping",
    "tools-list",
    "dns-rebinding-protection",
]


@pytest.mark.skipif(
    not (NODE.exists() and JUDGE.exists()),
    reason="npm install --prefix .ci/node @modelcontextprotocol/conformance node@22",
)
def test_the_judge_of_the_protocol(relay: Client, tmp_path: Path):
    command = [str(NODE), str(JUDGE), "server", "--url", f"{relay.url}/mcp"]
    for scenario in SCENARIOS:
        done = subprocess.run(
            [*command, "--scenario", scenario],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "0 failed" in done.stdout, done.stdout
