"""A worker dies as by `kill -9`: its session fails, its program ends, nobody else notices."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import termios
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil

from debug_relay.protocol.version import MARK
from debug_relay.supervisor.workers import orphan_cleanup as sweep
from tests.kit.client import Client, Session
from tests.kit.relay import Relay, eventually, marked
from tests.kit.source import Source

FAMILY = """
    import subprocess, sys

    print("before", flush=True)
    own = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    other = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
    )
    x = 1  # @here
    print("never")
"""


def family(client: Client, source: Callable[..., Source], name: str = "family.py") -> Session:
    """A session at a breakpoint whose program has two children."""
    program = source(FAMILY, name)
    session = client.session()
    session.break_at(program, program["here"])
    assert session.launch(program)["status"] == "paused"
    assert len(marked(session.id)) == 3
    return session


def recorded(relay: Relay, session: Session) -> Any:
    """The session's state in its record on disk."""
    path = relay.data_dir / "sessions" / session.id / "session.json"
    return json.loads(path.read_bytes())["state"]


def kill(process: psutil.Process) -> None:
    process.kill()


def test_the_session_fails_at_once(
    relay: Client, shared_relay: Relay, source: Callable[..., Source]
) -> None:
    session = family(relay, source)
    bystander = family(relay, source, "bystander.py")
    seen = session.get("/events", limit=1000).ok()

    worker = shared_relay.worker(session.id)
    began = time.monotonic()
    kill(worker)
    eventually(lambda: session.status()["status"] == "failed")
    took = time.monotonic() - began

    assert took < 1.0
    shown = session.status()
    assert (shown["end_reason"], shown["current_location"]) == ("crashed", None)
    whole = session.get().ok()
    assert (whole["status"], whole["previous_status"]) == ("failed", "paused")
    assert (whole["worker_signal"], whole["worker_exit_code"]) == ("SIGKILL", None)
    error = session.post("/continue", {}).refused("SESSION_CRASHED", 500)
    assert session.id in error["details"]["suggestion"]
    how = "The session's worker process was ended by SIGKILL"
    assert error["message"] == f"Cannot continue: {how}"
    assert error["details"]["worker_signal"] == "SIGKILL"
    for path in ("/stacktrace", "/threads", "/breakpoints", "/frames/0/variables"):
        session.get(path).refused("SESSION_CRASHED", 500)
    # What it left can still be read.
    assert session.printed("stdout") == "before\n"
    # What the worker could not tell, in its place: by any cursor and once.
    *events, last = session.get("/events", limit=1000).ok()["events"]
    assert events == seen["events"]
    assert (last["seq"], last["type"]) == (events[-1]["seq"] + 1, "session")
    assert (last["body"]["status"], last["body"]["worker_signal"]) == ("failed", "SIGKILL")
    assert last["body"]["error"] == how
    page = session.get("/events", cursor=seen["next_cursor"]).ok()
    assert (page["session_status"], page["events"]) == ("failed", [last])
    page = session.get("/events", cursor=page["next_cursor"]).ok()
    assert (page["events"], page["dropped"]) == ([], 0)
    eventually(lambda: marked(session.id) == [], what="program and children gone")
    # The other session has noticed nothing.
    assert bystander.step("over")["status"] == "paused"
    assert len(marked(bystander.id)) == 3
    # It does not count, and goes without a trace.
    assert relay.get("/health").ok()["active_sessions"] == 1
    assert session.delete().ok()["final_status"] == "failed"
    session.get().refused("SESSION_NOT_FOUND", 404)
    assert not (shared_relay.run_dir / session.id).exists()
    assert not (shared_relay.data_dir / "sessions" / session.id).exists()
    bystander.delete().ok()
    eventually(lambda: shared_relay.below() == [])


def test_who_waits_is_told_at_once(
    relay: Client, shared_relay: Relay, source: Callable[..., Source]
) -> None:
    program = source("import time\ntime.sleep(600)  # @here\n")
    session = relay.session()
    session.break_at(program, program["here"])
    session.launch(program)
    seen = session.get("/events", limit=1000).ok()["next_cursor"]
    with ThreadPoolExecutor(3) as pool:
        poll = pool.submit(session.get, "/events", cursor=seen, timeout=20, types="stopped")
        step = pool.submit(session.post, "/step-over", {"wait": 20})
        eventually(lambda: session.status()["status"] == "running")
        seen = session.get("/events", limit=1000).ok()["next_cursor"]
        news = pool.submit(session.events, cursor=seen, timeout=20)
        # All are at the relay before the worker goes.
        eventually(lambda: shared_relay.calls() == 3)
        began = time.monotonic()
        kill(shared_relay.worker(session.id))
        page = poll.result(30).ok()
        step.result(30).refused("SESSION_CRASHED", 500)
    assert time.monotonic() - began < 5
    assert page["session_status"] == "failed"
    assert [event["body"]["status"] for event in news.result()] == ["failed"]


def test_a_worker_killed_while_no_supervisor_was_there(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    relay = own_relay()
    session = family(relay.client, source)
    bystander = family(relay.client, source, "bystander.py")
    seen = session.get("/events", limit=1000).ok()["events"]
    worker = relay.worker(session.id)
    # A stop waits for no disk: the record has it a moment later.
    eventually(lambda: recorded(relay, session)["status"] == "paused")
    relay.kill()
    kill(worker)
    eventually(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE)
    relay.start()
    session, bystander = (Session(relay.client, one.id) for one in (session, bystander))
    # Nobody saw it fail: it comes back as after a reboot.
    shown = session.get().ok()
    assert (shown["status"], shown["restored"]) == ("created", True)
    assert (shown["previous_status"], shown["end_reason"]) == ("paused", None)
    assert session.printed("stdout") == "before\n"
    assert session.events() == seen
    assert marked(session.id) == []
    session.post("/continue", {}).refused("INVALID_SESSION_STATE", 409)
    assert bystander.step("over")["status"] == "paused"
    session.delete().ok()
    assert not (relay.run_dir / session.id).exists()
    assert not (relay.data_dir / "sessions" / session.id).exists()


def test_a_worker_killed_during_launch(
    relay: Client, shared_relay: Relay, source: Callable[..., Source]
) -> None:
    program = source("import time\ntime.sleep(600)\n")
    session = relay.session()
    with ThreadPoolExecutor(1) as pool:
        launch = pool.submit(session.try_launch, program, wait=60)
        eventually(lambda: marked(session.id))
        kill(shared_relay.worker(session.id))
        launch.result(20).refused("SESSION_CRASHED", 500)
    assert session.status()["status"] == "failed"
    eventually(lambda: marked(session.id) == [])
    session.delete().ok()


def test_no_dead_children_are_left_unreaped(
    relay: Client, shared_relay: Relay, source: Callable[..., Source]
) -> None:
    for _ in range(3):
        session = family(relay, source)
        kill(shared_relay.worker(session.id))
        eventually(lambda one=session: one.status()["status"] == "failed")
        session.delete().ok()
    eventually(lambda: shared_relay.below() == [])


def test_by_its_mark_alone_nothing_ends_that_has_a_terminal(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    """As a window that a debugged test has opened in its user's tmux: no descendant of ours."""
    relay = own_relay()
    session = family(relay.client, source)
    marked_too = {**os.environ, MARK: session.id}
    terminal, slave = os.openpty()
    inside = subprocess.Popen(
        ["sleep", "600"],
        env=marked_too,
        stdin=slave,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    outside = subprocess.Popen(["sleep", "600"], env=marked_too, start_new_session=True)
    try:
        kill(relay.worker(session.id))
        eventually(lambda: outside.poll() is not None)
        eventually(lambda: [process.pid for process in marked(session.id)] == [inside.pid])
        assert inside.poll() is None
    finally:
        inside.kill()
        inside.wait()
        outside.kill()
        outside.wait()
        os.close(terminal)
        os.close(slave)


def test_who_is_in_the_midst_of_exec_is_found_by_its_mark() -> None:
    """`Popen` returns before the kernel shows the new environment: once in some fifty tries."""
    for _ in range(300):
        program = subprocess.Popen(["sleep", "600"], env={**os.environ, MARK: "sess_exec"})
        try:
            assert sweep.carries(program.pid, f"{MARK}=sess_exec".encode())
        finally:
            program.kill()
            program.wait()
