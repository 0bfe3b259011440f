"""Tunnels: a debugger's bytes by WebSocket and by `debug-relay tunnel`, at the debugger's pace."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.kit.client import Client, Session
from tests.kit.command import COMMAND
from tests.kit.ide import Ide
from tests.kit.native import (
    RawDebugger,
    compiled,
    documented_command,
    gdb_command,
    lldb_command,
    needs,
    packet,
    said,
)
from tests.kit.relay import Relay, eventually
from tests.kit.source import Source
from tests.kit.streams import connect
from tests.kit.tokens import new_token, token_command
from tests.meta.documents import block

WITHIN = 20.0
MEGABYTE = 1 << 20
with_gdb = needs("gcc", "gdbserver", "gdb")
with_lldb = needs("gcc", "lldb-server", "lldb")
with_server = needs("gcc", "gdbserver")


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("native"))


def launched(client: Client, program: Path, **fields: Any) -> Session:
    mode = {"mode": "launch", "adapter": "gdbserver", "program": str(program), **fields}
    return client.session(**mode)


class Near:
    """`debug-relay tunnel SESSION --listen :0`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.process = process
        words = process.stdout.readline().split()
        assert words[:2] == ["listening", "on"], words
        self.host, _, port = words[2].rpartition(":")
        self.port = int(port)

    def connected(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), WITHIN)


def tunnel_command(session: Session, *words: str) -> list[str]:
    return [*COMMAND, "tunnel", session.id, "--url", session.client.url, *words]


def with_commands(**env: str) -> dict[str, str]:
    """The environment of a shell that finds `debug-relay`."""
    path = os.pathsep.join([f"{sys.prefix}/bin", os.environ["PATH"]])
    return {**os.environ, "PATH": path, **env}


@contextmanager
def near(
    session: Session, token: str | None = None, *words: str, command: str | None = None
) -> Iterator[Near]:
    """`command` is a shell's command for the same, with port 5678."""
    shown = token or session.get().ok()["debugger"]["token"]
    process = subprocess.Popen(
        tunnel_command(session, "--listen", ":0", *words)
        if command is None
        else ["bash", "-c", command.replace(":5678 ", ":0 ")],
        env=with_commands(OPENCODE_DEBUG_TOKEN=shown),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield Near(process)
        finally:
            process.terminate()


def closing(ws: Any) -> tuple[int, str]:
    """The close frame of a tunnel that carries nothing any more."""
    closed = pytest.importorskip("websockets.exceptions").ConnectionClosed
    while True:
        try:
            ws.recv(timeout=WITHIN)
        except closed as error:
            return error.rcvd.code, error.rcvd.reason


def until(ws: Any, words: bytes) -> None:
    """Read until these bytes have come, in one message or several."""
    read = b""
    while words not in read:
        read += ws.recv(timeout=WITHIN)


@with_gdb
def test_gdb_from_elsewhere(own_relay: Callable[..., Relay], program: Path) -> None:
    """By TCP and by stdio, with the session's own token and with a caller's."""
    relay = own_relay()
    boss = new_token(relay, "--scope", "admin", "--name", "boss")
    client = relay.client.called(Authorization=f"Bearer {boss}")
    driver = new_token(relay, "--scope", "sessions:write", "--name", "driver")
    body = json.loads(block("native-launch").replace("/srv/app/build/server", str(program)))
    session = client.session(name="shop", mode="launch", **body)
    own = session.get().ok()["debugger"]["token"]
    # What the guide shows, but for the address, the token and the ports.
    exports, listen, by_stdio = block("tunnel").splitlines()
    exports = exports.replace("https://debug.example", client.url)
    with near(session, command=f"{exports.replace('odr_…', own)}\nexec {listen}") as end:
        assert end.host == "127.0.0.1"
        told = said(gdb_command(f":{end.port}", "break add", "continue", "print n"))
        assert "$1 = 1" in told
        # The commands line of nobody shows a token.
        for process in [*psutil.Process(relay.pid).children(True), psutil.Process(end.process.pid)]:
            with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
                assert not {own, driver, boss} & set(process.cmdline())
    typed = documented_command(by_stdio.replace("./server", str(program)), "break add", "continue",
                               "print n")  # fmt: skip
    told = said(["bash", "-c", f"{exports.replace('odr_…', driver)}\nexec {shlex.join(typed)}"],
                env=with_commands())  # fmt: skip
    assert "$1 = 0" in told, told
    reasons = [event["body"]["reason"] for event in session.events("process")]
    assert reasons == ["debugger_connected", "debugger_left"] * 2
    assert session.status()["status"] == "running"
    session.delete()
    for secret in (own, driver, boss):
        assert secret not in relay.stderr()
        for file in [*relay.data_dir.rglob("*"), *relay.run_dir.rglob("*")]:
            assert not file.is_file() or secret.encode() not in file.read_bytes(), file


@with_lldb
def test_lldb_from_elsewhere(relay: Client, program: Path) -> None:
    with launched(relay, program, adapter="lldb-server") as session, near(session) as end:
        told = said(
            lldb_command(end.port, "breakpoint set --name add", "continue", "thread backtrace",
                         "breakpoint delete -f", "detach")
        )  # fmt: skip
        assert "stop reason = breakpoint 1.1" in told
        eventually(lambda: "total 6" in session.printed())


def test_an_ide_from_elsewhere(relay: Client, source: Callable[..., Source]) -> None:
    program = source("for n in range(1000):\n    print(n)  # @line\n")
    [configuration] = json.loads(block("vscode"))["configurations"]
    assert (configuration["type"], configuration["request"]) == ("debugpy", "attach")
    # VS Code sends the whole configuration.
    attach = {**configuration, **json.loads(block("path-mappings"))}
    with relay.session() as session, near(session) as end:
        session.break_at(program, program["line"])
        session.launch(program)
        with Ide(session, "vscode", peer=end.connected()) as ide:
            ide.join(**attach)
            stop, line = ide.stopped()
            assert (stop["reason"], line) == ("breakpoint", program["line"])
            address = session.get().ok()["debugger"]
            documented = json.loads(block("join-address"))["debugger"]
            assert {**documented, "uri": address["uri"], "token": address["token"]} == address
        eventually(lambda: not session.get().ok()["debugger"]["clients"])
        assert session.status()["status"] == "paused"


@with_server
def test_a_slow_side_stops_the_other(own_relay: Callable[..., Relay], program: Path) -> None:
    """100 MB each way, and nobody keeps more of it than some buffers."""
    relay = own_relay(forked=False)
    session = launched(relay.client, program)
    with near(session) as end, RawDebugger(end.connected()) as debugger:
        assert "QStartNoAckMode+" in debugger.ask("qSupported")
        assert debugger.ask("QStartNoAckMode") == "OK"
        debugger.acks = False
        assert debugger.ask("?").startswith("T")
        place = debugger.ask("g")[256:272]  # the first instruction
        where = int.from_bytes(bytes.fromhex(place), "little")
        ask = packet(f"m{where:x},1000")
        debugger.peer.sendall(ask)
        size = len(debugger.raw_packet())
        assert size > 0x1000
        worker = psutil.Process(session.get().ok()["program"]["pid"]).parent()
        carriers = [psutil.Process(relay.pid), worker, psutil.Process(end.process.pid)]
        before = [one.memory_info().rss for one in carriers]
        # Down: the debugger asks for all and reads nothing; then it reads all.
        count = 100 * MEGABYTE // size
        debugger.peer.sendall(ask * count)
        eventually(lambda: still(carriers), timeout=WITHIN, what="everyone waits for the debugger")
        grown = [one.memory_info().rss - rss for one, rss in zip(carriers, before, strict=True)]
        print("down: grown by", [f"{size / MEGABYTE:.1f} MB" for size in grown])
        assert max(grown) < 8 * MEGABYTE, grown
        # Up, meanwhile: gdbserver takes nothing, so the debugger cannot send without end.
        debugger.peer.setblocking(False)
        sent = 0
        while sent < 100 * MEGABYTE:
            try:
                sent += debugger.peer.send(b"+" * MEGABYTE)
            except BlockingIOError:
                if still(carriers):
                    break
        grown = [one.memory_info().rss - rss for one, rss in zip(carriers, before, strict=True)]
        print(f"up: {sent / MEGABYTE:.1f} MB taken, grown by", grown)
        assert sent < 100 * MEGABYTE  # what the kernel holds of it, at each of three sockets
        assert max(grown) < 8 * MEGABYTE, grown
        debugger.peer.settimeout(WITHIN)
        received = sum(len(debugger.raw_packet()) for _ in range(count))
        assert received == count * size
        debugger.peer.sendall(b"+" * (100 * MEGABYTE - sent))
        assert debugger.ask("?").startswith("T")
        grown = [one.memory_info().rss - rss for one, rss in zip(carriers, before, strict=True)]
        print("after 100 MB each way: grown by", grown)
        assert max(grown) < 8 * MEGABYTE, grown
    session.delete()


def still(processes: list[psutil.Process]) -> bool:
    """Whether none of them has work: each waits for the next one."""
    before = [sum(one.cpu_times()[:2]) for one in processes]
    for one in processes:
        one.cpu_percent(0.1)
    return [sum(one.cpu_times()[:2]) for one in processes] == before


@with_server
def test_how_a_tunnel_ends(own_relay: Callable[..., Relay], program: Path) -> None:
    relay = own_relay()
    boss = new_token(relay, "--scope", "admin", "--name", "boss")
    session = launched(relay.client.called(Authorization=f"Bearer {boss}"), program)
    short = new_token(relay, "--scope", "sessions:write", "--name", "short")
    with connect(session.called(Authorization=f"Bearer {short}"), "/tunnel") as ws:
        ws.send(packet("qSupported"))
        until(ws, b"PacketSize")
        token_command("revoke", "short", "--data-dir", str(relay.data_dir))
        code, reason = closing(ws)
        assert (code, reason[:15]) == (1008, "UNAUTHENTICATED")
    eventually(lambda: session.events("process")[-1]["body"]["reason"] == "debugger_left")
    with connect(session, "/tunnel", prefix="") as ws:
        ws.send(b"+" + packet("?"))
        # The end of what the debugger sends is not the end of what it reads.
        ws.send(b"")
        until(ws, b"T0")
        assert closing(ws)[0] == 1000
    with connect(session, "/tunnel") as ws:
        ws.send("words")
        assert closing(ws) == (1003, "Send bytes, in binary messages")
    with connect(session, "/tunnel") as ws:
        ws.send(b"+" * (2 * MEGABYTE))
        assert closing(ws)[0] == 1009
    with connect(session, "/tunnel") as ws:
        ws.send(packet("qSupported"))
        until(ws, b"PacketSize")
        with connect(session, "/tunnel") as second:
            second.send(packet("qSupported"))
            until(second, b"Another debugger is connected")
        session.post("/terminate").ok()
        assert closing(ws)[0] == 1000
    session.post("/restart").ok()
    # A session's own token opens its tunnel, and nothing else.
    own = {"Authorization": f"Bearer {session.get().ok()['debugger']['token']}"}
    with session.client.session() as other:
        others = {"Authorization": f"Bearer {other.get().ok()['debugger']['token']}"}
        assert closed_at_once(session.called(**others)) == 1008
    for path in ("/debug", "/logs"):
        with connect(session.called(**own), path) as ws:
            assert closing(ws)[0] == 1008
    session.called(**own).get("/status").refused("UNAUTHENTICATED", 401)
    session.called(**own).post("/terminate").refused("UNAUTHENTICATED", 401)
    # The session's name is as good as its id, as long as no other has it.
    name = session.get().ok()["name"]
    named = Session(session.called(**own).client, name)
    with connect(named, "/tunnel") as ws:
        ws.send(packet("qSupported"))
        until(ws, b"PacketSize")
    with session.client.session(name=name):
        assert closed_at_once(named) == 1008
    refused = session.get("/tunnel").refused("UPGRADE_REQUIRED", 426)
    assert "debug-relay tunnel" in refused["details"]["suggestion"]
    session.post("/terminate").ok()
    eventually(lambda: closed_at_once(session) == 1008, what="no worker, no tunnel")


def closed_at_once(session: Session) -> int:
    closed = pytest.importorskip("websockets.exceptions").ConnectionClosed
    with connect(session, "/tunnel") as ws:
        with suppress(closed):
            ws.send(packet("?"))
        return closing(ws)[0]


@with_gdb
def test_through_the_end_of_a_relay(own_relay: Callable[..., Relay], program: Path) -> None:
    """Its tunnels break; the program runs on, and the near end serves again."""
    relay = own_relay()
    session = launched(relay.client, program)
    port = relay.client.port
    assert port is not None
    with near(session) as end:
        with RawDebugger(end.connected()) as debugger:
            assert debugger.ask("?").startswith("T")
            relay.kill()
            assert debugger.peer.recv(100) == b""
        relay.start(port=port)
        eventually(lambda: "total 6" in session.printed())
        told = said(gdb_command(f":{end.port}", "break add", "continue", "print n"))
        assert "$1 = 0" in told
        # It ends with the session, and says why.
        session.delete()
        with end.connected():
            assert end.process.wait(WITHIN) == 1
        assert end.process.stderr is not None
        told = end.process.stderr.read()
        assert "the connection to the relay broke" in told
        assert "SESSION_NOT_FOUND" in told


def test_how_the_command_refuses(relay: Client) -> None:
    with relay.session() as session:
        for words, reason in (
            (["--listen", "0.0.0.0:0"], "is not loopback"),
            (["--listen", "[::]:0"], "is not loopback"),
            (["--listen", "host:1"], "the host is an IP address"),
            (["--listen", ":x"], "the port is a number"),
            ([], "one of the arguments --listen --stdio is required"),
        ):
            done = subprocess.run(
                tunnel_command(session, *words), capture_output=True, text=True, check=False
            )
            assert done.returncode == 2
            assert reason in done.stderr
        busy = socket.create_server(("127.0.0.1", 0))
        with busy:
            words = ["--listen", f":{busy.getsockname()[1]}"]
            done = subprocess.run(
                tunnel_command(session, *words), capture_output=True, text=True, check=False
            )
        assert (done.returncode, "cannot listen on 127.0.0.1" in done.stderr) == (1, True)
        with near(session) as end:
            end.process.send_signal(signal.SIGINT)
            assert end.process.wait(WITHIN) == 130
        # What the relay refuses is told before anything listens.
        at = ["--url", relay.url]
        for words, reason in (
            (["nosuch", "--listen", ":0", *at], "SESSION_NOT_FOUND"),
            ([session.id, "--listen", ":0", "--url", "http://127.0.0.1:9"], "does not open"),
        ):
            done = subprocess.run(
                [*COMMAND, "tunnel", *words], capture_output=True, text=True, timeout=WITHIN
            )
            assert (done.returncode, done.stdout) == (1, "")
            assert reason in done.stderr
