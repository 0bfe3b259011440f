"""Driving a program: continue, pause and steps, what they answer and when they refuse."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.client import Answer, Client, Session
from tests.kit.source import Source

Write = Callable[..., Source]

WALK = """
    def square(x):
        y = x * x  # @square
        return y  # @last

    def twice(x):
        first = square(x)  # @first
        second = square(first)  # @second
        return second  # @back

    def main():
        value = twice(2)  # @call
        try:  # @guarded
            value = {}["none"]  # @fails
        except KeyError:  # @caught
            value = len("four")  # @builtin
        return value  # @done

    main()  # @start
    end = 1  # @end
"""


def at(answer: Any) -> tuple[str, int]:
    assert answer["completed"] is True
    return answer["stop_reason"], answer["current_location"]["line"]


def back_in(session: Session, program: Source, function: str, call: str, after: str) -> None:
    """Returned into a function: Python up to 3.11 is on the next line already; go there."""
    status = session.status()
    assert (status["stop_reason"], status["current_location"]["function"]) == ("step", function)
    if status["current_location"]["line"] == program[call]:
        session.step("over")
    assert session.line() == program[after]


def walking(session: Session, program: Source, mark: str) -> None:
    """Stopped at a mark, by a breakpoint that is then removed."""
    breakpoint = session.break_at(program, program[mark])
    session.launch(program)
    session.delete(f"/breakpoints/{breakpoint['id']}").ok()
    assert session.line() == program[mark]


# -- steps


def test_steps_go_where_they_say(relay: Client, source: Write, python: str) -> None:
    program = source(WALK)
    with relay.session(python_path=python) as session:
        walking(session, program, "call")
        assert at(session.step("into")) == ("step", program["first"])
        assert at(session.step("into")) == ("step", program["square"])
        assert at(session.step("over")) == ("step", program["last"])
        session.step("over")  # the last line of a function leads back to its caller:
        back_in(session, program, "twice", "first", "second")
        assert at(session.step("into")) == ("step", program["square"])
        session.step("out")
        back_in(session, program, "twice", "second", "back")
        session.step("out")
        back_in(session, program, "main", "call", "guarded")
        assert at(session.step()) == ("step", program["fails"])
        assert at(session.step()) == ("step", program["caught"])  # an exception: to its handler
        assert at(session.step()) == ("step", program["builtin"])
        assert at(session.step("into")) == ("step", program["done"])  # what is in C is over at once
        session.step("over")
        back_in(session, program, "<module>", "start", "end")
        ended = session.step("over")
        assert (ended["status"], ended["exit_code"]) == ("terminated", 0)
        assert ended["completed"] is True


def test_a_step_stops_at_a_breakpoint_on_its_way(relay: Client, source: Write, python: str) -> None:
    program = source(WALK)
    with relay.session(python_path=python) as session:
        walking(session, program, "call")
        session.break_at(program, program["last"])
        assert at(session.step("over")) == ("breakpoint", program["last"])
        assert session.step("out")["stop_reason"] in ("step", "breakpoint")
        ends_with_a_step(session, program, "into")


def test_stepping_out_tells_what_was_returned(relay: Client, source: Write) -> None:
    program = source(WALK)
    with relay.session() as session:
        walking(session, program, "square")
        assert session.step("out")["return_value"] == {"type": "int", "value": "4"}
        ends_with_a_step(session, program, "out")


def ends_with_a_step(session: Session, program: Source, how: str) -> None:
    """A step past the program's last line ends it."""
    session.delete("/breakpoints").ok()
    session.break_at(program, program["end"])
    session.resume()
    ended = session.step(how)
    assert (ended["status"], ended["end_reason"]) == ("terminated", "target_exited")


@pytest.mark.one_python
def test_a_step_that_is_not_over_in_time_goes_on(relay: Client, source: Write, python: str) -> None:
    program = source("text = input()  # @reads\nprint(text)  # @prints\n")
    with relay.session(python_path=python) as session:
        walking(session, program, "reads")
        step = session.step("over", wait=0.2)
        assert (step["status"], step["completed"]) == ("running", False)
        cursor = session.get("/events").ok()["next_cursor"]
        session.post("/input", {"input": "typed\n"}).ok()
        (event,) = session.events("stopped", cursor=cursor, timeout=10)
        assert event["body"]["reason"] == "step"
        assert session.line() == program["prints"]
        assert session.locals()["text"] == "'typed'"


# -- continue


def test_continue_that_is_not_over_in_time(relay: Client, source: Write) -> None:
    program = source("x = 1  # @begin\nx = input()\nx = 3  # @after\n")
    with relay.session() as session:
        session.break_at(program, program["begin"])
        session.break_at(program, program["after"])
        session.launch(program)
        running = session.resume(wait=0.05)
        assert (running["status"], running["completed"]) == ("running", False)
        assert running["continued"] is True
        assert running["current_location"] is None
        cursor = session.get("/events").ok()["next_cursor"]
        session.post("/input", {"input": "\n"}).ok()
        (event,) = session.events("stopped", cursor=cursor, timeout=10)
        status = session.status()
        assert (status["status"], status["stop_reason"]) == ("paused", "breakpoint")
        assert status["stop_id"] == event["body"]["stop_id"] == 2
        assert session.resume()["status"] == "terminated"


# -- pause


PAUSES = {
    "loop": "n = 0\n    while True:\n        n += 1",
    "sleep": "time.sleep(1000)",
    "input": "input()",
    "stdin": "os.read(0, 100)",
    "select": "select.select([], [], [])",
    "lock": "threading.Event().wait(1000)",
}


@pytest.mark.parametrize("kind", PAUSES)
def test_pause_within_a_second(relay: Client, source: Write, python: str, kind: str) -> None:
    text = (
        "import os, select, sys, threading, time\n"
        f"def wait_here():\n    print('ready', flush=True)\n    {PAUSES[kind]}\nwait_here()\n"
    )
    program = source(text)
    with relay.session(python_path=python) as session:
        launched = session.launch(program, wait=0)
        assert launched["status"] == "running"
        assert session.events("output", timeout=10)
        began = time.monotonic()
        paused = session.post("/pause").ok()
        assert time.monotonic() - began < 1.0
        assert (paused["status"], paused["stop_reason"]) == ("paused", "pause"), paused
        frames = session.get("/stacktrace").ok()["frames"]
        ours = [f for f in frames if f["source"]["path"] == str(program)]
        assert [frame["name"] for frame in ours] == ["wait_here", "<module>"]
        assert ours[0]["line"] >= 4
        assert all(Path(frame["source"]["path"]).is_absolute() for frame in frames), frames
        if kind != "lock":  # whose Python code stands between
            assert frames == ours
            assert paused["current_location"]["function"] == "wait_here"
        resumed = session.resume(wait=0.1)
        assert resumed["status"] == "running"
        assert session.post("/pause").ok()["stop_reason"] == "pause"


@pytest.mark.one_python
def test_what_was_paused_goes_on_for_the_time_that_is_left(
    relay: Client, source: Write, python: str
) -> None:
    program = source(
        """
        import time
        before = time.monotonic()
        print("ready", flush=True)
        time.sleep(0.7)
        print(time.monotonic() - before)
        """
    )
    with relay.session(python_path=python) as session:
        session.launch(program, wait=0)
        session.events("output", timeout=10)
        assert session.post("/pause").ok()["status"] == "paused"
        ended = session.resume()
        assert ended["exit_code"] == 0
        slept = float(session.printed("stdout").split()[-1])
        assert 0.7 <= slept < 5


@pytest.mark.one_python
def test_a_paused_read_still_gets_its_input(relay: Client, source: Write, python: str) -> None:
    program = source("print('name?', flush=True)\nprint('hello', input())\n")
    with relay.session(python_path=python) as session:
        session.launch(program, wait=0)
        session.events("output", timeout=10)
        assert session.post("/pause").ok()["status"] == "paused"
        session.resume(wait=0)
        session.post("/input", {"input": "you\n"}).ok()
        session.events("terminated", timeout=10)
        assert session.printed("stdout") == "name?\nhello you\n"


def test_a_pause_while_another_thread_works(relay: Client, source: Write, python: str) -> None:
    program = source(
        """
        import threading
        def work():
            n = 0
            while True:
                n += 1
        threading.Thread(target=work, daemon=True, name="working").start()
        print("ready", flush=True)
        input()
        """
    )
    with relay.session(python_path=python) as session:
        session.launch(program, wait=0)
        session.events("output", timeout=10)
        began = time.monotonic()
        assert session.post("/pause").ok()["status"] == "paused"
        assert time.monotonic() - began < 1.5
        names = {thread["name"] for thread in session.get("/threads").ok()["threads"]}
        assert {"MainThread", "working"} <= names


# -- refused


DRIVES = ("continue", "pause", "step-over", "step-into", "step-out")


def test_nothing_to_drive_yet(relay: Client) -> None:
    with relay.session() as session:
        for operation in DRIVES:
            error = session.post(f"/{operation}").refused("INVALID_SESSION_STATE", 409)
            assert error["details"]["current_state"] == "created"
            assert f"{session.id}/launch" in error["details"]["suggestion"]


def test_the_state_must_fit_and_the_way_out_is_told(relay: Client, source: Write) -> None:
    program = source("x = 1  # @begin\ninput()\n")
    with relay.session() as session:
        session.break_at(program, program["begin"])
        session.launch(program, stop_on_exception=False)
        error = session.post("/pause").refused("INVALID_SESSION_STATE", 409)
        assert error["details"]["required_state"] == "running"
        assert f"{session.id}/stacktrace" in error["details"]["suggestion"]
        assert session.status()["stop_id"] == 1
        session.resume(wait=0)
        for operation in set(DRIVES) - {"pause"}:
            error = session.post(f"/{operation}").refused("INVALID_SESSION_STATE", 409)
            assert error["details"]["required_state"] == "paused"
            assert f"{session.id}/pause" in error["details"]["suggestion"]
        session.post("/input", {"eof": True}).ok()
        session.events("terminated", timeout=10)
        for operation in DRIVES:
            error = session.post(f"/{operation}").refused("INVALID_SESSION_STATE", 409)
            assert error["details"]["current_state"] == "terminated"
            assert "/output" in error["details"]["suggestion"]


def test_a_step_may_name_its_thread(relay: Client, source: Write) -> None:
    program = source(WALK)
    with relay.session() as session:
        walking(session, program, "call")
        error = session.post("/step-over", {"thread_id": 4711}).refused("THREAD_NOT_FOUND", 404)
        assert "/threads" in error["details"]["suggestion"]
        session.post("/threads/4711/step-over").refused("THREAD_NOT_FOUND", 404)
        assert session.line() == program["call"]
        thread = session.status()["stopped_thread_id"]
        answer = session.post(f"/threads/{thread}/step-into").ok()
        assert at(answer) == ("step", program["first"])
        assert answer["thread_id"] == thread


# -- several drivers


def test_if_stop_lets_only_those_act_who_saw_the_present(relay: Client, source: Write) -> None:
    program = source(WALK)
    with relay.session() as session:
        walking(session, program, "first")
        seen = {"If-Stop": str(session.status()["stop_id"])}
        moved = session.post("/step-over", headers=seen).ok()
        assert moved["stop_id"] == int(seen["If-Stop"]) + 1
        for operation in ("step-over", "continue"):
            error = session.post(f"/{operation}", headers=seen).refused("STOP_CHANGED", 409)
            details = error["details"]
            assert details["stop_id"] == moved["stop_id"]
            assert details["current_location"]["line"] == program["second"]
            assert f"If-Stop: {moved['stop_id']}" in details["suggestion"]
        assert session.line() == program["second"]
        for operation, body in {
            "evaluate": {"expression": "1"},
            "breakpoints": {"file": str(program), "line": program["back"]},
            "terminate": {},
            "restart": {},
            "trace": {"step": "function"},
        }.items():
            session.post(f"/{operation}", body, headers=seen).refused("STOP_CHANGED", 409)
        now = {"If-Stop": str(moved["stop_id"])}
        assert session.post("/evaluate", {"expression": "1"}, headers=now).ok()["result"] == "1"
        assert at(session.post("/step-over", headers=now).ok()) == ("step", program["back"])


def test_if_stop_of_many_at_once_moves_the_program_once(relay: Client, source: Write) -> None:
    program = source("import time\nwhile True:\n    time.sleep(0.3)  # @sleep\n    x = 1\n")
    with relay.session() as session:
        walking(session, program, "sleep")
        seen = {"If-Stop": str(session.status()["stop_id"])}
        answers: list[Answer] = []
        callers = [
            threading.Thread(
                target=lambda: answers.append(session.post("/step-over", headers=seen))
            )
            for _ in range(6)
        ]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        assert sorted(answer.status for answer in answers) == [200] + [409] * 5
        for answer in answers:
            if answer.status == 409:
                answer.refused("STOP_CHANGED")


def test_two_at_the_wheel_stay_in_order(relay: Client, source: Write) -> None:
    program = source("i = 0  # @begin\nwhile True:\n    i += 1\n    i += 1\n")
    with relay.session() as session:
        walking(session, program, "begin")
        first = session.status()["stop_id"]
        answers: list[Answer] = []

        def drive() -> None:
            for _ in range(25):
                answers.append(session.post("/step-over", {"wait": 20}))  # noqa: PERF401  shared

        drivers = [threading.Thread(target=drive) for _ in range(2)]
        for driver in drivers:
            driver.start()
        for driver in drivers:
            driver.join(60)
        done = [answer.ok() for answer in answers if answer.status == 200]
        for answer in answers:
            if answer.status != 200:
                answer.refused("INVALID_SESSION_STATE", 409)
        assert len(answers) == 50
        assert session.status()["stop_id"] == first + len(done)
        assert all(answer["completed"] for answer in done)
        numbers = [event["body"]["stop_id"] for event in session.events("stopped")]
        assert numbers == list(range(1, first + len(done) + 1))


def test_who_leaves_a_long_wait_cancels_nothing(
    relay: Client, source: Write, tmp_path: Path
) -> None:
    program = source("import sys  # @begin\nx = open(sys.argv[1]).read()\nx = 3  # @after\n")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with relay.session() as session:
        session.break_at(program, program["begin"])
        session.break_at(program, program["after"])
        session.launch(program, args=[str(fifo)])
        with pytest.raises(TimeoutError):
            session.post("/continue", {"wait": 60}, within=0.2)
        assert session.status()["status"] == "running"
        cursor = session.get("/events").ok()["next_cursor"]
        fifo.write_text("on")
        assert session.events("stopped", cursor=cursor, timeout=10)
        assert session.line() == program["after"]
        assert session.step("over")["status"] == "terminated"


def test_a_step_passes_a_comprehension_at_once(relay: Client, source: Write, python: str) -> None:
    program = source("""
        def main():
            x = list(range(300))  # @begin
            a = [n for n in x]
            b = {n: [m for m in a[:3] if m] for n in x}
            c = {n for n in b}
            d = any(n < 0 for n in x), all(n >= 0 for n in x)
            e = tuple(n for n in x), list(n for n in x), set(n for n in x)
            return c  # @end

        main()
    """)
    with relay.session(python_path=python) as session:
        walking(session, program, "begin")
        passed = [session.step()["current_location"]["line"] for _ in range(6)]
        assert passed == list(range(program["begin"] + 1, program["end"] + 1))
