"""A worker that hangs: calls end at their deadline, status goes on, and it is not given up."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.kit.relay import Relay, eventually, marked
from tests.kit.source import Source

PROGRAM = "x = 5\ny = x  # @here\nz = y  # @next\n"


@pytest.mark.long
def test_a_stopped_worker_and_its_return(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    relay = own_relay()
    program = source(PROGRAM)
    session, other = relay.client.session(), relay.client.session()
    for one in (session, other):
        one.break_at(program, program["here"])
        one.launch(program)
    worker = relay.worker(session.id)
    worker.suspend()
    began = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        # This call may last two seconds; for a silent worker request_timeout is not added to that.
        asked = pool.submit(session.post, "/evaluate", {"expression": "x", "timeout": 2})
        # Meanwhile nobody else waits, and what is known is told.
        assert session.status()["status"] == "paused"
        assert session.get("/output").status == 200
        assert other.step("over")["current_location"]["line"] == program["next"]
        error = asked.result(30).refused("WORKER_UNRESPONSIVE", 504)
        assert time.monotonic() - began < 10
    assert "force=true" in error["details"]["suggestion"]
    eventually(lambda: session.status()["worker_unresponsive"])
    assert other.status()["worker_unresponsive"] is False
    # Known to be silent: the next call is not kept waiting as long.
    began = time.monotonic()
    session.get("/threads").refused("WORKER_UNRESPONSIVE", 504)
    assert time.monotonic() - began < 4
    worker.resume()
    eventually(lambda: not session.status()["worker_unresponsive"], timeout=15)
    assert session.value("x") == "5"
    assert session.step("over")["current_location"]["line"] == program["next"]
    assert session.resume()["exit_code"] == 0


@pytest.mark.long
def test_nobody_waits_for_one_as_long_as_the_call_may_last(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    relay = own_relay()
    program = source("import time\nx = 5  # @here\ntime.sleep(600)\n")
    session = relay.client.session()
    session.break_at(program, program["here"])
    session.launch(program)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(session.post, "/continue", {"wait": 300})
        eventually(lambda: session.status()["status"] == "running")
        relay.worker(session.id).suspend()
        began = time.monotonic()
        error = asked.result(60).refused("WORKER_UNRESPONSIVE", 504)
    assert "has answered nothing for" in error["message"]
    assert time.monotonic() - began > 10, "a call that may last long is given up later"
    session.delete(force="true").ok()


def test_force_deletes_what_does_not_answer(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    relay = own_relay()
    program = source(PROGRAM)
    session = relay.client.session()
    session.break_at(program, program["here"])
    session.launch(program)
    worker = relay.worker(session.id)
    worker.suspend()
    assert session.delete(force="true").ok()["deleted"] is True
    session.get().refused("SESSION_NOT_FOUND", 404)
    eventually(lambda: not worker.is_running())
    eventually(lambda: marked(session.id) == [])
    assert not (relay.run_dir / session.id).exists()


def test_a_stopped_worker_is_found_by_the_next_supervisor(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    relay = own_relay()
    program = source(PROGRAM)
    session = relay.client.session()
    session.break_at(program, program["here"])
    session.launch(program)
    worker = relay.worker(session.id)
    worker.suspend()
    relay.kill()
    relay.start()
    session.client = relay.client
    assert session.status()["worker_unresponsive"] is True
    worker.resume()
    eventually(lambda: not session.status()["worker_unresponsive"], timeout=15)
    assert session.value("x") == "5"


def test_force_hurries_a_delete_that_waits(own_relay: Callable[..., Relay]) -> None:
    relay = own_relay()
    session = relay.client.session()
    worker = relay.worker(session.id)
    worker.suspend()
    with ThreadPoolExecutor(1) as pool:
        began = time.monotonic()
        patient = pool.submit(session.delete)
        eventually(lambda: relay.calls() == 1)
        # Both wait for the same end; who comes after it finds no session any more.
        statuses = {session.delete(force="true").status, patient.result(20).status}
        assert 200 in statuses
        assert statuses <= {200, 404}
    assert time.monotonic() - began < 8
    eventually(lambda: not worker.is_running())
