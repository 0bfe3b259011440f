"""A pause that does not reach its thread at once; and stacks that are deep."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.client import Client, Session
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

Write = Callable[..., Source]

BLOCKED = {
    "lock": "lock.acquire()",
    "recv": "ours.recv(1)",
    "queue": "items.get()",
}
PROGRAM = """
    import queue, socket, threading, time
    ours, theirs = socket.socketpair()
    items = queue.Queue()
    lock = threading.Lock()
    lock.acquire()
    begun = threading.Event()
    freed = threading.Event()

    def waits():
        begun.set()
        BLOCKED  # @blocked
        freed.set()  # @after

    def free():
        lock.release()
        theirs.send(b"1")
        items.put(1)

    thread = threading.Thread(target=waits, name="waits")
    thread.start()
    begun.wait()
    print("up", flush=True)
    MAIN
    thread.join()
"""
SPINS = "while not freed.is_set():\n        time.sleep(0.001)"


def id_of(session: Session, name: str) -> int:
    listed = session.get("/threads").ok()["threads"]
    return int(next(thread["id"] for thread in listed if thread["name"] == name))


def thread(session: Session, id: int) -> Any:
    return next(t for t in session.get("/threads").ok()["threads"] if t["id"] == id)


def up(session: Session, program: Source) -> None:
    session.launch(program, wait=0)
    session.events("output", timeout=20)


@pytest.mark.parametrize("kind", BLOCKED)
def test_a_thread_in_c_is_told_where_it_is_and_stops_when_it_returns(
    relay: Client, source: Write, python: str, kind: str
) -> None:
    program = source(PROGRAM.replace("BLOCKED", BLOCKED[kind]).replace("MAIN", SPINS))
    with relay.session(python_path=python, stop_all=False) as session:
        up(session, program)
        waits = id_of(session, "waits")
        answer = session.post(f"/threads/{waits}/pause", {"wait": 0.8}).ok()
        assert (answer["completed"], answer["status"]) == (False, "running")
        assert answer["pause_pending"] is True
        live = answer["live_stack"]
        assert (live["thread_id"], live["live"]) == (waits, True)
        (mine,) = [frame for frame in live["frames"] if frame["name"] == "waits"]
        assert (mine["source"]["path"], mine["line"]) == (str(program), program["blocked"])
        listed = thread(session, waits)
        assert (listed["status"], listed["pause_pending"]) == ("running", True)
        # The main thread is reached; and frees it from where it stands.
        main = id_of(session, "MainThread")
        paused = session.post(f"/threads/{main}/pause").ok()
        assert (paused["thread_id"], paused["pause_pending"]) == (main, None)
        cursor = session.get("/events").ok()["next_cursor"]
        session.value("free()", thread_id=main)
        (event,) = session.events("stopped", cursor=cursor, timeout=10)
        assert (event["body"]["thread_id"], event["body"]["reason"]) == (waits, "pause")
        assert thread(session, waits)["pause_pending"] is False
        assert session.status()["stopped_threads"] == sorted([main, waits])
        assert session.resume()["exit_code"] == 0


@pytest.mark.slow
def test_where_a_stop_is_one_of_all_the_others_stand_meanwhile(
    relay: Client, source: Write, python: str
) -> None:
    program = source(PROGRAM.replace("BLOCKED", BLOCKED["lock"]).replace("MAIN", SPINS))
    with relay.session(python_path=python) as session:
        up(session, program)
        waits, main = id_of(session, "waits"), id_of(session, "MainThread")
        answer = session.post(f"/threads/{waits}/pause").ok()
        assert (answer["completed"], answer["status"]) == (True, "paused")
        assert (answer["thread_id"], answer["pause_pending"]) == (main, True)
        assert answer["live_stack"]["frames"][0]["line"] == program["blocked"]
        listed = thread(session, waits)
        assert (listed["status"], listed["pause_pending"]) == ("paused", True)
        stack = session.get(f"/threads/{waits}/stacktrace").ok()
        assert (stack["live"], stack["frames"][0]["name"]) == (True, "waits")
        session.value("free()", thread_id=main)
        assert session.resume()["exit_code"] == 0


def test_pausing_one_thread_tells_of_that_one(relay: Client, source: Write, python: str) -> None:
    spinning = "while not freed.is_set():\n            time.sleep(0.001)\n            n = 1\n"
    text = PROGRAM.replace("BLOCKED", spinning).replace("MAIN", SPINS)
    program = source(text.replace("  # @blocked", ""))
    with relay.session(python_path=python) as session:
        up(session, program)
        for name in ("waits", "MainThread", "waits"):
            id = id_of(session, name)
            began = time.monotonic()
            answer = session.post(f"/threads/{id}/pause").ok()
            assert time.monotonic() - began < 2
            assert (answer["status"], answer["thread_id"]) == ("paused", id)
            assert (answer["pause_pending"], answer["stop_reason"]) == (None, "pause")
            assert len(session.status()["stopped_threads"]) == 2
            session.resume(wait=0)
        session.post(f"/threads/{id}/pause").ok()
        session.value("freed.set()")
        assert session.resume()["exit_code"] == 0


@pytest.mark.parametrize("stop_all", [True, False])
def test_a_sleeping_main_thread_is_paused_by_its_id(
    relay: Client, source: Write, python: str, stop_all: bool
) -> None:
    program = source(
        PROGRAM.replace("BLOCKED", "lock.acquire()").replace("MAIN", "time.sleep(60)  # @sleeps")
    )
    with relay.session(python_path=python, stop_all=stop_all) as session:
        up(session, program)
        main = id_of(session, "MainThread")
        began = time.monotonic()
        answer = session.post(f"/threads/{main}/pause").ok()
        assert time.monotonic() - began < 1.0
        assert (answer["status"], answer["thread_id"]) == ("paused", main)
        assert answer["current_location"]["line"] == program["sleeps"]


@pytest.mark.parametrize("wait", ["signal.pause()", "ctypes.CDLL(None).sleep(3600)"])
def test_a_wait_for_a_signal_is_not_ended(
    relay: Client, source: Write, python: str, wait: str
) -> None:
    """Any signal ends it: a server that waits in it would end."""
    program = source(
        f"""
        import ctypes, os, signal
        signal.signal(signal.SIGUSR1, lambda *_: print("signal"))
        print("up", flush=True)
        {wait}  # @pause
        print("over")
        """
    )
    with relay.session(python_path=python) as session:
        up(session, program)
        answer = session.post("/pause", {"wait": 0.8}).ok()
        assert (answer["status"], answer["pause_pending"]) == ("running", True)
        assert answer["live_stack"]["frames"][0]["line"] == program["pause"]
        assert session.printed() == "up\n"
        (one,) = session.get("/resources").ok()["processes"]
        os.kill(one["pid"], signal.SIGUSR1)
        session.events("stopped", timeout=10)
        assert session.resume()["exit_code"] == 0
        assert session.printed() == "up\nsignal\nover\n"
