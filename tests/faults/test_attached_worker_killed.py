"""What becomes of an attached program when our side of it dies: it runs on, as it was before."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit.client import Client, Session
from tests.kit.relay import Relay, eventually
from tests.kit.running import Witness

pytestmark = pytest.mark.one_python

ENDLESS = "exec('while True: pass')"


@pytest.fixture
def witness(tmp_path: Path, python: str) -> Iterator[Witness]:
    found = Witness(tmp_path, python)
    yield found
    found.end()


def attached(relay: Relay, witness: Witness, mark: str | None) -> Session:
    session = relay.client.session()
    session.post("/attach", {"pid": witness.pid, "connect_timeout": 30}).ok()
    if mark is not None:
        session.break_at(witness.program, witness.program[mark])
        eventually(lambda: session.status()["status"] == "paused")
    return session


def test_the_worker_is_killed(relay: Client, shared_relay: Relay, witness: Witness) -> None:
    for mark in (None, "main", "other"):
        session = attached(shared_relay, witness, mark)
        shared_relay.worker(session.id).kill()
        eventually(lambda one=session: one.status()["status"] == "failed")
        assert session.status()["end_reason"] == "crashed"
        witness.is_free()
        session.delete().ok()


def test_the_next_session_follows_at_once(
    relay: Client, shared_relay: Relay, witness: Witness
) -> None:
    """While the program is still about to let the former one go."""
    for mark in (None, "main"):
        session = attached(shared_relay, witness, mark)
        shared_relay.worker(session.id).kill()
        again = attached(shared_relay, witness, "main")
        again.post("/detach").ok()
        session.delete().ok()
    witness.is_free()


@pytest.mark.slow
def test_the_worker_is_killed_while_it_evaluates(
    relay: Client, shared_relay: Relay, witness: Witness
) -> None:
    session = attached(shared_relay, witness, "main")
    body = {"expression": ENDLESS, "timeout": 60}
    asked = threading.Thread(target=session.post, args=("/evaluate", body))
    asked.start()
    eventually(lambda: shared_relay.calls() >= 1)
    shared_relay.worker(session.id).kill()
    asked.join(20)
    witness.is_free()
    again = attached(shared_relay, witness, "main")
    again.post("/detach").ok()
    witness.is_free()


@pytest.mark.slow
def test_the_relay_stops_or_is_killed(own_relay: Callable[..., Relay], witness: Witness) -> None:
    relay = own_relay()
    session = attached(relay, witness, "main")
    relay.kill()
    # The next relay finds it.
    relay.start()
    session = Session(relay.client, session.id)
    assert session.status()["status"] == "paused"
    assert "beat" in session.locals()
    session.post("/detach").ok()
    witness.is_free()
    session.delete().ok()

    session = attached(relay, witness, "main")
    worker = relay.worker(session.id)
    relay.kill()
    # The session is its worker: it goes on, and so does its hold on the program.
    assert witness.alive
    worker.kill()
    witness.is_free()

    relay.start()
    attached(relay, witness, "main")
    assert relay.stop() == 0
    witness.is_free()


@pytest.mark.long
@pytest.mark.slow
def test_the_worker_is_stopped(own_relay: Callable[..., Relay], witness: Witness) -> None:
    """Longer than the program's side bears silence."""
    relay = own_relay()
    session = attached(relay, witness, "main")
    worker = relay.worker(session.id)
    os.kill(worker.pid, signal.SIGSTOP)
    eventually(lambda: witness.counts() == witness.before, timeout=30)
    witness.is_free()
    with relay.client.session() as another:
        eventually(lambda: session.status()["worker_unresponsive"])
        another.post("/attach", {"pid": witness.pid, "connect_timeout": 30}).ok()
        another.post("/detach").ok()
    os.kill(worker.pid, signal.SIGCONT)
    eventually(lambda: session.status()["status"] == "created", timeout=20)
    session.post("/attach", {"pid": witness.pid, "connect_timeout": 30}).ok()
    session.post("/detach").ok()
    witness.is_free()
