"""What multiprocessing keeps outside of processes goes with the program, as it does undebugged."""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from debug_relay.protocol.version import MARK
from debug_relay.supervisor.workers import orphan_cleanup as sweep
from tests.kit.client import Client, Session
from tests.kit.relay import Relay, eventually, marked
from tests.kit.source import Source

Write = Callable[..., Source]

HOLDER = """
    import multiprocessing, sys, time
    from multiprocessing.shared_memory import SharedMemory

    shared = SharedMemory(name=sys.argv[1], create=True, size=5_000_000)
    multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,)).start()
    print("up", flush=True)
    time.sleep(600)
"""
# It looks like a tracker and is none: it neither ends by itself nor stands still.
IMPOSTOR = """
    import subprocess, sys, time

    code = "from multiprocessing.resource_tracker import main;import subprocess,time\\n"
    code += "while True: subprocess.Popen(['sleep', '600']); time.sleep(0.02)"
    subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    print("up", flush=True)
    time.sleep(600)
"""
# In its tracker: as on a machine so busy that it takes 0.7 s until it has started.
HINDERED = """
import sys, time

if "resource_tracker" in " ".join(getattr(sys, "orig_argv", ())):
    began = time.monotonic()
    while time.monotonic() < began + 0.7:
        pass
"""


@pytest.fixture
def hindered(source: Write) -> dict[str, str]:
    """The environment of a program whose tracker is."""
    return {"PYTHONPATH": str(source(HINDERED, "hindered/sitecustomize.py").path.parent)}


@pytest.fixture
def shared() -> Iterator[Path]:
    """A block of shared memory that there is not yet."""
    path = Path("/dev/shm") / f"relay_{secrets.token_hex(8)}"
    yield path
    path.unlink(missing_ok=True)


def up(session: Session, program: Source, *args: str, **on: object) -> None:
    session.launch(program, wait=0, args=list(args), **on)
    eventually(lambda: session.printed("stdout").split() == ["up"])


def trackers(session: Session) -> list[psutil.Process]:
    return [one for one in marked(session.id) if "resource_tracker" in " ".join(one.cmdline())]


@pytest.mark.parametrize(
    ("hows", "on"),
    [(("restart", "terminate", "kill", "delete"), {}), (("restart", "kill"), {"pty": True})],
    ids=["pipes", "terminal"],
)
def test_shared_memory_goes_with_its_program(
    relay: Client,
    source: Write,
    shared: Path,
    hows: tuple[str, ...],
    on: dict[str, bool],
    python: str,
) -> None:
    with relay.session(python_path=python) as session:
        up(session, source(HOLDER), shared.name, **on)
        for runs, how in enumerate(hows, 2):
            assert shared.exists()
            if how in ("terminate", "kill"):
                session.post("/terminate", {"grace": 0 if how == "kill" else 2}).ok()
                assert not shared.exists(), how
            if how != hows[-1]:
                # The new run could not create it if the old one's were left.
                session.post("/restart", {"wait": 0}).ok()
                eventually(lambda n=runs: session.printed("stdout").splitlines().count("up") == n)
        began = time.monotonic()
        session.delete().ok()
        assert time.monotonic() - began < 3.0
        assert not shared.exists()
        assert marked(session.id) == []


def test_a_tracker_that_was_stopped_goes_on_to_tidy_up(
    relay: Client, source: Write, shared: Path
) -> None:
    with relay.session() as session:
        up(session, source(HOLDER), shared.name)
        (tracker,) = trackers(session)
        tracker.send_signal(signal.SIGSTOP)
        session.delete().ok()
        assert not shared.exists()
        assert marked(session.id) == []


def test_a_tracker_that_waits_for_a_processor_is_waited_for(
    relay: Client, source: Write, shared: Path, hindered: dict[str, str]
) -> None:
    with relay.session() as session:
        up(session, source(HOLDER), shared.name, env=hindered)
        session.delete().ok()
        assert not shared.exists()
        assert marked(session.id) == []


def test_what_only_looks_like_a_tracker_is_ended_all_the_same(relay: Client, source: Write) -> None:
    with relay.session() as session:
        up(session, source(IMPOSTOR))
        assert len(trackers(session)) == 1
        session.delete().ok()
        assert marked(session.id) == []


def test_shared_memory_goes_when_the_worker_is_killed(
    shared_relay: Relay, relay: Client, source: Write, shared: Path, hindered: dict[str, str]
) -> None:
    session = relay.session()
    up(session, source(HOLDER), shared.name, env=hindered)
    shared_relay.worker(session.id).kill()
    eventually(lambda: session.status()["status"] == "failed")
    eventually(lambda: not marked(session.id))
    assert not shared.exists()


def test_the_relay_waits_for_a_tracker_no_longer_than_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code = "from multiprocessing.resource_tracker import main;import time;time.sleep(600)"
    mark = f"sess_{secrets.token_hex(4)}"
    monkeypatch.setenv(MARK, mark)
    left = psutil.Popen(["python3", "-c", code], start_new_session=True)
    monkeypatch.delenv(MARK)
    eventually(lambda: sweep.carries(left.pid, f"{MARK}={mark}".encode()))
    assert sweep.end_marked(mark) == [left.pid]
    assert left.wait(5) == -signal.SIGKILL
