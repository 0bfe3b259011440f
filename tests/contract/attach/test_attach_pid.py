"""Attaching to programs that somebody else has started, by their pid."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.kit.client import Client, Session
from tests.kit.listening import free_port
from tests.kit.relay import eventually
from tests.kit.running import Running
from tests.kit.statements import python_path

SLEEPS = """
    import time

    def work(n):
        doubled = n * 2  # @line
        return doubled

    print("up", flush=True)
    n = 0
    while True:
        n += 1
        work(n)
        time.sleep(0.02)
"""
FAILS = """
    import threading, time

    def work(n):
        try:
            raise ValueError(n)
        except ValueError:
            pass

    def run():
        while True:
            work(1)
            time.sleep(0.01)

    threading.Thread(target=run, daemon=True).start()
    print("up", flush=True)
    run()
"""
SPINS = """
    def work(n):
        doubled = n * 2  # @line
        return doubled

    print("up", flush=True)
    n = 0
    while True:
        n += 1
        work(n)
"""
THREADS = """
    import threading, time

    class Worker:
        def work(self, n):
            doubled = n * 2  # @line
            return doubled

        def run(self):
            n = 0
            while True:
                n += 1
                self.work(n)
                time.sleep(0.02)

    workers = [threading.Thread(target=Worker().run) for _ in range(4)]
    for worker in workers:
        worker.start()
    print("up", flush=True)
    for worker in workers:
        worker.join()
"""
ASYNCIO = """
    import asyncio

    async def work(n):
        doubled = n * 2  # @line
        return doubled

    async def main():
        n = 0
        while True:
            n += 1
            await work(n)
            await asyncio.sleep(0.02)

    print("up", flush=True)
    asyncio.run(main())
"""
SERVES = """
    import sys
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            n = len(self.path)
            doubled = n * 2  # @line
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"%d" % doubled)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    print("up", flush=True)
    server.serve_forever()
"""
LONG = """
    import threading, time

    def other():
        time.sleep(600)

    print("up", flush=True)
    time.sleep(600)
"""
# `threading` has started none of its threads.
RAW_THREAD = """
    import _thread, time

    def work(n):
        doubled = n * 2  # @line
        return doubled

    def raw():
        while True:
            work(21)
            time.sleep(0.01)

    _thread.start_new_thread(raw, ())
    n = 0
    print("up", flush=True)
    while True:
        n += 1  # @main
        time.sleep(0.01)
"""
Start = Callable[..., Running]


def attach(session: Session, one: Running, **fields: object) -> dict[str, object]:
    body = {"pid": one.pid, "connect_timeout": 30, **fields}
    return dict(session.post("/attach", body).ok())


def paused(session: Session) -> None:
    eventually(lambda: session.status()["status"] == "paused")


@pytest.mark.parametrize(
    "text", [SLEEPS, SPINS, THREADS, ASYNCIO], ids=["sleeps", "spins", "threads", "asyncio"]
)
def test_break_look_step_and_leave(relay: Client, start: Start, python: str, text: str) -> None:
    one = start(text, python=python)
    with relay.session() as session:
        attached = attach(session, one)
        assert (attached["status"], attached["pid"]) == ("running", one.pid)
        program = session.get().ok()["program"]
        assert (program["attached"], program["args"]) == (True, ["-W", "ignore", str(one.program)])
        breakpoint = session.break_at(one.program, one.program["line"])
        assert breakpoint["verified"] is True
        paused(session)
        assert session.line() == one.program["line"]
        n = int(session.value("n"))
        assert session.value("n + 1") == str(n + 1)
        # Meanwhile another thread may come to the line as well.
        session.patch(f"/breakpoints/{breakpoint['id']}", {"enabled": False}).ok()
        assert session.step("over")["current_location"]["line"] == one.program["line"] + 1
        session.patch(f"/breakpoints/{breakpoint['id']}", {"enabled": True}).ok()
        assert session.locals()["doubled"] == str(2 * n)
        # None of ours is among its threads.
        names = [thread["name"] for thread in session.get("/threads").ok()["threads"]]
        assert not [name for name in names if "relay" in name or "pydevd" in name]
        again = session.resume()
        assert again["status"] == "paused"
        session.post("/detach").ok()
        assert session.status()["status"] == "created"
    assert one.alive
    assert one.stderr() == ""


@pytest.mark.parametrize(
    ("version", "mark"), [("3.11", "line"), ("3.12", "main"), ("3.13", "line")]
)
def test_it_steps_and_pauses_each_time_anew(
    relay: Client, start: Start, version: str, mark: str
) -> None:
    """What one debugger has found out about a thread is not the next one's."""
    one = start(RAW_THREAD, python=python_path(version))
    with relay.session() as session:
        for _ in range(2):
            attach(session, one)
            session.break_at(one.program, one.program[mark])
            paused(session)
            assert int(session.value("n")) > 0
            stop = session.step("over")
            assert (stop["stop_reason"], stop["current_location"]["line"]) == (
                "step",
                one.program[mark] + 1,
            )
            session.delete("/breakpoints").ok()
            session.post("/continue").ok()
            assert session.post("/pause").ok()["stop_reason"] == "pause"
            assert session.post("/detach").ok()["residue"] is None
    assert one.stderr() == ""


@pytest.mark.one_python
def test_a_coroutine_that_runs_already(relay: Client, start: Start, python: str) -> None:
    one = start(
        """
        import asyncio

        async def ticks():
            n = 0
            while True:
                n += 1
                await asyncio.sleep(0.02)  # @waits
                yield n  # @yields

        async def main():
            print("up", flush=True)
            async for n in ticks():
                doubled = n * 2  # @line

        asyncio.run(main())
        """,
        python=python,
    )
    with relay.session() as session:
        attach(session, one)
        for mark in ("line", "yields"):
            breakpoint = session.break_at(one.program, one.program[mark])
            paused(session)
            assert session.line() == one.program[mark]
            assert int(session.value("n")) > 0
            session.delete(f"/breakpoints/{breakpoint['id']}").ok()
            assert session.resume(wait=0)["status"] == "running"
        session.post("/detach").ok()
    assert one.alive
    assert one.stderr() == ""


@pytest.mark.one_python
def test_a_server_answers_again(relay: Client, start: Start, python: str) -> None:
    port = free_port()
    one = start(SERVES, str(port), python=python)
    answers: list[bytes] = []

    def ask() -> None:
        with urlopen(f"http://127.0.0.1:{port}/four", timeout=20) as answer:
            answers.append(answer.read())

    with relay.session() as session:
        session.post("/attach", {"listening_on": port, "connect_timeout": 30}).ok()
        session.break_at(one.program, one.program["line"])
        client = threading.Thread(target=ask)
        client.start()
        paused(session)
        assert session.value("self.path") == "'/four'"
        session.post("/detach").ok()
        client.join(10)
        ask()
    assert answers == [b"10", b"10"]


def test_created_attached(relay: Client, start: Start) -> None:
    one = start(SLEEPS)
    body = {"mode": "attach", "pid": one.pid}
    identity = relay.get(f"/processes/{one.pid}").ok()["identity"]
    recycled = {**body, "identity": identity.replace("-", "-1", 1)}
    relay.post("/sessions", recycled).refused("ATTACH_PID_RECYCLED")
    created = relay.post("/sessions", {**body, "identity": identity}).ok(201)
    assert created["status"] == "running"
    assert relay.get(f"/processes/{one.pid}").ok()["debugged_by"] == created["session_id"]
    relay.post("/sessions", body).refused("ATTACH_ALREADY_ATTACHED", 409)
    relay.delete(f"/sessions/{created['session_id']}").ok()
    assert one.alive


def test_found_by_its_command_line(relay: Client, start: Start) -> None:
    one = start(SLEEPS, name="first_of_two.py")
    other = start(SLEEPS, name="second_of_two.py")
    with relay.session() as session:
        error = session.post("/attach", {"match": r"(first|second)_of_two\.py$"})
        told = error.refused("INVALID_REQUEST", 400)["details"]["candidates"]
        assert {entry["pid"] for entry in told} == {one.pid, other.pid}
        line = other.program["line"]
        session.break_at(other.program, line, log_message="n is {n}", condition="n % 5 == 0")
        attached = session.post("/attach", {"match": r"/second_of_two\.py$"}).ok()
        assert attached["pid"] == other.pid
        # Log points and conditions hold as in a launched program.
        eventually(lambda: session.printed("console").count("n is ") >= 2)
        assert all(text.endswith(("0", "5")) for text in session.printed("console").splitlines())
        session.post("/input", {"input": "x"}).refused("ATTACH_UNSUPPORTED", 400)
        session.post("/detach").ok()
        error = session.post("/attach", {"match": "(unclosed"}).refused("INVALID_REQUEST", 400)
        assert "unterminated subpattern" in error["details"]["errors"][0]["message"]
        nobody = session.post("/attach", {"match": "no_such_program_anywhere", "wait_seconds": 0.2})
        nobody.refused("ATTACH_NO_SUCH_PROCESS", 404)


def test_waited_for(relay: Client, start: Start) -> None:
    with relay.session() as session:
        answers: list[dict[str, object]] = []
        asking = threading.Thread(
            target=lambda: answers.append(
                session.post("/attach", {"match": r"late_comer\.py$", "wait_seconds": 30}).ok()
            )
        )
        asking.start()
        one = start(SLEEPS, name="late_comer.py")
        asking.join(30)
        assert answers[0]["pid"] == one.pid


def test_its_process_is_ended_only_when_asked_for(relay: Client, start: Start) -> None:
    one = start(SLEEPS)
    with relay.session() as session:
        attach(session, one)
        ended = session.post("/terminate").ok()
        assert (ended["status"], ended["exit_code"]) == ("terminated", None)
    assert one.process.wait(10) == -15
    another = start(SLEEPS)
    session = relay.session()
    attach(session, another)
    session.delete(terminate_debuggee="true").ok()
    assert another.process.wait(10) == -15


def test_what_can_be_done_when_it_has_ended(relay: Client, start: Start) -> None:
    """No suggestion leads to a call that is refused."""
    one = start(SLEEPS)
    with relay.session() as session:
        attach(session, one)
        living = session.post("/restart").refused("ATTACH_UNSUPPORTED")["details"]["suggestion"]
        assert f"POST {relay.prefix}/sessions/{session.id}/detach" in living
        again = session.post("/launch", {"script": str(one.program)})
        told = again.refused("INVALID_SESSION_STATE", 409)["details"]["suggestion"]
        assert f"POST {relay.prefix}/sessions/{session.id}/detach" in told
        one.process.kill()
        told = session.events("terminated", timeout=10)
        assert told[0]["body"]["end_reason"] == "target_lost"
        assert (session.status()["status"], session.status()["exit_code"]) == ("terminated", None)
        refused = [
            session.get("/stacktrace"),
            session.post("/detach"),
            session.post("/launch", {"script": str(one.program)}),
            session.post("/restart"),
        ]
        for answer in refused:
            error = answer.body["error"]
            assert error["code"] in ("INVALID_SESSION_STATE", "ATTACH_UNSUPPORTED")
            told = error["details"]["suggestion"]
            assert f'POST {relay.prefix}/sessions {{"mode": "attach", "pid"' in told
            assert "/restart" not in told
            assert "/detach" not in told


def test_it_becomes_another_program(relay: Client, start: Start) -> None:
    one = start(
        """
        import os, sys, time
        print("up", flush=True)
        sys.stdin.readline()
        os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)"])
        """
    )
    with relay.session() as session:
        attach(session, one)
        assert one.process.stdin is not None
        one.process.stdin.write("\n")
        one.process.stdin.flush()
        eventually(lambda: session.status()["status"] == "created")
        attach(session, one)
        session.post("/detach").ok()
    assert one.alive


def test_a_sleeper_is_paused_when_it_wakes(relay: Client, start: Start) -> None:
    one = start(LONG)
    with relay.session() as session:
        attach(session, one)
        reply = session.post("/pause", {"wait": 0.3}).ok()
        assert (reply["completed"], reply["pause_pending"]) == (False, True)
        session.post("/detach").ok()
    assert one.alive


def test_one_that_holds_the_interpreter(relay: Client, start: Start) -> None:
    one = start(
        """
        import ctypes, time
        print("up", flush=True)
        ctypes.PyDLL(None).sleep(3)
        while True:
            time.sleep(0.01)
        """
    )
    with relay.session() as session:
        began = time.monotonic()
        answer = session.post("/attach", {"pid": one.pid, "connect_timeout": 0.5})
        error = answer.refused("ATTACH_TIMEOUT", 504)
        assert time.monotonic() - began < 2.5
        assert error["details"]["attach_pending"] is True
        assert f"GET /api/v1/processes/{one.pid}/stacks" in error["details"]["suggestion"]
        assert session.status()["status"] == "created"

        def attached() -> bool:
            return session.post("/attach", {"pid": one.pid, "connect_timeout": 30}).status == 200

        # As soon as the first injection has let go of it, of which nothing is left.
        eventually(attached, timeout=30)
        session.post("/detach").ok()

        def files() -> str:
            return " ".join(os.readlink(link) for link in Path(f"/proc/{one.pid}/fd").iterdir())

        eventually(lambda: "debug relay" not in files())
    assert one.alive
    assert one.stderr() == ""


def test_a_number_that_is_a_thread(relay: Client, start: Start) -> None:
    one = start(FAILS)
    (thread,) = {int(name) for name in os.listdir(f"/proc/{one.pid}/task")} - {one.pid}
    with relay.session() as session:
        error = session.post("/attach", {"pid": thread}).refused("ATTACH_NO_SUCH_PROCESS", 404)
    assert f"thread of process {one.pid}" in error["message"]
    assert error["details"]["process"] == one.pid
    relay.get(f"/processes/{thread}").refused("ATTACH_NO_SUCH_PROCESS", 404)


@pytest.mark.slow
def test_it_is_not_left_frozen_by_exceptions(relay: Client, start: Start, python: str) -> None:
    one = start(FAILS, python)
    with relay.session(pause_budget=1) as session:
        attach(session, one)
        session.post("/exception-breakpoints", {"filters": ["raised"]}).ok()
        paused(session)
        time.sleep(4)  # a call would use the session
        shown = session.get().ok()
        assert (shown["status"], shown["breakpoints_suspended"]) == ("running", True)
        assert shown["held_seconds"] < 3
        # So do exceptions that are asked for anew.
        session.post("/exception-breakpoints", {"filters": ["raised"]}).ok()
        paused(session)
        assert session.get().ok()["breakpoints_suspended"] is False
        session.post("/detach").ok()
    assert one.alive


def test_it_is_not_left_frozen(relay: Client, start: Start) -> None:
    one = start(SLEEPS)
    with relay.session(pause_budget=1) as session:
        attach(session, one)
        line = one.program["line"]
        breakpoint = session.break_at(one.program, line)
        seen = session.get("/events", types="stopped", timeout=10).ok()
        assert seen["events"]
        # A long-poll uses the session as well.
        assert session.events("stopped", cursor=seen["next_cursor"], timeout=2.5) == []
        assert session.status()["status"] == "paused"
        time.sleep(2.5)  # nobody is there now
        shown = session.get().ok()
        assert (shown["status"], shown["breakpoints_suspended"]) == ("running", True)
        assert 3 <= shown["held_seconds"] < 6
        bodies = [event["body"] for event in session.events("session")]
        (told,) = (body for body in bodies if body.get("breakpoints_suspended"))
        assert "was resumed" in told["warning"]
        # The next change arms them again.
        session.patch(f"/breakpoints/{breakpoint['id']}", {"condition": "n > 0"}).ok()
        paused(session)
        assert session.get().ok()["breakpoints_suspended"] is False
        session.patch("", {"breakpoints_suspended": True}).ok()
        assert session.resume(wait=0.3)["status"] == "running"
        session.patch("", {"breakpoints_suspended": False}).ok()
        paused(session)
        session.post("/detach").ok()
    assert one.alive
