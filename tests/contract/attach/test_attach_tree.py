"""Attaching to a program with all its processes: `tree`."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.apps import Request, Served, Started
from tests.kit.client import Client, Session
from tests.kit.relay import eventually
from tests.kit.running import Running
from tests.kit.source import Source
from tests.meta.documents import block

POOL = """
    import multiprocessing, os, sys, time

    def work(n):
        doubled = n * 2  # @line
        return doubled

    if __name__ == "__main__":
        method = multiprocessing.get_context(sys.argv[1])
        with method.Pool(2) as pool:
            assert pool.map(work, range(4)) == [0, 2, 4, 6]
            print("up", flush=True)
            while sys.stdin.readline():
                print(sum(pool.map(work, range(4))), flush=True)
"""

EXECUTES = """
    import os, sys, time

    def work(n):
        doubled = n * 2  # @line
        return doubled

    if sys.argv[1] == "parent":
        child = os.fork()
        if child == 0:
            sys.stdin.readline()
            os.execv(sys.executable, [sys.executable, __file__, "again"])
        print(child, flush=True)
        os.waitpid(child, 0)
    while True:
        work(1)
        time.sleep(0.01)
"""


def told(session: Session, reason: str) -> set[int]:
    bodies = [event["body"] for event in session.events("subprocess")]
    return {body["pid"] for body in bodies if body["reason"] == reason}


def attach(session: Session, pid: int, **fields: Any) -> None:
    documented = json.loads(block("attach-tree"))
    session.post("/attach", {**documented, "pid": pid, "connect_timeout": 30, **fields}).ok()


def paused(session: Session) -> None:
    eventually(lambda: session.status()["status"] == "paused", timeout=20)


def test_a_prefork_server(relay: Client, tmp_path: Path) -> None:
    """Workers that are there, one born later, and all of them free afterwards."""
    served = Served("gunicorn", tmp_path)
    served.command += ["--workers", "2"]
    server = Started(served)
    try:
        eventually(lambda: len(server.children()) == 2, what="two workers")
        workers = set(server.children())
        with relay.session() as alone:
            attach(alone, server.pid, tree=False)
            assert told(alone, "found") == workers
            alone.post("/detach").ok()
        with relay.session() as session, relay.session() as other:
            attach(session, server.pid)
            assert told(session, "attached") == workers
            # Another session is refused a worker, too.
            refused = other.post("/attach", {"pid": min(workers), "connect_timeout": 30}).refused(
                "ATTACH_ALREADY_ATTACHED"
            )
            assert refused["details"]["session_id"] == session.id
            assert set(session.get().ok()["child_pids"]) == workers
            told_of_one = relay.get(f"/processes/{min(workers)}").ok()
            assert (told_of_one["debugged_by"], told_of_one["attachable"]) == (session.id, False)
            session.break_at(served.handler, served.handler["handler"])
            stands_in(session, served, 4, workers)
            # A worker that dies leaves the session; the one in its place comes.
            for count, victim in enumerate(sorted(workers), start=3):
                os.kill(victim, signal.SIGKILL)
                eventually(lambda victim=victim: victim in told(session, "exited"))
                eventually(lambda count=count: len(told(session, "attached")) == count, timeout=20)
            born = told(session, "attached") - workers
            stands_in(session, served, 5, born)
            request = Request(served, 6)
            paused(session)
            session.post("/detach").ok()
            assert request.answer() == "12"
            assert session.get().ok()["child_pids"] == []
        assert served.ask(7) == "14"
        assert born == set(server.children())
        assert "Traceback" not in server.log.read_text()
    finally:
        server.end()


def stands_in(session: Session, served: Served, n: int, pids: set[int]) -> None:
    request = Request(served, n)
    eventually(lambda: request.is_answered or session.status()["status"] == "paused", timeout=20)
    assert not request.is_answered, "nobody stopped"
    thread = session.get("/snapshot").ok()["stop"]["thread"]
    assert thread["pid"] in pids
    assert thread["is_child"] is True
    assert int(session.locals()["n"]) == n
    assert session.step()["child_pid"] == thread["pid"]
    assert int(session.locals()["doubled"]) == 2 * n
    session.resume(wait=0)
    assert request.answer() == str(2 * n)


@pytest.mark.slow
def test_a_pool(relay: Client, source: Callable[..., Source], python: str) -> None:
    """Forked and spawned workers; what is no Python and trackers are left alone."""
    for method in ("fork", "spawn"):
        one = Running(source(POOL, f"{method}.py"), python, method)
        try:
            assert one.line() == "up"
            with relay.session() as session:
                attach(session, one.pid)
                workers = told(session, "attached")
                assert len(workers) == 2
                # The tracker of a spawned pool's resources.
                assert len(told(session, "released")) == (method == "spawn")
                point = session.break_at(one.program, one.program["line"], condition="n == 3")
                assert one.process.stdin is not None
                one.process.stdin.write("go\n")
                one.process.stdin.flush()
                paused(session)
                assert session.status()["stopped_threads"]
                assert session.get("/snapshot").ok()["stop"]["thread"]["pid"] in workers
                assert session.value("n") == "3"
                session.post("/detach").ok()
                assert one.line() == "12"
                assert session.get(f"/breakpoints/{point['id']}").ok()["hit_count"] == 1
            assert one.alive
            assert one.stderr() == ""
        finally:
            one.end()


@pytest.mark.slow
def test_a_child_executes_another(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    """It comes again, as what it is now."""
    one = Running(source(EXECUTES), python, "parent")
    child = int(one.line())
    try:
        with relay.session() as session:
            attach(session, one.pid)
            session.break_at(one.program, one.program["line"])
            assert one.process.stdin is not None
            one.process.stdin.write("go\n")
            one.process.stdin.flush()
            paused(session)
            assert session.get("/snapshot").ok()["stop"]["thread"]["pid"] == child
            reasons = [event["body"]["reason"] for event in session.events("subprocess")]
            assert reasons == ["attached", "released", "attached"]
            session.post("/detach").ok()
            eventually(lambda: not connected(child), what="let go")
    finally:
        os.kill(child, signal.SIGKILL)
        one.end()


@pytest.mark.slow
def test_the_end_of_the_root(relay: Client, source: Callable[..., Source], python: str) -> None:
    """Its children run on, and are free."""
    one = Running(source(POOL), python, "fork")
    with relay.session() as session:
        assert one.line() == "up"
        attach(session, one.pid)
        workers = told(session, "attached")
        assert len(workers) == 2
        one.end()
        eventually(lambda: session.status()["status"] == "terminated")
        assert session.status()["end_reason"] == "target_lost"
        for pid in workers:
            os.kill(pid, 0)  # nobody has ended them
            eventually(lambda pid=pid: not connected(pid), what="let go")
            os.kill(pid, signal.SIGKILL)


def connected(pid: int) -> bool:
    """Whether a thread of the debugger's is still in it."""
    return len(os.listdir(f"/proc/{pid}/task")) > 1
