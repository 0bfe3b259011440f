"""The examples in the help of the commands do what they say."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from debug_relay.supervisor.cli.main import WORDS, command_module
from tests.kit.client import Client
from tests.kit.command import SECONDS, Shell
from tests.kit.running import Running

LOOPING = """\
def total(prices):
    amount = 0
    for price in prices:
        amount += price
    return amount
import os
for turn in range(int(os.environ.get("TURNS", 10**9))):
    total([5, -3, 4])
"""
# In the order in which they fit one session.
ORDER = [
    "ps", "launch", "sessions", "status", "where", "locals", "eval", "next", "step", "out",
    "continue", "break", "pause", "wait", "events", "logs", "call", "attach", "rm", "run", "config",
    "token", "openapi", "doctor", "skill", "completion",
]  # fmt: skip
# These go on until they are ended; `serve` is started below, the fronts have tests of their own.
ENDLESS = {"serve", "stdio", "mcp", "tunnel"}


def test_examples(shell: Shell, relay: Client, start: Callable[..., Running]):
    assert set(WORDS) - ENDLESS == set(ORDER), "say where the new command fits"
    (shell.folder / "shop.py").write_text(LOOPING)
    running = start('import time; print("up", flush=True); time.sleep(600)')
    env = {
        **shell.env,
        "TURNS": "2",
        "PATH": os.pathsep.join([f"{sys.prefix}/bin", os.environ["PATH"]]),
    }
    for word in ORDER:
        if word == "pause":
            (item,) = relay.get("/sessions", status="paused").ok()["items"]
            relay.post(f"/sessions/{item['session_id']}/continue", {"wait": 0}).ok()
        script = command_module(word).COMMANDS[word].example
        script = script.replace("4242", str(running.pid))
        # Native programs need a debug server of their own: tests/contract/native tries those.
        script = "\n".join(line for line in script.splitlines() if "--adapter" not in line)
        done = subprocess.run(
            ["bash", "-eu", "-c", script],
            cwd=shell.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        assert done.stdout, script


def test_example_of_serve(tmp_path: Path):
    example = command_module("serve").COMMANDS["serve"].example
    argv = example.replace("/tmp/relay", str(tmp_path / "relay")).split()[1:]
    process = Shell(tmp_path).start(*argv)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("debug-relay listening on http://127.0.0.1:")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 0
