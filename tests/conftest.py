"""Fixtures for all tests: a relay, programs to debug, and the leak guard around every test."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.kit.client import Client
from tests.kit.relay import Relay, eventually, marked
from tests.kit.source import Source, interpreters


@pytest.fixture(scope="session")
def shared_relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relay]:
    """One relay for all tests that do not harm it."""
    relay = Relay(
        tmp_path_factory.mktemp("relay") / "data",
        env={"OPENCODE_DEBUG_SESSIONS__MAX_SESSIONS": "40"},
    ).start()
    yield relay
    assert relay.stop() == 0
    assert relay.workers() == []


@pytest.fixture
def relay(shared_relay: Relay) -> Iterator[Client]:
    """The shared relay's client. Afterwards its sessions, processes and descriptors are gone."""
    process = psutil.Process(shared_relay.pid)
    client = shared_relay.client
    # One call before the count: what the relay opens once and keeps is no leak.
    client.get("/health").ok()
    descriptors = process.num_fds()
    yield client
    ids = [item["session_id"] for item in client.get("/sessions", limit=1000).ok()["items"]]
    for id in ids:
        client.delete(f"/sessions/{id}", force="true")
    eventually(lambda: process.num_fds() <= descriptors, what="descriptors of the relay given back")
    eventually(lambda: process.children() == [], what="workers of the relay gone")
    for id in ids:
        eventually(lambda id=id: marked(id) == [], what=f"programs of {id} gone")


@pytest.fixture
def own_relay(tmp_path: Path) -> Iterator[Callable[..., Relay]]:
    """Starts relays that a test may harm; ends what is left of them."""
    started: list[Relay] = []

    def start(*flags: str, name: str = "data", env: dict[str, str] | None = None) -> Relay:
        relay = Relay(tmp_path / name, *flags, env=env).start()
        started.append(relay)
        return relay

    yield start
    for relay in started:
        relay.stop()
        for worker in relay.workers():
            worker.kill()
        assert relay.workers() == [] or eventually(lambda r=relay: r.workers() == [])
        if not relay.run_dir.is_relative_to(relay.data_dir):
            shutil.rmtree(relay.run_dir)  # below /tmp, where nobody else tidies up


@pytest.fixture
def source(tmp_path: Path) -> Callable[..., Source]:
    """Write a program to debug."""

    def write(text: str, name: str = "program.py") -> Source:
        return Source(tmp_path / name, text)

    return write


@pytest.fixture(params=["3.8", "3.11", "3.12", "3.13"])
def python(request: pytest.FixtureRequest) -> str:
    """An interpreter of each version whose debugging differs."""
    found = interpreters().get(request.param)
    if found is None:
        pytest.skip(f"no CPython {request.param} on this machine")
    return found
