"""What becomes of calls while something else ends: their client, their session, the relay."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from tests.kit.client import Answer, Client
from tests.kit.faulty import with_fault
from tests.kit.relay import Relay, eventually
from tests.kit.wire import Wire

ENDLESS = "import time\ntime.sleep(600)\n"
# Between a worker's birth and the first word with it there is time for other calls.
SLOW_TO_MEET = """
import asyncio
from debug_relay.supervisor.sessions.mirror import Session

join = Session._open_link

async def later(self, child, timeout):
    await asyncio.sleep(1.5)
    await join(self, child, timeout)

Session._open_link = later
"""


def only_session(relay: Client, status: str) -> str:
    """The id of the one session there is, when it has come to that."""

    def found() -> str | None:
        items = relay.get("/sessions").ok()["items"]
        return items[0]["session_id"] if [one["status"] for one in items] == [status] else None

    id = eventually(found, what=f"a session that is {status}")
    assert isinstance(id, str)
    return id


def test_a_run_whose_session_is_deleted(relay: Client) -> None:
    """Who waits for news of a session that is given up must not hold up everybody else."""
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(relay.post, "/run", {"code": ENDLESS, "timeout": 30})
        id = only_session(relay, "running")
        began = time.monotonic()
        relay.delete(f"/sessions/{id}").ok()
        run.result(20).refused("SESSION_NOT_FOUND", 404)
        assert time.monotonic() - began < 10


def test_an_attach_that_waits_for_its_process(relay: Client, shared_relay: Relay) -> None:
    session = relay.session()
    with ThreadPoolExecutor(1) as pool:
        sought = {"match": "no command line has this", "wait_seconds": 30}
        waiting = pool.submit(session.post, "/attach", sought)
        eventually(shared_relay.calls)
        began = time.monotonic()
        session.delete().ok()
        waiting.result(20).refused("SESSION_NOT_FOUND", 404)
        assert time.monotonic() - began < 10


def test_a_client_that_leaves_while_its_session_is_made(relay: Client, shared_relay: Relay) -> None:
    """The launch follows all the same; and where that fails, the session goes."""

    def ask_and_leave(code: str) -> None:
        wire = Wire(relay)
        before = set(shared_relay.run_dir.glob("sess_*"))
        body = json.dumps({"mode": "launch", "code": code}).encode()
        with wire.connect() as sock:
            sock.sendall(wire.request("POST /api/v1/sessions", body=body))
            eventually(lambda: set(shared_relay.run_dir.glob("sess_*")) - before)

    ask_and_leave(ENDLESS)
    only_session(relay, "running")
    kept = set(shared_relay.run_dir.glob("sess_*"))
    ask_and_leave("x = (")
    eventually(lambda: set(shared_relay.run_dir.glob("sess_*")) == kept)
    only_session(relay, "running")


def test_a_worker_that_dies_at_its_first_launch(own_relay: Callable[..., Relay]) -> None:
    relay = own_relay()
    asked = {"mode": "launch", "code": ENDLESS, "wait": 30}
    with ThreadPoolExecutor(1) as pool:
        creating = pool.submit(relay.client.post, "/sessions", asked)
        id = only_session(relay.client, "running")
        relay.worker(id).kill()
        error = creating.result(20).refused("SESSION_CRASHED", 500)
    assert id not in error["details"]["suggestion"]
    assert relay.client.get("/sessions").ok()["items"] == []
    assert list(relay.run_dir.glob("sess_*")) == []


def test_a_session_that_is_made_while_the_relay_stops(own_relay: Callable[..., Relay]) -> None:
    """It is told so, and nothing of it outlives the relay; the key is as good as new."""
    relay = own_relay()
    kept = {"Idempotency-Key": "one"}
    body = {"mode": "launch", "code": ENDLESS}

    def create() -> Answer:
        return relay.client.post("/sessions", body, headers=kept)

    with ThreadPoolExecutor(1) as pool:
        creating = pool.submit(create)
        eventually(lambda: list(relay.run_dir.glob("sess_*")))
        relay.signal(signal.SIGTERM)
        creating.result(20).refused("SHUTTING_DOWN", 503)
    assert relay.wait() == 0
    assert relay.workers() == []
    assert list(relay.run_dir.glob("sess_*")) == []
    relay.start()
    assert create().ok(201)["status"] in ("launching", "running")


def test_who_waits_while_the_relay_is_replaced(own_relay: Callable[..., Relay]) -> None:
    """The session goes on: nobody may be told that it is gone."""
    relay = own_relay()
    session = relay.client.session()
    session.launch(code="breakpoint()\n" + ENDLESS)
    with ThreadPoolExecutor(2) as pool:
        resumed = pool.submit(session.post, "/continue", {"wait": 60})
        eventually(lambda: session.status()["status"] == "running")
        waiting = pool.submit(session.get, "/events", types="terminated", timeout=60)
        relay.client.post("/shutdown", {"keep_sessions": True}).ok()
        for call in (resumed, waiting):
            error = call.result(20).refused("SHUTTING_DOWN", 503)
            assert f"{session.id}/status" in error["details"]["suggestion"]
    assert relay.wait() == 0
    relay.start()
    assert relay.client.get(f"/sessions/{session.id}").ok()["status"] == "running"


def test_a_delete_while_the_relay_is_replaced(own_relay: Callable[..., Relay]) -> None:
    """What was begun is done: the next relay knows nothing of the session."""
    relay = own_relay()
    session = relay.client.session()
    stubborn = "import signal\nsignal.signal(15, lambda *_: print('asked', flush=True))\n"
    program = f"{stubborn}print('ready', flush=True)\nwhile True: signal.pause()\n"
    session.launch(code=program, wait=0.1)
    eventually(lambda: "ready" in session.printed())
    with ThreadPoolExecutor(1) as pool:
        deleting = pool.submit(session.delete)
        eventually(lambda: "asked" in session.printed())
        relay.client.post("/shutdown", {"keep_sessions": True}).ok()
        deleting.result(20).ok()
    assert relay.wait() == 0
    assert list(relay.run_dir.glob("sess_*")) == []
    assert relay.workers() == []


def test_calls_to_a_session_whose_worker_is_being_born(
    own_relay: Callable[..., Relay], tmp_path: Path
) -> None:
    relay = own_relay(env=with_fault(tmp_path / "fault", SLOW_TO_MEET))
    id = relay.client.session().id
    relay.stop()
    relay.start()
    born = relay.stderr().count("worker.started")
    asked = ["/breakpoints", "/exception-breakpoints", "/export"]
    with ThreadPoolExecutor(1 + len(asked)) as pool:
        first = pool.submit(relay.client.get, f"/sessions/{id}/watch")
        eventually(lambda: relay.stderr().count("worker.started") > born)
        others = list(pool.map(lambda path: relay.client.get(f"/sessions/{id}{path}"), asked))
        answers = [first.result(20), *others]
    assert [answer.status for answer in answers] == [200] * len(answers)


def test_a_worker_that_hangs_when_its_relay_comes_back(own_relay: Callable[..., Relay]) -> None:
    relay = own_relay()
    session = relay.client.session()
    session.launch(code=ENDLESS, wait=0.1)
    worker = relay.worker(session.id)
    relay.kill()
    worker.suspend()
    relay.start()
    answer = relay.client.get(f"/sessions/{session.id}/breakpoints")
    answer.refused("WORKER_UNRESPONSIVE", 504)
    relay.kill()
    # And one that dies while the next relay waits for its answer.
    with ThreadPoolExecutor(1) as pool:
        before = relay.pid
        starting = pool.submit(relay.start)
        eventually(lambda: relay.pid != before and holds_a_process(relay.pid))
        worker.kill()
        starting.result(20)
    shown = relay.client.get(f"/sessions/{session.id}").ok()
    assert (shown["status"], shown["end_reason"]) == ("failed", "crashed")
    assert shown["worker_unresponsive"] is False


def holds_a_process(pid: int) -> bool:
    """Whether it has a handle on another: of those, a relay that starts has its workers first."""
    folder = f"/proc/{pid}/fd"
    with suppress(OSError):
        return any("pidfd" in os.readlink(f"{folder}/{name}") for name in os.listdir(folder))
    return False


def test_an_event_behind_many_of_other_kinds(relay: Client, tmp_path: Path) -> None:
    """One look goes through so many records; a long-poll looks on, and does not wait for news."""
    program = tmp_path / "long.py"
    program.write_text("x = 1\n" * 2100)
    session = relay.session()
    entries = [{"file": str(program), "line": line} for line in range(1, 2101)]
    session.post("/breakpoints", {"breakpoints": entries}).ok()
    session.post("/lease", {"holder": "ann"}).ok()
    began = time.monotonic()
    page = session.get("/events", types="session", timeout=30).ok()
    assert [event["type"] for event in page["events"]] == ["session"]
    assert page["dropped"] == 0
    assert time.monotonic() - began < 10
