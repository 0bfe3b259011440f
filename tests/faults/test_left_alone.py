"""Sessions that nobody uses, and workers that nobody serves, end by themselves."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psutil

from tests.kit.client import Client
from tests.kit.relay import Relay, eventually, marked
from tests.kit.source import Source

STANDING = "x = 1\ny = 2  # @here\n"


def test_an_orphaned_worker_ends_itself_and_its_program(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    relay = own_relay(env={"OPENCODE_DEBUG_SESSIONS__ORPHAN_TIMEOUT": "0.5"})
    program = source("""
        import subprocess, sys

        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                         start_new_session=True)
        print("here")  # @here
    """)
    session = relay.client.session()
    session.break_at(program, program["here"])
    session.launch(program)
    worker = relay.worker(session.id)
    assert len(marked(session.id)) == 2
    relay.kill()
    eventually(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE)
    assert marked(session.id) == []
    assert not (relay.run_dir / session.id / "worker.sock").exists()
    # The next supervisor tells what became of it.
    relay.start()
    shown = relay.client.get(f"/sessions/{session.id}").ok()
    assert (shown["status"], shown["previous_status"]) == ("created", "paused")
    assert shown["restored"] is True


def test_an_orphaned_worker_ends_although_its_directories_are_gone(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    relay = own_relay(env={"OPENCODE_DEBUG_SESSIONS__ORPHAN_TIMEOUT": "0.5"})
    program = source(STANDING)
    sessions = [relay.client.session() for _ in range(2)]
    sessions[0].break_at(program, program["here"])
    sessions[0].launch(program)
    workers = [relay.worker(session.id) for session in sessions]
    relay.kill()
    shutil.rmtree(relay.run_dir)
    shutil.rmtree(relay.data_dir)
    for worker in workers:
        eventually(lambda w=worker: not w.is_running() or w.status() == psutil.STATUS_ZOMBIE)
    assert marked(sessions[0].id) == []


def test_a_worker_with_a_supervisor_is_no_orphan(own_relay: Callable[..., Relay]) -> None:
    relay = own_relay(env={"OPENCODE_DEBUG_SESSIONS__ORPHAN_TIMEOUT": "0.2"})
    session = relay.client.session()
    # A long-poll is a wait for something that is not to happen: two ticks of the worker's clock.
    assert session.events("terminated", timeout=2.2) == []
    assert session.status()["status"] == "created"


def test_an_idle_session_expires_and_leaves_nothing(
    relay: Client, shared_relay: Relay, source: Callable[..., Source]
) -> None:
    program = source(STANDING)
    session = relay.session(idle_timeout=1.5)
    session.break_at(program, program["here"])
    session.launch(program)
    worker = shared_relay.worker(session.id)
    # Lists do not touch.
    eventually(lambda: relay.get("/sessions").ok()["total"] == 0)
    error = session.get("/status").refused("SESSION_EXPIRED", 410)
    assert error["details"]["session_id"] == session.id
    session.post("/continue", {}).refused("SESSION_EXPIRED", 410)
    session.delete().refused("SESSION_EXPIRED", 410)
    eventually(lambda: marked(session.id) == [] and not worker.is_running())
    assert not (shared_relay.run_dir / session.id).exists()
    assert not (shared_relay.data_dir / "sessions" / session.id).exists()
    assert relay.get("/health").ok()["active_sessions"] == 0


def test_one_that_expired_while_no_supervisor_was_there(own_relay: Callable[..., Relay]) -> None:
    relay = own_relay()
    session = relay.client.session(idle_timeout=0.3)
    worker = relay.worker(session.id)
    relay.kill()
    eventually(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE)
    relay.start()
    relay.client.get(f"/sessions/{session.id}").refused("SESSION_EXPIRED", 410)
    assert not (relay.run_dir / session.id).exists()


def test_a_running_program_puts_expiry_off(relay: Client, source: Callable[..., Source]) -> None:
    program = source("import time\nprint('on', flush=True)\ntime.sleep(600)\n")
    # Of two that nobody touches, the one that stands goes and the one that runs stays.
    running = relay.session(idle_timeout=0.9)
    running.launch(program, wait=0)
    standing = relay.session(idle_timeout=0.9)
    eventually(lambda: relay.get("/sessions").ok()["total"] == 1)
    standing.get().refused("SESSION_EXPIRED", 410)
    assert relay.get("/sessions").ok()["items"][0]["status"] == "running"
    assert running.status()["status"] == "running"
    running.delete().ok()


def test_max_lifetime_bounds_a_running_program(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source("import time\ntime.sleep(600)\n")
    session = relay.session(idle_timeout=0.5, max_lifetime=1)
    session.launch(program, wait=0)
    eventually(lambda: marked(session.id) == [])
    eventually(lambda: session.get().status == 410)


def test_who_waits_uses_the_session(relay: Client, source: Callable[..., Source]) -> None:
    program = source(STANDING)
    session = relay.session(idle_timeout=3)
    session.break_at(program, program["here"])
    session.launch(program)
    seen = session.get("/events", limit=1000).ok()["next_cursor"]
    with ThreadPoolExecutor(2) as pool:
        # A poll for news, and a call that the program takes its time for.
        poll = pool.submit(session.get, "/events", cursor=seen, timeout=4.2)
        # A warning may come of a busy machine: the worker is told of the poll now and then only.
        assert [e for e in poll.result(20).ok()["events"] if "warning" not in e["body"]] == []
    assert session.status()["status"] == "paused"
    assert session.value("__import__('time').sleep(4.2)", timeout=10) == "None"
    assert session.status()["status"] == "paused"
    session.delete().ok()
