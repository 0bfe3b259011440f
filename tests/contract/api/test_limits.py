"""Limits over a session's whole process tree: warned of, passed, changed, and what then ends."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.kit.client import Client, Session
from tests.kit.listening import Listening
from tests.kit.relay import Relay, eventually, marked
from tests.kit.running import Witness
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

Write = Callable[..., Source]

# Each grows slowly enough to be warned of, and not for ever.
HOG = """
    import time
    kept = []
    for _ in range(100):
        kept.append(b"x" * 3_000_000)
        time.sleep(0.05)
    time.sleep(600)
"""
SPINNER = """
    import subprocess, sys
    burn = "import time\\nwhile time.process_time() < 0.5: pass"
    while True:
        subprocess.run([sys.executable, "-S", "-c", burn])  # what a child has used counts
"""
SLEEPER = "import time\nprint('here', flush=True)\ntime.sleep(600)\n"
PRINTER = """
    import time
    for _ in range(1500):
        print("x" * 20_000, flush=True)
        time.sleep(0.01)
"""
# Every one of them in a session of its own, away from its parent, without the mark.
BOMB = """
    import os, time
    for _ in range(55):
        if os.fork() == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
            os.execve("/bin/sleep", ["sleep", "600"], {})
        time.sleep(0.03)
    time.sleep(600)
"""
PASSES: dict[str, tuple[str, float, float, str]] = {  # program, allowed, at the most used, signal
    "memory_bytes": (HOG, 150_000_000, 320_000_000, "SIGKILL"),
    "cpu_seconds": (SPINNER, 1.5, 4.5, "SIGTERM"),
    "wall_seconds": (SLEEPER, 2.5, 4.5, "SIGTERM"),
    "output_bytes_per_second": (PRINTER, 600_000, 2_000_000, "SIGTERM"),
    "processes": (BOMB, 25, 60, "SIGKILL"),
}


def moment(event: Any) -> float:
    return datetime.fromisoformat(event["timestamp"].replace("Z", "+00:00")).timestamp()


def below(worker: psutil.Process) -> list[psutil.Process]:
    return [p for p in worker.children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("limit", PASSES)
def test_what_passes_a_limit_is_ended(
    relay: Client, shared_relay: Relay, source: Write, limit: str
) -> None:
    text, allowed, most, name = PASSES[limit]
    with relay.session() as sibling, relay.session() as session:
        standing = source("x = 41\nx += 1  # @here\n", "sibling.py")
        sibling.break_at(standing, standing["here"])
        sibling.launch(standing)
        worker = shared_relay.worker(session.id)
        ended = session.launch(source(text), wait=30, limits={limit: allowed})
        assert (ended["status"], ended["end_reason"]) == ("terminated", "limit")
        assert ended["signal"] == name
        passed = session.status()["passed_limit"]
        assert (passed["limit"], passed["allowed"]) == (limit, allowed)
        assert allowed < passed["used"] < most
        warned, told, end = session.events("process", "terminated")
        assert (warned["body"]["reason"], told["body"]["reason"]) == ("warning", "limit")
        assert warned["body"]["limit"] == told["body"]["limit"] == limit
        assert 0.8 <= warned["body"]["share"] <= 1 < told["body"]["share"]
        assert end["body"]["limit"] == passed
        assert moment(end) - moment(told) < 2
        assert told["body"]["message"] + ".\n" == session.printed("console")
        assert f"passed its limit {limit}: " in session.printed("console")
        # Whole: nothing of it is left, wherever it went.
        assert below(worker) == []
        assert marked(session.id) == []
        if limit == "processes":
            swept = end["body"]["swept"]
            assert len(swept) >= 20  # with the program, and what is just between two forks
            assert {one["command"] for one in swept if "sleep" in one["command"]} == {"sleep 600"}
            assert not any(psutil.pid_exists(one["pid"]) for one in swept)
        assert sibling.status()["status"] == "paused"
        assert sibling.value("x") == "41"
        assert sibling.events("process") == []
        assert sibling.resume()["exit_code"] == 0


TREE = """
    import os, subprocess, sys, time
    subprocess.run([sys.executable, "-S", "-c", "import time\\nwhile time.process_time() < .4: 1"])
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
    print(child.pid, flush=True)
    time.sleep(600)
"""


def test_resources_and_limits_changed_while_it_runs(relay: Client, source: Write) -> None:
    program = source(TREE)
    with relay.session(limits={"wall_seconds": 500, "processes": 50}) as session:
        empty = session.get("/resources").ok()
        assert (empty["status"], empty["processes"], empty["memory_bytes"]) == ("created", [], 0)
        assert empty["limits"]["processes"] == {"allowed": 50, "used": 0, "share": 0}
        # A launch's own go over the session's; 0 lifts one.
        pid = session.launch(program, wait=0, limits={"wall_seconds": 0})["pid"]
        child = int(str(eventually(lambda: session.printed("stdout"))))
        eventually(lambda: psutil.Process(child).status() == psutil.STATUS_SLEEPING)
        used = session.get("/resources").ok()
        first, second = used["processes"]
        assert (first["pid"], second["pid"], second["ppid"]) == (pid, child, pid)
        assert str(program) in first["command"]
        assert "time.sleep(600)" in second["command"]
        assert second["start_time"] == pytest.approx(psutil.Process(child).create_time(), abs=2)
        assert second["state"] == "sleeping"
        assert second["threads"] == 1
        assert second["descriptors"] == psutil.Process(child).num_fds()
        assert used["memory_bytes"] == first["memory_bytes"] + second["memory_bytes"]
        assert first["memory_bytes"] <= first["resident_bytes"]
        # The child that has ended counts.
        assert used["cpu_seconds"] >= 0.3 + first["cpu_seconds"]
        assert used["limits"]["wall_seconds"]["allowed"] == 0
        assert used["limits"]["processes"] == {"allowed": 50, "used": 2, "share": 0.04}
        text = session.get("/resources", format="text").raw.decode()
        assert f"{child} (of {pid}) sleeping" in text
        assert "processes: 2 of 50 (4%)" in text

        changed = session.patch("", {"limits": {"memory_bytes": 10**12, "processes": 2}}).ok()
        assert changed["config"]["limits"] == {
            "memory_bytes": 10**12,
            "cpu_seconds": 0,
            "processes": 2,
            "wall_seconds": 500,  # what is left out stays
            "output_bytes_per_second": 0,
        }
        (warned,) = session.events("process", timeout=5)
        assert warned["body"]["message"] == "2 of the 2 that the limit processes allows"
        assert session.status()["warning"] == warned["body"]["message"]
        session.patch("", {"limits": {"processes": 1}}).ok()
        (end,) = session.events("terminated", timeout=5)
        assert [one["pid"] for one in end["body"]["swept"]] == [child]
        assert end["body"]["limit"] == {"limit": "processes", "allowed": 1, "used": 2}
        assert (
            "passed its limit processes: 2 used, 1 allowed"
            in session.get(format="text").raw.decode()
        )
        # Run again, it has what the session allows now, counted anew.
        session.patch("", {"limits": {"processes": 0, "cpu_seconds": 100}}).ok()
        again = session.post("/restart", {"wait": 0}).ok()
        assert (again["status"], again["end_reason"]) == ("running", None)
        assert session.status()["passed_limit"] is None
        assert session.get("/resources").ok()["limits"]["cpu_seconds"]["used"] < 1


SHARED = """
    import os, time
    memory = b"x" * 60_000_000
    for _ in range(5):
        if os.fork() == 0:
            time.sleep(600)
    print("forked", flush=True)
    time.sleep(600)
"""


def test_memory_that_is_shared_counts_once(relay: Client, source: Write) -> None:
    limit = 220_000_000
    with relay.session(limits={"memory_bytes": limit}) as session:
        session.launch(source(SHARED), wait=0)
        eventually(lambda: session.printed("stdout") == "forked\n")
        used = session.get("/resources").ok()
        assert used["memory_bytes"] < limit * 0.8
        assert sum(one["resident_bytes"] for one in used["processes"]) > limit
        # It is looked at every second.
        assert session.events("process", "terminated", timeout=1.5) == []


LEAVER = """
    import os, sys
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.close(1)
        os.close(2)
        while True:
            pass
    os.wait()
    print("left", flush=True)
"""


def test_what_an_ended_program_has_left_is_bounded_too(
    relay: Client, shared_relay: Relay, source: Write
) -> None:
    with relay.session(limits={"cpu_seconds": 1}) as session:
        # Kept from being ended with the program, not from the limit.
        ended = session.launch(source(LEAVER), keep_children=True)
        assert (ended["exit_code"], ended["end_reason"]) == (0, "target_exited")
        worker = shared_relay.worker(session.id)
        (spinner,) = below(worker)
        assert [one["pid"] for one in session.get("/resources").ok()["processes"]] == [spinner.pid]
        # A worker whose session is asked about does not retire.
        eventually(lambda: session.get("/resources").ok() and len(session.events("process")) == 3)
        assert below(worker) == []
        told = [event["body"] for event in session.events("process")]
        assert [body["reason"] for body in told] == ["warning", "limit", "swept"]
        assert [one["pid"] for one in told[-1]["swept"]] == [spinner.pid]
        assert "What the program left running passed its limit cpu" in session.printed()
        assert session.status()["end_reason"] == "target_exited"


ORPHANS = """
    import os, subprocess, sys, time
    def orphan(seconds):
        pid = os.fork()
        if pid:
            return os.waitpid(pid, 0)
        os.setsid()
        if os.fork():
            os._exit(0)
        os.execve("/bin/sleep", ["sleep", seconds], {})
    orphan("0.01")
    orphan("601")
    print("ready", flush=True)
    time.sleep(600)
"""


def test_a_terminated_event_lists_what_was_ended(
    relay: Client, shared_relay: Relay, source: Write
) -> None:
    with relay.session() as session:
        session.launch(source(ORPHANS), wait=0)
        eventually(lambda: session.printed("stdout") == "ready\n")
        worker = shared_relay.worker(session.id)
        # An orphan that ends is collected, also without limits.
        eventually(lambda: len(worker.children()) == 2, what="the short-lived one is gone")
        session.post("/terminate").ok()
        (end,) = session.events("terminated")
        assert [one["command"] for one in end["body"]["swept"]] == ["sleep 601"]
        assert end["body"]["end_reason"] == "terminated"
        assert not psutil.pid_exists(end["body"]["swept"][0]["pid"])


def test_limits_hold_without_a_supervisor(own_relay: Callable[..., Relay], source: Write) -> None:
    relay = own_relay(env={"OPENCODE_DEBUG_LIMITS__WALL_SECONDS": "2.5"})
    session = relay.client.session(limits={"processes": 9})
    assert session.get().ok()["config"]["limits"]["wall_seconds"] == 2.5
    pid = session.launch(source(SLEEPER), wait=0)["pid"]
    relay.kill()
    eventually(lambda: not psutil.pid_exists(pid), what="the limit has ended it")
    relay.start()
    session = Session(relay.client, session.id)
    shown = session.get().ok()
    assert (shown["status"], shown["end_reason"]) == ("terminated", "limit")
    assert shown["passed_limit"]["limit"] == "wall_seconds"
    assert [e["body"]["reason"] for e in session.events("process")] == ["warning", "limit"]


@pytest.mark.slow
def test_an_attached_program_is_warned_about_and_let_go(
    relay: Client, tmp_path: Path, python: str
) -> None:
    witness = Witness(tmp_path, python)
    try:
        # What it had used before does not count.
        witness.ask("sum(range(80_000_000))")
        assert sum(psutil.Process(witness.pid).cpu_times()[:2]) > 0.3
        with relay.session(limits={"cpu_seconds": 60, "wall_seconds": 3}) as session:
            session.post("/attach", {"pid": witness.pid, "connect_timeout": 40}).ok()
            used = session.get("/resources").ok()
            assert used["processes"][0]["pid"] == witness.pid
            assert used["limits"]["cpu_seconds"]["used"] < 0.3
            assert "from the attach" in used["note"]
            eventually(lambda: session.status()["status"] == "created")
            told = [event["body"] for event in session.events("process")]
            assert [body["reason"] for body in told] == ["warning", "limit"]
            assert "it is detached and keeps running" in session.printed("console")
            assert session.status()["passed_limit"]["limit"] == "wall_seconds"
            assert session.events("terminated") == []
            witness.is_free()
    finally:
        witness.end()


def test_of_a_joined_program_only_the_time_is_watched(relay: Client, source: Write) -> None:
    target = Listening(source("import time\nwhile True: time.sleep(0.01)\n").path)
    try:
        with relay.session(limits={"wall_seconds": 1, "processes": 1}) as session:
            session.post("/attach", {"port": target.port, "wait": 0}).ok()
            used = session.get("/resources").ok()
            assert used["processes"] == []
            assert "it watches only wall_seconds" in used["note"]
            eventually(lambda: session.status()["status"] == "created")
            assert session.status()["passed_limit"]["limit"] == "wall_seconds"
            assert target.process.poll() is None
    finally:
        target.end()


def test_a_run_of_one_call_has_limits_too(relay: Client) -> None:
    asked = {"code": "import time\ntime.sleep(600)", "limits": {"wall_seconds": 0.5}}
    report = relay.post("/run", asked).ok()
    assert (report["end_reason"], report["passed_limit"]["limit"]) == ("limit", "wall_seconds")
