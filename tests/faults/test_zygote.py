"""Workers are forked from a zygote. It may die, hang or be missing: sessions begin all the same."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.kit.client import Client, Session
from tests.kit.relay import Relay, eventually
from tests.kit.source import Source


def how_born(relay: Relay, session: Session) -> str:
    """As the log tells it."""

    def told() -> list[str]:
        lines = map(json.loads, (relay.data_dir / "logs" / "relay.log").read_text().splitlines())
        return [
            line["how"]
            for line in lines
            if line["event"] == "worker.started" and line["session_id"] == session.id
        ]

    [found] = eventually(told)  # type: ignore[misc]
    return str(found)


def zygote_of(relay: Relay) -> psutil.Process:
    found = eventually(lambda: relay.zygote, what="a zygote")
    assert isinstance(found, psutil.Process)
    return found


def facts(process: psutil.Process) -> dict[str, object]:
    """What a worker must have whichever way it was born."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    lines = dict(line.split(":\t") for line in status.splitlines() if ":\t" in line)
    own_place = [path for path in descriptors(process) if "/sess_" not in path]
    return {
        "parent": process.ppid(),
        "leads": os.getsid(process.pid) == os.getpgid(process.pid) == process.pid,
        "name": process.name().startswith("sess_"),
        "command": [*process.cmdline()[:-2], process.cmdline()[-1].startswith("sess_")],
        "cwd": process.cwd(),
        "environ": process.environ(),
        "descriptors": sorted(path.partition(":")[0] for path in own_place),
        **{name: lines[name] for name in ("SigIgn", "SigCgt", "SigBlk", "Umask", "Uid", "Threads")},
        "oom": Path(f"/proc/{process.pid}/oom_score_adj").read_text(),
    }


def descriptors(process: psutil.Process) -> list[str]:
    folder = Path(f"/proc/{process.pid}/fd")
    return [os.readlink(link) for link in folder.iterdir()]


def test_forked_and_executed_workers_are_alike(own_relay: Callable[..., Relay]) -> None:
    relay = own_relay(forked=False)
    zygote = zygote_of(relay)
    forked = relay.client.session()
    assert how_born(relay, forked) == "forked"
    zygote.kill()
    executed = relay.client.session()
    assert how_born(relay, executed) == "executed"
    one, other = (facts(relay.worker(session.id)) for session in (forked, executed))
    assert one == other
    assert one["parent"] == relay.pid
    # The dead one was followed by another.
    assert zygote_of(relay) != zygote
    assert how_born(relay, relay.client.session()) == "forked"


def test_a_zygote_that_hangs_delays_one_session(own_relay: Callable[..., Relay]) -> None:
    relay = own_relay()
    relay.client.session()
    zygote = zygote_of(relay)
    zygote.suspend()
    assert how_born(relay, relay.client.session()) == "executed"
    eventually(lambda: not zygote.is_running() or zygote.status() == psutil.STATUS_ZOMBIE)
    assert how_born(relay, relay.client.session()) == "forked"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_with_its_relay_and_its_workers_do_not(
    own_relay: Callable[..., Relay], source: Callable[..., Source], number: signal.Signals
) -> None:
    relay = own_relay("--keep-sessions")
    zygote = zygote_of(relay)
    program = source("x = 1\ny = 2  # @here\n")
    session = relay.client.session()
    session.break_at(program, program["here"])
    assert session.launch(program)["status"] == "paused"
    worker = relay.worker(session.id)
    relay.signal(number)
    relay.wait()
    eventually(lambda: not zygote.is_running(), what="the zygote's end")
    assert worker.is_running()
    relay.start()
    session = Session(relay.client, session.id)
    assert session.value("x") == "1"
    assert zygote_of(relay).pid != zygote.pid
    # Nobody's child any more, and yet ended and swept as if it were.
    session.delete().ok()
    eventually(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE)


def test_the_relay_and_its_zygote_are_not_to_be_attached_to(
    relay: Client, shared_relay: Relay
) -> None:
    session = relay.session()
    zygote = zygote_of(shared_relay)
    for pid in (shared_relay.pid, zygote.pid, shared_relay.worker(session.id).pid):
        session.post("/attach", {"pid": pid}).refused("ATTACH_SELF", 409)
    assert relay.get(f"/processes/{zygote.pid}").ok()["attachable"] is False
