"""What only a terminal gets: colour, progress, columns that fit. And that a person drives."""

from __future__ import annotations

import http.server
import queue
import re
import signal
import subprocess
import threading
from pathlib import Path

from tests.kit.client import Client
from tests.kit.command import COMMAND, SECONDS, Shell
from tests.kit.relay import eventually

ESCAPES = re.compile(r"\x1b\[[0-9;]*[mK]")


def test_colour_progress_and_width(shell: Shell, relay: Client):
    terminal = shell.terminal("launch", "--break", "shop.py:4", "shop.py")
    assert terminal.end() == 0
    assert "\x1b[1;33m→ 4          amount += price\x1b[0m" in terminal.shown.replace("\r", "")
    plain = shell.terminal("where", "shop", NO_COLOR="1")
    assert plain.end() == 0
    assert not ESCAPES.search(plain.shown)
    assert "→ 4          amount += price" in plain.shown
    dumb = shell.terminal("sessions", TERM="dumb")
    assert dumb.end() == 0
    assert not ESCAPES.search(dumb.shown)
    refused = shell.terminal("status", "nobody")
    assert refused.end() == 1
    assert "\x1b[1;31merror SESSION_NOT_FOUND:\x1b[0m" in refused.shown
    assert "debug-relay sessions" in refused.shown
    # A table ends at the edge of the terminal: rows are cut, and where each word counts, wrapped.
    for width in (40, 80, 200):
        listed = shell.terminal("call", "launch", "--fields", COLUMNS=str(width))
        assert listed.end() == 0
        rows = ESCAPES.sub("", listed.shown).splitlines()
        assert max(map(len, rows)) <= width or width == 40
        assert " interpreter" in listed.shown
        listed = shell.terminal("ps", "--all", COLUMNS=str(width))
        assert listed.end() == 0
        # Reasons follow behind a blank line, and progress may be before.
        rows = ESCAPES.sub("", listed.shown).replace("\r\n", "\n").rpartition("\r")[2]
        assert max(map(len, rows.partition("\n\n")[0].splitlines())) <= width
    shown = shell.terminal("rm", "--help", COLUMNS="60")
    assert shown.end() == 0
    assert max(map(len, shown.shown.splitlines())) <= 60
    # A command typed on a terminal is a person's, and took the free lease; a pipe is no person.
    (item,) = relay.get("/sessions").ok()["items"]
    lease = relay.get(f"/sessions/{item['session_id']}").ok()["lease"]
    assert (lease["holder"].endswith(" (human)"), lease["front"]) == (True, "command line")
    named = {"X-Human-Front": "command line"}
    step = f"/sessions/{item['session_id']}/step-over"
    relay.post(step, headers=named).refused("SESSION_LEASED", 423)  # the name is not enough
    assert "SESSION_LEASED" in shell.refused(1, "step")
    taken = {"X-Human-Front": "page", "X-Lease-Key": "of the page"}
    relay.post(step.replace("step-over", "lease"), {"take_over": True}, headers=taken).ok()
    refused = shell.terminal("step")
    assert refused.end() == 1
    take = re.search(r"call debug-relay (call .*take_over=true)\.", refused.shown)
    assert take is not None, refused.shown
    assert shell.terminal(*take[1].split()).end() == 0
    assert shell.terminal("step").end() == 0
    # What takes longer than a second says so; and again nothing when it is over.
    waiting = shell.terminal("wait", "shop", "--timeout", "1.8", "--for", "end")
    assert waiting.end() == 5
    assert "waiting … 1 s" in waiting.shown
    assert ESCAPES.sub("", waiting.shown).rstrip().endswith("end: timed out after 1.8 s")


def test_what_a_program_says_cannot_move_the_cursor(shell: Shell):
    shell.ok("launch", "--name", "evil", "--wait", "5", "-c", "x = '\\x1b[2J'; raise ValueError(x)")
    shown = shell.terminal("status", "evil")
    assert shown.end() == 0
    assert "\x1b[2J" not in shown.shown


def test_stdout_that_takes_nothing(shell: Shell):
    """Closed, on a full disk: one line says so, and a socket never becomes standard output."""
    for closed, code, said in (
        (">&-", 0, ""),
        (
            ">/dev/full",
            1,
            "debug-relay: standard output cannot be written: No space left on device\n",
        ),
    ):
        for argv in ("sessions", "--help", "events", "wait --timeout 0.1"):
            done = subprocess.run(
                ["bash", "-c", f'"$@" {argv} {closed}', "bash", *COMMAND],
                env=shell.env, stderr=subprocess.PIPE, timeout=SECONDS, text=True, check=False,
            )  # fmt: skip
            assert (done.returncode, done.stderr) == (
                2 if argv.startswith("wait") and not code else code, said
            )  # fmt: skip


def test_ctrl_c_leaves_nothing_behind(shell: Shell, relay: Client):
    """A launch and a run that are interrupted have ended their programs when they say so."""
    for word in ("launch", "run"):
        (shell.folder / "up").unlink(missing_ok=True)
        code = "import os, time; open('up', 'w').write(str(os.getpid())); time.sleep(600)"
        terminal = shell.terminal(word, "-c", code)
        eventually((shell.folder / "up").exists)
        terminal.type("\x03")
        assert terminal.end() == 130
        assert f"debug-relay {word}: interrupted; the program is ended" in terminal.shown
        eventually(lambda: not relay.get("/sessions").ok()["items"])


def test_ctrl_c_while_the_session_is_made(tmp_path: Path):
    """The relay makes it also for a caller who has left: so the command waits, and deletes it."""
    asked: queue.Queue[str] = queue.Queue()
    go_on = threading.Event()

    class Relay(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked.put(f"{self.command} {self.path}")
            if self.command == "POST":
                go_on.wait(SECONDS)
            body = b'{"success": true, "data": {"session_id": "sess_1"}}'
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_DELETE = answer

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Relay) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        shell = Shell(tmp_path, f"http://127.0.0.1:{server.server_port}")
        command = shell.start("launch", "--name", "new", "-c", "1")
        assert asked.get(timeout=SECONDS).startswith("GET /api/v1/health")
        assert asked.get(timeout=SECONDS).startswith("POST /api/v1/sessions")
        command.send_signal(signal.SIGINT)
        go_on.set()
        said = command.communicate(timeout=SECONDS)[1]
        assert (command.returncode, said) == (
            130, "debug-relay launch: interrupted; the program is ended\n",
        )  # fmt: skip
        *_, last = asked.queue
        assert last.startswith("DELETE /api/v1/sessions/sess_1")
        server.shutdown()
        thread.join()
