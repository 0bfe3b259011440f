"""Programs whose children are debugged with them: `debug_subprocesses`."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from tests.contract.test_children import WAYS
from tests.kit.client import Client
from tests.kit.relay import Relay
from tests.kit.source import Source

Write = Callable[..., Source]


def test_a_child_that_is_started_is_debugged(relay: Client, source: Write, python: str) -> None:
    child = source(
        """
        import sys
        def work(n):
            return n * 2  # @work
        print("child", work(21), sys.argv[1:], flush=True)
        sys.exit(7)
        """,
        "child.py",
    )
    program = source(
        f"""
        import subprocess, sys
        child = subprocess.Popen([sys.executable, {str(child)!r}, "a b"])
        print("code", child.wait())  # @waiting
        """
    )
    with relay.session(python_path=python) as session:
        session.break_at(child, child["work"], condition="n == 21")
        stopped = session.launch(program, debug_subprocesses=True)
        assert (stopped["status"], stopped["stop_reason"]) == ("paused", "breakpoint"), (
            session.events()
        )
        pid = stopped["child_pid"]
        assert pid not in (None, stopped["pid"])
        listed = {row["pid"]: row for row in session.get("/threads").ok()["threads"]}
        assert {pid: row["status"] for pid, row in listed.items()} == {
            stopped["pid"]: "running",
            pid: "paused",
        }
        assert session.status()["stopped_threads"] == [listed[pid]["id"]]
        assert session.get("/stacktrace").ok()["child_pid"] == pid
        assert session.get("/snapshot").ok()["stop"]["thread"]["pid"] == pid
        assert f"child process {pid}" in session.get("/snapshot", format="text").raw.decode()
        assert session.value("n") == "21"
        session.post("/evaluate", {"expression": "n = 4"}).ok()
        out = session.step("out")
        assert (out["child_pid"], out["return_value"]["value"]) == (pid, "8")
        # What is set while it stands holds for the parent, which runs.
        session.break_at(program, program["waiting"])
        ended = session.resume()
        assert (ended["status"], ended["exit_code"]) == ("terminated", 0)
        assert session.printed("stdout") == "child 8 ['a b']\ncode 7\n"
        printed = session.get("/output").ok()["entries"]
        assert [entry["pid"] for entry in printed] == [pid, None]
        told = [event["body"] for event in session.events("subprocess")]
        assert [body["reason"] for body in told] == ["started", "attached", "exited"]
        assert {body["pid"] for body in told} == {pid}
        assert told[0]["command"] == told[1]["command"]
        assert told[0]["debugged"] is True
        assert told[2]["exit_code"] == 7


def test_every_way_to_start_one(
    relay: Client, shared_relay: Relay, source: Write, python: str
) -> None:
    """All print and return what they do without a debugger, and Python among them is debugged."""
    program = source(WAYS)
    plain = subprocess.run(
        [python, str(program)],
        env=shared_relay.env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    with relay.session(python_path=python) as session:
        point = session.break_at(program, program["inside"], log_message="in {n}")
        ended = session.launch(
            program, wait=120, debug_subprocesses=True, stop_on_exception="uncaught"
        )
        assert (ended["status"], ended["exit_code"]) == ("terminated", 0)
        assert session.printed("stdout") == plain.stdout
        assert session.printed("stderr") == plain.stderr
        hits = session.get(f"/breakpoints/{point['id']}").ok()["hit_count"]
        calls = _calls_of_work(plain.stdout)
        assert hits == calls
        assert session.printed("console").count("in ") == calls


def _calls_of_work(stdout: str) -> int:
    """One of each process that says so, four of each pool."""
    lines = stdout.splitlines()
    pools = sum(line.endswith("[0, 2, 4, 6]") for line in lines)
    return 4 * pools + sum(line.startswith(("forked", "process ")) for line in lines)
