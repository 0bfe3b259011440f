"""Native programs, debugged by real gdb and lldb through the session's join port."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from debug_relay.protocol.calls import filled
from debug_relay.protocol.docs.examples import EXAMPLES, PATH_VALUES
from debug_relay.protocol.operations import OPERATIONS
from tests.kit.client import Client, Session
from tests.kit.command import Shell
from tests.kit.native import (
    RawDebugger,
    compiled,
    documented_command,
    gdb_command,
    lldb_command,
    needs,
    port_of,
    said,
)
from tests.kit.relay import Relay, eventually
from tests.meta.documents import block

with_gdb = needs("gcc", "gdbserver", "gdb")
with_lldb = needs("gcc", "lldb-server", "lldb")
with_server = needs("gcc", "gdbserver")
STOPPED = "tracing-stop"


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("native"))


def launch(session: Session, program: Path, *args: str, **fields: Any) -> Any:
    body = {"adapter": "gdbserver", "program": str(program), "args": list(args), **fields}
    return session.post("/launch", body).ok()


def ended(session: Session) -> Any:
    return eventually(lambda: (s := session.status())["status"] == "terminated" and s)


def reasons(session: Session) -> list[str]:
    return [event["body"]["reason"] for event in session.events("process")]


def address_of(function: str, program: Path, pid: int) -> int:
    listed = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    [offset] = [line.split()[0] for line in listed.splitlines() if line.split()[-1] == function]
    base = Path(f"/proc/{pid}/maps").read_text().partition("-")[0]
    return int(base, 16) + int(offset, 16)


def server_of(session: Session) -> psutil.Process:
    """The debug server of the session, which traces the program."""
    pid = session.get().ok()["program"]["pid"]

    def tracer() -> int:
        text = Path(f"/proc/{pid}/status").read_text()
        return int(text.partition("TracerPid:")[2].split()[0])

    def found() -> psutil.Process | None:
        return psutil.Process(tracer()) if tracer() else None

    server = eventually(lambda: (one := found()) and "server" in one.name() and one)
    assert isinstance(server, psutil.Process)
    return server


@with_gdb
def test_gdb(relay: Client, program: Path) -> None:
    with relay.session() as session:
        launched = launch(session, program, "read", "a b", "c'd$e")
        assert (launched["status"], launched["program"]["program"]) == ("running", str(program))
        shown = session.get().ok()
        assert shown["debugger"]["adapter"] == "gdbserver"
        assert "waits at its first instruction" in shown["warning"]
        for greeting in (b"", b"GET / HTTP/1.1\r\n\r\n", b"Content-Length: 2\r\n\r\n{}"):
            with socket.create_connection(("127.0.0.1", port_of(session))) as peer:
                peer.sendall(greeting)
                peer.shutdown(socket.SHUT_WR)
                assert peer.recv(1) == b""
        # Whoever does not speak the debugger's protocol has not set it free.
        assert "waits at its first instruction" in session.get().ok()["warning"]
        assert session.printed() == ""
        told = said(
            gdb_command(
                f":{port_of(session)}", "break add", "continue", "print n", "info signals SIGSTOP",
                "next", "print total", "delete",
            )
        )  # fmt: skip
        assert "Breakpoint 1, add (n=1)" in told
        assert "$1 = 1" in told
        assert "$2 = 1" in told
        assert "Program received signal" not in told
        # gdb has left; the program has not.
        eventually(lambda: session.status()["waiting_for_input"])
        assert session.get().ok()["warning"] is None
        session.post("/input", {"input": "words\n"}).ok()
        assert (ended(session)["exit_code"], session.status()["end_reason"]) == (7, "target_exited")
        assert session.printed("stdout") == (
            "argument a b\nargument c'd$e\ntotal 1\ntotal 3\ntotal 6\nread words\n"
        )
        assert session.printed("stderr") == "to stderr\n"
        assert reasons(session) == ["debugger_connected", "debugger_left"]
        # Another run, to its end under gdb.
        session.post("/restart", {"args": ["end"]}).ok()
        by_gdb = block("native-debuggers").splitlines()[0]
        by_gdb = by_gdb.replace("40123", str(port_of(session))).replace("./server", str(program))
        told = said(documented_command(by_gdb, "continue"))
        assert "exited with code 07" in told
        assert ended(session)["exit_code"] == 7


@with_lldb
def test_lldb(relay: Client, program: Path) -> None:
    with relay.session() as session:
        launch(session, program, "end", adapter="lldb-server")
        assert session.get().ok()["debugger"]["adapter"] == "lldb-server"
        by_lldb = block("native-debuggers").splitlines()[1].replace("40123", str(port_of(session)))
        told = said(
            documented_command(
                by_lldb, "breakpoint set --name add", "continue", "thread backtrace",
                "breakpoint delete -f", "detach",
            )
        )  # fmt: skip
        assert "stop reason = breakpoint 1.1" in told
        assert "main(argc=2" in told
        assert ended(session)["exit_code"] == 7
        assert session.printed("stdout") == "total 1\ntotal 3\ntotal 6\n"
        assert reasons(session) == ["debugger_connected", "debugger_left"]


@with_lldb
def test_an_lldb_that_is_killed(relay: Client, program: Path) -> None:
    """It leaves no breakpoint behind on which the program would die."""
    with relay.session() as session:
        launch(session, program, "handle", adapter="lldb-server")
        stop = ["breakpoint set --name add", "continue", "platform shell kill -9 $PPID"]
        assert "stop reason = breakpoint 1.1" in said(lldb_command(port_of(session), *stop))
        eventually(lambda: "total 6" in session.printed())
        # While the program runs.
        place = address_of("goodbye", program, session.get().ok()["program"]["pid"])
        with RawDebugger.of(session) as debugger:
            assert debugger.ask("?").startswith("T")
            assert debugger.ask(f"Z0,{place:x},1") == "OK"
            debugger.send("vCont;c")
            eventually(lambda: session.get("/resources").ok()["processes"][0]["state"] != STOPPED)
        eventually(lambda: not session.get().ok()["debugger"]["clients"])
        session.post("/terminate", {"grace": 10}).ok()
        assert (session.status()["exit_code"], session.printed()[-8:]) == (3, "goodbye\n")


@with_gdb
def test_debuggers_come_and_go(relay: Client, program: Path) -> None:
    with relay.session() as session:
        launch(session, program, wait_for_debugger=False)
        eventually(lambda: "total 6" in session.printed())
        for _ in range(2):
            told = said(gdb_command(f":{port_of(session)}", "break add", "continue", "print n"))
            assert "$1 = 0" in told
        with RawDebugger.of(session) as first:
            assert "PacketSize" in first.ask("qSupported")
            assert session.get().ok()["debugger"]["clients"] == ["gdb"]
            told = said(gdb_command(f":{port_of(session)}"))
            assert "Another debugger is connected to this session" in told
            assert first.ask("?").startswith("T")
        # Whoever leaves without a word leaves nothing behind either.
        eventually(lambda: reasons(session)[-1:] == ["debugger_left"])
        eventually(lambda: session.get("/resources").ok()["processes"][0]["state"] == "sleeping")
        assert len(session.get("/resources").ok()["processes"]) == 1
        session.post("/terminate").ok()
        assert session.status()["signal"] == "SIGTERM"


@with_server
def test_what_a_native_session_cannot_do(relay: Client, program: Path) -> None:
    with relay.session() as session:
        launch(session, program)
        tried = 0
        for row in OPERATIONS.values():
            if not row.python_only or row.name == "apply-profile":
                continue
            path = filled(row.path, {**PATH_VALUES, "session_id": session.id})
            path = path.removeprefix(relay.prefix)
            sent = EXAMPLES[row.name].request
            if row.takes_body:
                answer = relay.call(row.verb, path, sent)
            else:
                answer = relay.call(row.verb, path, **sent)
            error = answer.refused("ATTACH_UNSUPPORTED", 400)
            assert "gdb" in error["details"]["suggestion"]
            tried += 1
        assert tried > 30
        error = session.post("/detach").refused("ATTACH_UNSUPPORTED")
        assert "In gdb, detach leaves the program running" in error["details"]["suggestion"]
        file = f"/source?path={program}.c"
        error = session.get(file).refused("INVALID_PARAMETER", 400)
        assert "project_root" in error["details"]["suggestion"]
        session.patch("", {"project_root": str(program.parent)}).ok()
        assert session.get(file).ok()["total_lines"] > 10


@with_server
def test_the_end_of_a_program_that_waits(relay: Client, program: Path) -> None:
    with relay.session() as session:
        launch(session, program)
        session.post("/terminate").ok()
        assert session.status()["signal"] == "SIGTERM"
        assert session.printed() == ""
        # With a debugger that has stopped it.
        session.post("/restart", {"args": ["handle"]}).ok()
        with RawDebugger.of(session) as debugger:
            assert "PacketSize" in debugger.ask("qSupported")
            session.post("/terminate", {"grace": 10}).ok()
            assert session.status()["signal"] in ("SIGTERM", "SIGKILL")
        session.post("/restart", {"args": ["handle"]}).ok()
        with RawDebugger.of(session) as debugger:
            assert debugger.ask("?").startswith("T")
            debugger.send("vCont;c")
            eventually(lambda: "total 6" in session.printed())
            session.post("/terminate", {"grace": 10}).ok()
        assert (session.status()["exit_code"], session.printed()[-8:]) == (3, "goodbye\n")


@with_server
def test_as_python_programs_are(relay: Client, program: Path) -> None:
    with relay.session() as session:
        launch(session, program, "environment", wait_for_debugger=False, env={"API_KEY": "c4nary"})
        address = session.get().ok()["debugger"]
        session.post("/input", {"eof": True}).ok()
        assert ended(session)["exit_code"] == 7
        assert f"{address['uri']} {address['token']}\n" in session.printed()
        assert "c4nary" not in session.get().raw.decode()
        session.post("/restart", {"args": ["crash"], "env": {"API_KEY": "c4nary"}}).ok()
        assert (ended(session)["exit_code"], session.status()["signal"]) == (-6, "SIGABRT")
        session.post("/restart", {"args": ["child"]}).ok()
        eventually(lambda: len(session.get("/resources").ok()["processes"]) == 2)
        session.post("/terminate").ok()
        [gone] = session.events("terminated")[-1]["body"]["swept"]
        assert not psutil.pid_exists(gone["pid"])
    with relay.session(limits={"memory_bytes": 200 << 20}) as session:
        launch(session, program, "allocate", wait_for_debugger=False)
        assert (ended(session)["end_reason"], session.status()["passed_limit"]["limit"]) == (
            "limit",
            "memory_bytes",
        )
    mode = {"mode": "launch", "adapter": "gdbserver", "program": str(program)}
    with relay.session(**mode, args=["terminal"], pty=True, wait_for_debugger=False) as session:
        assert ended(session)["exit_code"] == 7
        assert "terminal 1" in session.printed()
        assert session.get("", format="text").raw.decode().count("native") >= 1


@with_server
def test_no_process_outlives_the_others(
    own_relay: Callable[..., Relay], program: Path, tmp_path: Path
) -> None:
    relay = own_relay()
    sessions = {name: relay.client.session() for name in ("server", "program", "worker", "relay")}
    debuggers, pids, servers = {}, {}, {}
    for name, session in sessions.items():
        launch(session, program, "handle")
        pids[name] = session.get().ok()["program"]["pid"]
        debuggers[name] = RawDebugger.of(session)
        assert debuggers[name].ask("?").startswith("T")
        servers[name] = server_of(session)
        listening = servers[name].net_connections("inet")
        assert [one for one in listening if one.status == psutil.CONN_LISTEN] == []
    # Without its debug server the program runs on, and does not die at a breakpoint that is left.
    place = address_of("goodbye", program, pids["server"])
    assert debuggers["server"].ask(f"Z0,{place:x},1") == "OK"
    servers["server"].kill()
    eventually(lambda: "left in the program: 1\n" in sessions["server"].printed("console"))
    assert "total 6" in sessions["server"].printed()
    with RawDebugger.of(sessions["server"]) as again:
        assert again.ask("?").startswith("T")
    os.kill(pids["server"], signal.SIGTERM)
    assert ended(sessions["server"])["exit_code"] == 3
    os.kill(pids["program"], signal.SIGKILL)
    assert ended(sessions["program"])["signal"] == "SIGKILL"
    debuggers["program"].peer.close()
    [worker] = [one for one in relay.workers() if one.pid == psutil.Process(pids["worker"]).ppid()]
    worker.kill()
    eventually(lambda: not psutil.pid_exists(pids["worker"]), what="program of a killed worker")
    eventually(lambda: not servers["worker"].is_running(), what="server of a killed worker")
    assert sessions["worker"].status()["status"] == "failed"
    # The debugger does not notice that the relay is killed and started anew.
    relay.kill()
    assert debuggers["relay"].ask("?").startswith("T")
    relay.start()
    session = Session(relay.client, sessions["relay"].id)
    eventually(lambda: session.get().status == 200)
    assert debuggers["relay"].ask("?").startswith("T")
    session.delete()
    eventually(lambda: not psutil.pid_exists(pids["relay"]))
    eventually(lambda: not servers["relay"].is_running())
    assert debuggers["relay"].peer.recv(100) == b""
    for debugger in debuggers.values():
        debugger.peer.close()


@needs("gcc")
def test_refused_before_anything_starts(
    own_relay: Callable[..., Relay], program: Path, tmp_path: Path
) -> None:
    relay = own_relay(env={"PATH": str(tmp_path)})
    with relay.client.session() as session:
        body = {"adapter": "gdbserver", "program": str(program)}
        for adapter, package in (("gdbserver", "gdbserver"), ("lldb-server", "lldb")):
            refused = session.post("/launch", {**body, "adapter": adapter})
            error = refused.refused("ATTACH_NO_DEBUGGER", 503)
            assert f"apt-get install {package}" in error["details"]["suggestion"]
        for fields, code, words in (
            ({"program": f"{program}x"}, "LAUNCH_SCRIPT_NOT_FOUND", "Did you mean"),
            ({"program": f"{program}.c"}, "LAUNCH_SCRIPT_NOT_FOUND", "chmod +x"),
            ({"program": str(tmp_path)}, "LAUNCH_SCRIPT_NOT_FOUND", "executable file"),
            ({"program": "native"}, "INVALID_REQUEST", "cwd beside it"),
            ({"stop_on_entry": True}, "INVALID_REQUEST", "Leave it out"),
            ({"script": "/a.py"}, "INVALID_REQUEST", "Leave it out"),
            ({"program": None}, "INVALID_REQUEST", '"program"'),
            ({"adapter": "debugpy"}, "INVALID_REQUEST", "adapter"),
            ({"adapter": "gdb"}, "INVALID_REQUEST", ""),
        ):
            error = session.post("/launch", {**body, **fields}).refused(code, 400)
            assert words in error["details"]["suggestion"], (fields, error)
        assert session.status()["status"] == "created"


@with_server
def test_a_file_that_is_no_program(relay: Client, tmp_path: Path) -> None:
    nonsense = tmp_path / "nonsense"
    nonsense.write_bytes(b"\x7fELF nonsense")
    nonsense.chmod(0o755)
    with relay.session() as session:
        refused = session.post("/launch", {"adapter": "gdbserver", "program": str(nonsense)})
        assert "Exec format error" in refused.refused("LAUNCH_FAILED")["message"]
        assert session.status()["status"] == "created"
        script = tmp_path / "script"
        script.write_text("#!/bin/sh\necho from a script\n")
        script.chmod(0o755)
        launch(session, script, wait_for_debugger=False)
        assert ended(session)["exit_code"] == 0
        assert session.printed() == "from a script\n"


@with_server
def test_a_launch_is_kept(own_relay: Callable[..., Relay], program: Path, tmp_path: Path) -> None:
    """By clones, exports and the next relay."""
    relay = own_relay()
    at = ["--data-dir", str(relay.data_dir)]
    shell = Shell(tmp_path, relay.url)
    shell.ok("launch", *at, "--adapter", "gdbserver", "--name", "first", str(program), "end")
    shown = shell.ok("status", *at, "first")
    assert "warning: The program waits at its first instruction" in shown
    assert f"program: {program} end" in shown
    assert "debugger: gdbserver at tcp://127.0.0.1:" in shown
    assert "Leave it out" in shell.refused(
        1, "launch", *at, "--adapter", "gdbserver", "--stop-on-entry", str(program)
    )
    [item] = relay.client.get("/sessions").ok()["items"]
    assert item["program"] == str(program)
    session = Session(relay.client, item["session_id"])
    cloned = session.post("/clone").ok(201)
    exported = session.get("/export").ok()
    imported = relay.client.post("/sessions/import", exported).ok(201)
    relay.stop()
    relay.start()
    for id in (session.id, cloned["session_id"], imported["session_id"]):
        again = Session(relay.client, id)
        assert again.get().ok()["program"]["program"] == str(program)
        again.post("/restart").ok()
        assert again.get().ok()["debugger"]["adapter"] == "gdbserver"
        with RawDebugger.of(again) as debugger:
            assert debugger.ask("?").startswith("T")
        assert ended(again)["exit_code"] == 7
        again.delete()
