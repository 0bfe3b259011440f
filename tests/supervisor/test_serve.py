"""`debug-relay serve` as a process: how it starts, who it tells, and how it stops."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from debug_relay.protocol.version import VERSION
from tests.kit.client import Session
from tests.kit.relay import Relay, eventually, marked
from tests.kit.source import Source

STANDING = "x = 1\ny = 2  # @here\nz = 3  # @next\n"
SLEEPING = "import time\nprint('on', flush=True)\ntime.sleep(600)\n"
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("OPENCODE_DEBUG_")}


def serve(*flags: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """A start that is expected to fail."""
    return subprocess.run(
        [sys.executable, "-m", "debug_relay.supervisor", "serve", *flags],
        capture_output=True,
        text=True,
        timeout=20,
        env={**ENVIRONMENT, **(env or {})},
    )


def paused(relay: Relay, program: Source) -> Session:
    session = relay.client.session()
    session.break_at(program, program["here"])
    assert session.launch(program)["status"] == "paused"
    return session


def test_it_tells_where_it_listens(own_relay: Callable[..., Relay]) -> None:
    began = time.monotonic()
    relay = own_relay(forked=False)
    took = time.monotonic() - began
    assert took < 3
    assert relay.url.startswith("http://127.0.0.1:")
    assert relay.url.endswith("/api/v1")
    path = relay.data_dir / "relay.json"
    told = json.loads(path.read_text())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (told["url"], told["pid"], told["version"]) == (relay.url, relay.pid, VERSION)
    assert told["started_at"].endswith("Z")
    assert relay.client.get("/health").ok()["status"] == "healthy"
    # Port 0 is another one each time.
    second = own_relay(name="second")
    assert relay.client.port not in (0, second.client.port)
    assert second.client.get("/health").status == 200
    assert stat.S_IMODE(relay.data_dir.stat().st_mode) == 0o700
    assert relay.stop() == 0
    assert not path.exists()


def test_stdout_has_one_line_and_stderr_json(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    relay = own_relay(forked=False)
    with relay.client.session() as session:
        session.launch(source("print('of the program')\n"))
    relay.client.get("/nowhere").refused("NOT_FOUND", 404)
    assert relay.process is not None
    assert relay.process.stdout is not None
    relay.signal(signal.SIGTERM)
    assert relay.process.stdout.read() == b""
    assert relay.wait() == 0
    lines = [json.loads(line) for line in relay.stderr().splitlines()]
    assert {"relay.started", "worker.started", "relay.stopped"} <= {line["event"] for line in lines}
    assert all({"ts", "level", "event"} <= line.keys() for line in lines)
    assert [line for line in lines if line["level"] == "error"] == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_sessions_in_order(
    own_relay: Callable[..., Relay], source: Callable[..., Source], number: signal.Signals
) -> None:
    relay = own_relay(forked=False)
    standing = paused(relay, source(STANDING))
    running = relay.client.session()
    running.launch(source(SLEEPING, "sleeping.py"), wait=0)
    with ThreadPoolExecutor(1) as pool:
        # A long poll does not hold the stop back.
        poll = pool.submit(standing.get, "/events", timeout=120, types="terminated")
        eventually(lambda: relay.calls() == 1)
        began = time.monotonic()
        relay.signal(number)
        assert relay.wait() == 0
        assert time.monotonic() - began < 8
        poll.exception(20)  # answered or cut off: but not waiting
    assert marked(standing.id) == marked(running.id) == []
    assert relay.workers() == []
    assert not (relay.data_dir / "relay.json").exists()
    assert '"relay.stopped"' in relay.stderr()


def test_a_second_signal_ends_it_at_once(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    relay = own_relay(forked=False)
    program = source("""
        import signal, time

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("deaf", flush=True)
        time.sleep(600)
    """)
    session = relay.client.session()
    session.launch(program, wait=0)
    eventually(lambda: session.printed("stdout") == "deaf\n")
    relay.signal(signal.SIGTERM)
    # Now it waits for the program, which does not go by itself.
    eventually(lambda: '"relay.stopping"' in relay.stderr())
    relay.signal(signal.SIGTERM)
    assert relay.wait(2) == 1
    assert not (relay.data_dir / "relay.json").exists()
    # What was begun is brought to its end by the workers.
    eventually(lambda: marked(session.id) == [] and relay.workers() == [])


def test_shutdown_by_call(own_relay: Callable[..., Relay], source: Callable[..., Source]) -> None:
    relay = own_relay(forked=False)
    session = paused(relay, source(STANDING))
    answer = relay.client.post("/shutdown", {}).ok()
    assert (answer["stopping"], answer["keep_sessions"], answer["sessions"]) == (True, False, 1)
    assert relay.wait() == 0
    assert marked(session.id) == []
    assert relay.workers() == []


def test_sessions_are_kept_for_the_next(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    relay = own_relay(forked=False)
    program = source(STANDING)
    session = paused(relay, program)
    assert relay.client.post("/shutdown", {"keep_sessions": True}).ok()["keep_sessions"] is True
    assert relay.wait() == 0
    assert not (relay.data_dir / "relay.json").exists()
    assert len(relay.workers()) == 1
    assert len(marked(session.id)) == 1
    relay.start()
    session = Session(relay.client, session.id)
    assert session.step("over")["current_location"]["line"] == program["next"]
    assert session.value("y") == "2"
    session.delete().ok()
    eventually(lambda: relay.workers() == [])


def test_a_second_relay_on_the_same_data_or_port(
    own_relay: Callable[..., Relay], tmp_path: Path
) -> None:
    relay = own_relay(forked=False)
    session = relay.client.session()
    second = serve("--port", "0", "--data-dir", str(relay.data_dir))
    assert (second.returncode, second.stdout) == (1, "")
    assert str(relay.pid) in second.stderr
    assert relay.url in second.stderr
    assert "Traceback" not in second.stderr
    port = str(relay.client.port)
    second = serve("--port", port, "--data-dir", str(tmp_path / "other"))
    assert (second.returncode, second.stdout) == (1, "")
    assert f"Port {port}" in second.stderr
    assert f"pid {relay.pid}" in second.stderr
    assert "--port" in second.stderr
    assert "Traceback" not in second.stderr
    assert not (tmp_path / "other" / "relay.json").exists()
    # The first has not noticed, and survives a hangup as well.
    assert json.loads((relay.data_dir / "relay.json").read_text())["pid"] == relay.pid
    relay.signal(signal.SIGHUP)
    os.kill(relay.worker(session.id).pid, signal.SIGHUP)
    assert session.status()["status"] == "created"
    assert relay.client.get("/health").status == 200


def test_a_failed_start_keeps_the_sessions_of_before(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    relay = own_relay(forked=False)
    session = paused(relay, source(STANDING))
    relay.kill()
    assert (relay.data_dir / "relay.json").exists()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failed = serve("--port", str(port), "--data-dir", str(relay.data_dir))
    assert failed.returncode == 1
    relay.start()  # the lock of a dead relay is none
    assert json.loads((relay.data_dir / "relay.json").read_text())["pid"] == relay.pid
    assert Session(relay.client, session.id).value("x") == "1"


@pytest.mark.parametrize(
    ("flags", "env", "said"),
    [
        (("--port", "many"), {}, "many"),
        (("--prot", "1"), {}, "--port"),
        ((), {"OPENCODE_DEBUG_SESSIONS__MAX_SESSION": "3"}, "max_sessions"),
        ((), {"OPENCODE_DEBUG_SESSIONS__MAX_SESSIONS": "-1"}, "-1"),
        (("--config", "/nonexistent/config.toml"), {}, "/nonexistent/config.toml"),
    ],
)
def test_a_wrong_configuration_stops_the_start(
    tmp_path: Path, flags: tuple[str, ...], env: dict[str, str], said: str
) -> None:
    result = serve("--data-dir", str(tmp_path / "data"), *flags, env=env)
    assert (result.returncode, result.stdout) == (2, "")
    assert said.lower() in result.stderr.lower()
    assert "Traceback" not in result.stderr


def test_it_listens_on_a_unix_socket_too(own_relay: Callable[..., Relay], tmp_path: Path) -> None:
    path = tmp_path / "relay.sock"
    relay = own_relay("--socket", str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for base in ("http://localhost", "http://any.name"):
        got = subprocess.run(
            ["curl", "-sS", "--max-time", "10", "--unix-socket", path, f"{base}/api/v1/health"],
            capture_output=True,
            check=True,
        )
        if base == "http://localhost":
            assert json.loads(got.stdout)["data"]["status"] == "healthy"
    assert relay.client.get("/health").status == 200
    # What a killed relay leaves of it is no hindrance.
    relay.kill()
    assert path.exists()
    relay.start()
    assert relay.stop() == 0
    assert not path.exists()


def test_another_address_is_refused(tmp_path: Path) -> None:
    result = serve("--host", "0.0.0.0", "--port", "0", "--data-dir", str(tmp_path / "data"))
    assert result.returncode in (1, 2)
    assert "0.0.0.0" in result.stderr
    assert result.stdout == ""
