"""A person's session at the command line, from the launch to the end, and what is refused."""

from __future__ import annotations

import http.server
import json
import os
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from tests.kit.client import Client
from tests.kit.command import Shell
from tests.kit.relay import Relay
from tests.kit.running import Running


def test_from_launch_to_removal(shell: Shell, relay: Client):
    printed = shell.ok("launch", "--break", "shop.py:4", "shop.py")
    assert re.match(r"session shop \(sess_\w+\)\npaused \(breakpoint, stop 1\)", printed)
    assert "→ 4          amount += price" in printed
    # Breakpoints: set with a condition and by text, listed, removed.
    assert "if price < 0" in shell.ok("break", "shop", "shop.py:4", "--if", "price < 0")
    assert "bp_2" in shell.ok("break", "shop.py:return amount")
    said = shell.refused(1, "break", "shop.py:4", "--if", "price <").splitlines()
    assert said[0].endswith("The condition 'price <' does not compile: invalid syntax")
    assert said[1].startswith("next: Correct it at column ")
    assert len(said) == 2
    assert shell.ok("break", "shop").count("shop.py:") == 2
    # The only session need not be named.
    assert "price: int = -3" in shell.ok("continue")
    assert shell.ok("eval", "shop", "amount + price") == "int = 2\n"
    failed = shell.run("eval", "nothing")
    assert (failed.returncode, failed.stdout.splitlines()[0]) == (
        1, "raised NameError: name 'nothing' is not defined",
    )  # fmt: skip
    assert "#1 <module> at" in shell.ok("where")
    assert "amount: int = 5" in shell.ok("locals")
    assert shell.ok("locals", "--frame", "1").startswith("total: function")
    assert "shop.py:3 in total" in shell.ok("next", "shop")
    shell.ok("break", "--delete", "bp_1")
    assert "hit: bp_2" in shell.ok("continue")
    assert "shop.py:7 in <module>" in shell.ok("out")
    assert shell.ok("where").startswith("thread 1, 1 frame\n")
    shell.ok("break", "--clear")
    assert shell.ok("continue").startswith("terminated (exit code 0")
    listed = shell.ok("sessions").splitlines()
    assert listed[0].split() == ["SESSION", "NAME", "STATUS", "PROGRAM"]
    assert listed[1].split()[1:3] == ["shop", "terminated"]
    assert shell.ok("rm", "shop").endswith("is deleted\n")
    assert relay.get("/sessions").ok()["items"] == []
    assert shell.ok("sessions").startswith("no sessions")


def test_programs_as_a_shell_names_them(shell: Shell, relay: Client):
    """A module, code, a command with the Python of its first line, variables of here."""
    assert "terminated" in shell.ok("launch", "-m", "json.tool", "--help")
    assert "terminated" in shell.ok("launch", "-c", "print(1)")
    (shell.folder / "tool").write_text("#!/usr/bin/env python3\nimport sys; print(sys.argv)\n")
    (shell.folder / "tool").chmod(0o755)
    path = f"{shell.folder}:{shell.env['PATH']}"
    assert "session tool " in shell.ok("launch", "tool", "-x", PATH=path)
    assert "session tool-2 " in shell.ok("launch", "tool", PATH=path)
    code = "import os; print(os.environ['HERE'], os.environ['SET'])"
    shell.ok("launch", "--env", "HERE", "--env", "SET=2", "--name", "v", "-c", code, HERE="1")
    ids = {item["name"]: item["session_id"] for item in relay.get("/sessions").ok()["items"]}
    assert set(ids) == {"json.tool", "code", "tool", "tool-2", "v"}
    printed = relay.get(f"/sessions/{ids['v']}/output").ok()["entries"][0]["output"]
    assert printed == "1 2\n"
    assert "'-x'" in relay.get(f"/sessions/{ids['tool']}/output").ok()["entries"][0]["output"]
    assert "5 sessions, name one" in shell.refused(2, "status")
    assert "sh is no Python program" in shell.refused(2, "launch", "sh", "-c", "true")
    assert "neither a file here nor a command" in shell.refused(2, "launch", "no-such-command")
    # What cannot be launched leaves no session behind.
    assert "Did you mean" in shell.refused(1, "launch", "shap.py")
    said = shell.refused(1, "launch", "--python", "/nowhere/python", "shop.py")
    assert "--python" in said
    assert "python_path" not in said
    assert shell.ok("rm", "--ended").count("is deleted") == 5
    assert shell.ok("sessions", "-q") == "no sessions\n" or shell.ok("sessions", "-q") == ""


def test_a_running_process(shell: Shell, start: Callable[..., Running]):
    running = start(
        """
        import selectors

        here = 7
        sel = selectors.PollSelector()
        print("up", flush=True)
        while True:
            sel.select(0.05)
        """
    )
    listed = shell.ok("ps", str(running.program))
    head, row = listed.splitlines()[:2]
    assert head.split() == ["PID", "USER", "PYTHON", "AGE", "ATTACH", "COMMAND"]
    assert (row.split()[0], row.split()[4]) == (str(running.pid), "yes")
    # One that cannot be attached to stands there with the reason, and below with the way out; on a
    # narrow terminal too.
    os.kill(running.pid, signal.SIGSTOP)
    try:
        listed = shell.ok("ps", str(running.program))
        assert "no: stopped" in listed
        assert f"{running.pid}: Process {running.pid} is stopped by a signal" in listed
        narrow = shell.terminal("ps", str(running.program), COLUMNS="40")
        assert narrow.end() == 0
        assert "no: stopped" in narrow.shown
        assert f"→ kill -CONT {running.pid} resumes it" in narrow.shown
    finally:
        os.kill(running.pid, signal.SIGCONT)
    assert "running" in shell.ok("attach", str(running.pid))
    assert "sess_" in shell.ok("ps", str(running.program))
    # A program that runs is where its threads are.
    where = shell.ok("where")
    assert where.startswith("thread 1 MainThread: waits for")
    assert f"<module> at {running.program}:7\n     here = 7" in where
    # A pause finds it in a library: what is looked at is the program's own frame, as the stop is
    # shown.
    assert "paused (pause" in shell.ok("pause", f"pid-{running.pid}")
    where = shell.ok("where").splitlines()
    assert where[1].startswith("… 1 frame of selectors")
    assert "→" in next(line for line in where if "sel.select" in line)
    assert shell.ok("eval", "here") == "int = 7\n"
    assert "here: int = 7" in shell.ok("locals")
    assert "not defined" in shell.run("eval", "--frame", "0", "here").stdout
    shell.ok("rm")
    assert running.process.poll() is None
    assert "ATTACH_NO_SUCH_PROCESS" in shell.refused(1, "attach", "4194304")
    assert "is no pid" in shell.refused(2, "attach", "shop.py")


def test_json(shell: Shell):
    """The relay's replies as they came, errors too."""
    reply = json.loads(shell.ok("launch", "--json", "--break", "shop.py:4", "shop.py"))
    assert reply["success"] is True
    id = reply["data"]["session_id"]
    assert json.loads(shell.ok("sessions", "--json"))["data"]["items"][0]["session_id"] == id
    assert json.loads(shell.ok("step", id, "--json"))["data"]["stop"]["stop_id"] == 2
    assert json.loads(shell.ok("eval", "--json", "1+1"))["data"]["result"] == "2"
    assert json.loads(shell.ok("ps", "--json"))["data"]["items"]
    failed = shell.run("status", "nobody", "--json")
    assert failed.returncode == 1
    assert json.loads(failed.stdout)["error"]["code"] == "SESSION_NOT_FOUND"
    json.loads(shell.ok("rm", "--json"))


def test_how_the_relay_is_found(own_relay: Callable[..., Relay], tmp_path: Path):
    socket = tmp_path / "s"
    token = tmp_path / "token"
    relay = own_relay("--socket", str(socket))
    shell = Shell(tmp_path)
    # By the file of a data directory, by the address with and without its path, by the socket.
    assert shell.ok("sessions", "--data-dir", str(relay.data_dir)).startswith("no sessions")
    assert shell.ok("sessions", OPENCODE_DEBUG_DATA_DIR=str(relay.data_dir))
    at = relay.url.removesuffix("/api/v1")
    assert shell.ok("sessions", "--url", at)
    assert shell.ok("sessions", OPENCODE_DEBUG_URL=at.removeprefix("http://"))
    assert shell.ok("sessions", "--url", f"unix://{socket}")
    assert "accepted: http://" in shell.refused(2, "sessions", "--url", "ftp://x")
    assert "--url = '' is no address" in shell.refused(2, "sessions", "--url", "")
    # With a token.
    text = shell.ok(
        "token", "create", "--scope", "sessions:read", "--data-dir", str(relay.data_dir)
    )
    token.write_text(text)
    said = shell.refused(1, "sessions", "--url", at)
    assert "UNAUTHENTICATED" in said
    assert "Set OPENCODE_DEBUG_TOKEN, or give --token-file FILE" in said
    assert shell.ok("sessions", "--url", at, "--token-file", str(token))
    assert shell.ok("sessions", "--url", at, OPENCODE_DEBUG_TOKEN=text.strip())
    assert "INSUFFICIENT_SCOPE" in shell.refused(
        1, "launch", "--url", at, "--token-file", str(token), "-c", "1"
    )
    # None that runs.
    assert "no relay is running: there is no" in shell.refused(1, "sessions")
    relay.kill()
    said = shell.refused(1, "sessions", "--data-dir", str(relay.data_dir))
    assert "no relay answers at" in said
    assert "Connection refused" in said
    assert "start one: debug-relay serve" in said
    said = shell.refused(1, "sessions", "--url", "http://no-host.invalid")
    assert re.search(r"no relay answers at \S+ \(from --url\): [A-Z][a-z ]+", said)
    assert "correct --url, or start a relay there" in said
    failed = shell.run("sessions", "--json")
    assert json.loads(failed.stdout)["error"]["code"] == "NO_RELAY"


NOT_FOUND = b"""{"success": false, "data": null, "error": {"code": "NOT_FOUND",
    "message": "There is no GET /api/v1/sessions", "details": {"suggestion": "GET /llms.txt"}}}"""


def test_what_answers_is_no_relay(tmp_path: Path):
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_old = "label=" in self.path
            self.send_response(404 if is_old else 502 if "status=" in self.path else 200)
            self.send_header("Content-Type", "application/json" if is_old else "text/html")
            self.end_headers()
            self.wfile.write(NOT_FOUND if is_old else b"<html>\n")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        shell = Shell(tmp_path, f"http://127.0.0.1:{server.server_port}")
        said = shell.refused(1, "sessions")
        assert "(from OPENCODE_DEBUG_URL) is no relay" in said
        assert "a page with status 502" in shell.refused(1, "sessions", "--status", "paused")
        # A relay of another version lacks an operation.
        said = shell.refused(1, "sessions", "--label", "a=b")
        assert said.startswith("error NOT_FOUND: There is no GET /api/v1/sessions\n")
        assert "next: Restart the relay: it is of another version than this command" in said
        server.shutdown()
        thread.join()


def test_start(tmp_path: Path):
    """A relay of one's own, in the background; it outlives the command."""
    shell = Shell(tmp_path)
    done = shell.run("sessions", "--start", "--data-dir", "data")
    try:
        assert done.returncode == 0, done.stderr
        assert done.stderr.startswith("debug-relay: started listening on http://127.0.0.1:")
        assert shell.ok("sessions", "--data-dir", "data").startswith("no sessions")
        # One that answers is used.
        assert shell.run("sessions", "--start", "--data-dir", "data").stderr == ""
    finally:
        found = json.loads((tmp_path / "data" / "relay.json").read_text())
        Client(found["url"]).post("/shutdown", {}).ok()
    (tmp_path / "file").touch()
    said = shell.refused(1, "sessions", "--start", "--data-dir", "file")
    assert "the relay did not start" in said
    assert "file" in said
