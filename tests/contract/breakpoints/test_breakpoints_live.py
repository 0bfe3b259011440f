"""Breakpoints that are set, changed and removed while a program runs: loops, threads, imports, and
two sessions on one line. Counts stay exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.client import Client, Session
from tests.kit.relay import eventually
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

THREADS = """
    import os, threading, time

    def work(k):
        value = k  # @work
        return value  # @back

    def loop(k):
        for _ in range(2500):
            work(k)

    print("up", flush=True)
    input()
    threads = [threading.Thread(target=loop, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(0)
"""
SPIN = """
    import threading

    def spin(k):
        n = 0
        while True:
            n += 1  # @hot
            n += 1  # @next

    print("up", flush=True)
    threading.Thread(target=spin, args=(1,), daemon=True).start()
    spin(2)
"""


def running(session: Session, program: Source, **fields: Any) -> None:
    assert session.launch(program, wait=0.1, **fields)["status"] == "running"
    session.events("output", timeout=20)


def hits(session: Session, id: str) -> int:
    return int(session.get(f"/breakpoints/{id}").ok()["hit_count"])


def test_hits_of_many_threads_are_counted_exactly(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    """And the turn of one of them comes exactly once."""
    program = source(THREADS)
    with relay.session(python_path=python) as session:
        running(session, program)
        odd = session.break_at(program, program["work"], condition="k % 2", hit_condition=">5000")
        turn = session.break_at(program, program["back"], hit_condition="7500")
        session.post("/input", {"input": "go\n"}).ok()
        assert len(session.events("stopped", timeout=30)) == 1
        assert hits(session, turn["id"]) >= 7500
        assert session.resume()["exit_code"] == 0
        assert len(session.events("stopped")) == 1
        assert (hits(session, odd["id"]), hits(session, turn["id"])) == (5000, 10_000)


def test_set_changed_and_removed_in_hot_threads(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(SPIN)
    with relay.session(python_path=python) as session:
        running(session, program)
        id = session.break_at(program, program["hot"], condition="k < 0")["id"]
        assert hits(session, id) == 0
        session.patch(f"/breakpoints/{id}", {"condition": "k == 1", "log_message": "x"}).ok()
        eventually(lambda: hits(session, id) > 100)
        session.patch(f"/breakpoints/{id}", {"enabled": False}).ok()
        session.get("/threads").ok()
        rested = eventually(lambda: (n := hits(session, id)) == hits(session, id) and n)
        assert hits(session, id) == rested
        stop = session.patch(
            f"/breakpoints/{id}", {"enabled": True, "condition": "k == 2", "log_message": None}
        ).ok()
        assert stop["hit_count"] >= int(str(rested))
        session.events("stopped", timeout=20)
        assert session.value("k") == "2"
        assert session.delete("/breakpoints").ok()["deleted"] == 1
        assert session.resume(wait=0.3)["status"] == "running"
        assert len(session.events("stopped")) == 1


def test_one_line_from_two_sessions(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source("for i in range(6):\n    x = i  # @line\n")
    with (
        relay.session(python_path=python) as first,
        relay.session(python_path=python) as second,
    ):
        one = first.break_at(program, program["line"], condition="i == 2")["id"]
        two = second.break_at(program, program["line"], hit_condition="5")["id"]
        assert (one, two) == ("bp_1", "bp_1")
        first.launch(program)
        second.launch(program)
        assert (first.value("i"), second.value("i")) == ("2", "4")
        second.delete(f"/breakpoints/{two}").ok()
        assert first.get(f"/breakpoints/{one}").ok()["hit_count"] == 1
        assert first.resume()["status"] == second.resume()["status"] == "terminated"


def test_in_a_module_that_is_imported_later_by_a_running_program(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    module = source(
        "def work(x):\n    def inner():\n        return x  # @in\n    return inner()\n", "late.py"
    )
    main = source("print('up', flush=True)\ninput()\nimport late\nlate.work(7)\n")
    with relay.session(python_path=python) as session:
        running(session, main)
        id = session.break_at(module, module["in"], condition="x == 7")["id"]
        session.post("/input", {"input": "go\n"}).ok()
        (stopped,) = session.events("stopped", timeout=20)
        assert stopped["body"]["hit_breakpoint_ids"] == [id]
        assert stopped["body"]["current_location"]["function"] == "inner"


@pytest.mark.slow
def test_many_changes_in_a_row_lose_none(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(SPIN)
    with relay.session(python_path=python) as session:
        running(session, program)
        for _ in range(5):
            seen = len(session.events("stopped"))
            for mark in ("hot", "next"):
                session.break_at(program, program[mark], condition="k == 1")
            eventually(lambda seen=seen: len(session.events("stopped")) > seen)
            assert session.status()["stop_reason"] == "breakpoint"
            session.delete("/breakpoints").ok()
            assert session.resume(wait=0.05)["status"] == "running"
