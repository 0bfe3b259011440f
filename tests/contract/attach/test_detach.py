"""Letting an attached program go leaves nothing in it, whatever it was doing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.client import Client, Session
from tests.kit.relay import eventually
from tests.kit.running import Running, Witness
from tests.kit.source import Source

ENDLESS = "exec('while True: pass')"
SLEEPING = "__import__('time').sleep(300)"


@pytest.fixture
def witness(tmp_path: Path, python: str) -> Iterator[Witness]:
    found = Witness(tmp_path, python)
    yield found
    found.end()


def attach(session: Session, witness: Witness, **fields: object) -> dict[str, Any]:
    attached = session.post("/attach", {"pid": witness.pid, "connect_timeout": 30, **fields}).ok()
    assert (attached["attached"], attached["pid"]) == (True, witness.pid)
    return attached


def stop_at(session: Session, witness: Witness, mark: str) -> None:
    session.break_at(witness.program, witness.program[mark])
    eventually(lambda: session.status()["status"] == "paused")


def detach(session: Session) -> None:
    detached = session.post("/detach").ok()
    assert (detached["detached"], detached["status"]) == (True, "created")
    assert detached["residue"] is None


@pytest.mark.slow
def test_while_it_runs_and_again_and_again(relay: Client, witness: Witness) -> None:
    with relay.session() as session:
        # What one attachment leaves hinders the second, what that one does to it, the third.
        for _ in range(3):
            attach(session, witness)
            detach(session)
    witness.is_free()


@pytest.mark.parametrize("mark", ["main", "other"])
def test_while_it_is_paused(relay: Client, witness: Witness, mark: str) -> None:
    with relay.session() as session:
        attach(session, witness)
        stop_at(session, witness, mark)
        detach(session)
        witness.is_free()
        # The session has kept its breakpoint, and is as good as before.
        assert len(session.get("/breakpoints").ok()["breakpoints"]) == 1
        # It is hit at once, and the reply does not wait for another stop.
        again = attach(session, witness, wait=60)
        assert (again["status"], again["stop_reason"]) == ("paused", "breakpoint")
        assert "beat" in session.locals()
        # Deleting the session lets the program go as well.
        session.delete().ok()
    witness.is_free()


@pytest.mark.parametrize("expression", [ENDLESS, SLEEPING])
def test_while_it_evaluates(relay: Client, witness: Witness, expression: str) -> None:
    with relay.session() as session:
        attach(session, witness)
        stop_at(session, witness, "main")
        asked = threading.Thread(
            target=session.post, args=("/evaluate", {"expression": expression, "timeout": 60})
        )
        asked.start()
        eventually(lambda: session.get("/threads").status == 200)
        detach(session)
        asked.join(20)
    witness.is_free()


def test_it_prints_starts_children_and_ends_as_without_a_debugger(
    relay: Client, witness: Witness
) -> None:
    with relay.session() as session:
        attach(session, witness, redirect_output=True)
        # The program's output still goes where its owner sent it.
        assert witness.ask("print(json.dumps('seen by both')) or 1") == "seen by both"
        assert witness.line() == "1"
        eventually(lambda: "seen by both" in session.printed("stdout"))
        session.break_at(witness.program, witness.program["main"], condition="False")
        assert witness.ask("children") == [7, 7, 7, 7, 7]
        eventually(lambda: len(session.events("subprocess")) >= 5)
        told = session.events("subprocess")
        assert witness.pid not in {event["body"]["pid"] for event in told}
        detach(session)
    assert witness.ask("print(json.dumps('not any more')) or 1") == "not any more"
    assert witness.line() == "1"
    witness.is_free()
    exits(witness)


def exits(witness: Witness) -> None:
    assert witness.process.stdin is not None
    witness.process.stdin.write("exit\n")
    witness.process.stdin.flush()
    assert witness.process.wait(10) == 5
    assert witness.stderr() == ""


@pytest.mark.slow
def test_it_ends_while_attached(relay: Client, witness: Witness) -> None:
    with relay.session() as session:
        # At its end it lets go first, and then has something of its own to do.
        assert witness.ask("atexit.register(time.sleep, 1.5) and 1") == 1
        attach(session, witness)
        exits(witness)
        ended = session.events("terminated", timeout=10)
        assert ended[0]["body"]["end_reason"] == "target_lost"
        assert session.status()["exit_code"] is None


@pytest.mark.slow
def test_another_session_after_the_first(relay: Client, witness: Witness) -> None:
    with relay.session() as first:
        attach(first, witness)
        with relay.session() as second:
            error = second.post("/attach", {"pid": witness.pid})
            error.refused("ATTACH_ALREADY_ATTACHED", 409)
            assert second.status()["status"] == "created"
            detach(first)
            attach(second, witness)
            stop_at(second, witness, "other")
            detach(second)
    witness.is_free()


CALLS_NOTHING = """
    import sys, threading, time

    events = []
    n = 0

    def spin():
        global n
        while True:
            n += 1  # @line

    def told(frame, event, arg):
        events.append(event)
        return told

    thread = threading.Thread(target=spin, daemon=True)
    thread.start()
    print("up", flush=True)
    for line in sys.stdin:
        # Called only where the thread is traced still.
        sys._current_frames()[thread.ident].f_trace = told
        time.sleep(0.1)
        sys._current_frames()[thread.ident].f_trace = None
        print(len(events), flush=True)
"""


@pytest.mark.parametrize("stops", [False, True], ids=["runs", "stops"])
def test_a_thread_that_calls_nothing_is_not_traced_any_more(
    relay: Client, source: Callable[..., Source], python: str, stops: bool
) -> None:
    program = source(CALLS_NOTHING)
    one = Running(program, python)
    try:
        assert one.line() == "up"
        with relay.session() as session:
            if stops:
                session.break_at(program, program["line"])
            body = {"pid": one.pid, "connect_timeout": 30, "wait": 20 if stops else 0}
            attached = session.post("/attach", body).ok()
            assert attached["status"] == ("paused" if stops else "running")
            detach(session)
        assert one.ask("look") == 0
    finally:
        one.end()


LASTS = """
    import json, sys, threading, time

    def more(n):
        return n + 1  # @line

    def work(pause):
        n = 0
        while True:
            n = more(n)
            time.sleep(pause)

    # The busiest calls a function while a detach still tells the others to end their tracing.
    threads = [
        threading.Thread(target=work, args=(pause,), daemon=True) for pause in (0.01, 0.001, 0.0001)
    ]
    for thread in threads:
        thread.start()
    print("up", flush=True)
    for line in sys.stdin:
        traced, frames = [], sys._current_frames()
        for thread in threads:
            frame = frames.pop(thread.ident)
            while frame is not None:
                traced.append(frame.f_trace and repr(frame.f_trace))
                frame = frame.f_back
        print(json.dumps(traced), flush=True)
"""


def test_no_frame_carries_anything_of_ours_afterwards(
    relay: Client, start: Callable[..., Running], python: str
) -> None:
    one = start(LASTS, python=python)
    with relay.session() as session:
        session.post("/attach", {"pid": one.pid, "connect_timeout": 30}).ok()
        session.break_at(one.program, one.program["line"])
        eventually(lambda: session.status()["status"] == "paused")
        session.step("over")
        detach(session)
        # Up to 3.11 it lets go of its tracing by its own next event.
        eventually(lambda: not any(one.ask("look")))


BUSY = """
    import json, sys, threading

    def work(n):
        doubled = n * 2  # @line
        return doubled

    def run():
        n = 0
        while True:
            n += 1
            work(n)

    for _ in range(2):
        threading.Thread(target=run, daemon=True).start()
    print("up", flush=True)
    for line in sys.stdin:
        print(json.dumps(sys.getswitchinterval()), flush=True)
"""


@pytest.mark.slow
def test_threads_that_never_wait_pass_the_interpreter_on_as_before(
    relay: Client, start: Callable[..., Running], python: str
) -> None:
    """We hurry them while we come and go, by several threads that look at others at times."""
    one = start(BUSY, python=python)
    with relay.session() as session:
        session.post("/attach", {"pid": one.pid, "connect_timeout": 30}).ok()
        session.break_at(one.program, one.program["line"])
        eventually(lambda: session.status()["status"] == "paused")
        thread = session.status()["stopped_thread_id"]
        session.post(f"/threads/{thread}/step-over", {}).ok()
        detach(session)
        eventually(lambda: abs(one.ask("look") - 0.005) < 0.0001)
        one.process.kill()  # it is busy, and would be so during the end of the session
