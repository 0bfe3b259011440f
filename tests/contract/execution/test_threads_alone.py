"""One thread alone: stopped, stepped, continued and paused while the others stay as they are."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.client import Client, Session
from tests.kit.relay import eventually
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

Write = Callable[..., Source]

# Two workers that count, each at lines of its own, until the main thread has heard enough.
COUNTERS = """
    import threading, time

    counts = {"first": 0, "second": 0}
    over = threading.Event()
    together = threading.Barrier(3)

    def first():
        together.wait()
        while not over.is_set():
            counts["first"] += 1  # @first
            time.sleep(0.001)  # @first_next

    def second():
        together.wait()
        while not over.is_set():
            counts["second"] += 1  # @second
            time.sleep(0.001)  # @second_next

    threads = [threading.Thread(target=run, name=run.__name__) for run in (first, second)]
    for thread in threads:
        thread.start()
    together.wait()
    while not over.is_set():
        time.sleep(0.001)  # @main
"""


def threads(session: Session) -> dict[str, Any]:
    return {thread["name"]: thread for thread in session.get("/threads").ok()["threads"]}


def count(session: Session, name: str, thread: int) -> int:
    return int(session.value(f"counts[{name!r}]", thread_id=thread))


def let_end(session: Session, thread: int) -> None:
    session.value("over.set()", thread_id=thread)
    session.delete("/breakpoints").ok()
    assert session.resume()["exit_code"] == 0


@pytest.fixture
def nonstop(relay: Client, source: Write, python: str) -> Any:
    """A session in which a stop halts one thread only; the program, stopped in `first`."""
    program = source(COUNTERS)
    with relay.session(python_path=python, stop_all=False) as session:
        session.break_at(program, program["first"])
        stop = session.launch(program)
        assert stop["current_location"]["line"] == program["first"]
        yield session, program, stop["thread_id"]


def test_a_stop_halts_one_thread_and_the_others_run_on(nonstop: Any) -> None:
    session, program, first = nonstop
    listed = threads(session)
    assert {name: thread["status"] for name, thread in listed.items()} == {
        "MainThread": "running",
        "first": "paused",
        "second": "running",
    }
    assert [name for name, thread in listed.items() if thread["is_current"]] == ["first"]
    here = listed["first"]["current_location"]
    assert (here["line"], here["function"]) == (program["first"], "first")
    assert listed["MainThread"]["current_location"]["path"] == str(program)
    status = session.status()
    assert (status["status"], status["stopped_threads"]) == ("paused", [first])
    before = count(session, "second", first)
    eventually(lambda: count(session, "second", first) > before + 3, what="the other counts on")
    (event,) = session.events("stopped")
    assert event["body"]["all_threads_stopped"] is False
    # All of them go on, and a pause halts all.
    session.delete("/breakpoints").ok()
    assert session.resume(wait=0)["status"] == "running"
    assert session.post("/pause").ok()["status"] == "paused"
    eventually(lambda: len(session.status()["stopped_threads"]) == 3, what="all of them stand")
    session.post("/pause").refused("INVALID_SESSION_STATE", 409)
    let_end(session, first)


def test_several_threads_stand_at_once_and_move_one_by_one(nonstop: Any) -> None:
    session, program, first = nonstop
    cursor = session.get("/events").ok()["next_cursor"]
    session.break_at(program, program["second"])
    (event,) = session.events("stopped", cursor=cursor, timeout=10)
    second = event["body"]["thread_id"]
    assert event["body"]["stop_id"] == 2
    assert session.status()["stopped_threads"] == sorted([first, second])
    # Each has its own stack and variables; a step moves one of them.
    mine = session.get("/scopes", thread_id=first).ok()["scopes"][0]["variables_reference"]
    step = session.post(f"/threads/{second}/step-over").ok()
    assert (step["completed"], step["thread_id"], step["stop_reason"]) == (True, second, "step")
    assert step["current_location"]["line"] == program["second_next"]
    session.get(f"/variables/{mine}").ok()
    step = session.step("over", thread_id=first, snapshot=True)
    assert (step["thread_id"], step["stop"]["thread"]["name"]) == (first, "first")
    assert step["current_location"]["line"] == program["first_next"]
    session.get(f"/variables/{mine}").refused("VARIABLE_NOT_FOUND")
    assert session.status()["stopped_threads"] == sorted([first, second])
    # One goes on and comes back to its breakpoint, the other has stood all the time.
    again = session.post(f"/threads/{second}/continue", {"wait": 10}).ok()
    assert (again["status"], again["thread_id"]) == ("paused", second)
    assert again["current_location"]["line"] == program["second"]
    places = {name: t["current_location"]["line"] for name, t in threads(session).items()}
    assert (places["first"], places["second"]) == (program["first_next"], program["second"])
    # The session is paused as long as one of them stands.
    session.delete("/breakpoints").ok()
    gone = session.post(f"/threads/{second}/continue", {"wait": 0}).ok()
    assert (gone["status"], gone["completed"], gone["thread_id"]) == ("paused", False, first)
    assert session.status()["stopped_threads"] == [first]
    last = session.post(f"/threads/{first}/continue", {"wait": 0}).ok()
    assert (last["status"], last["current_location"]) == ("running", None)
    assert session.status()["stopped_threads"] == []


def test_a_running_thread_is_looked_at_live_and_paused_alone(nonstop: Any) -> None:
    session, _program, first = nonstop
    second = threads(session)["second"]["id"]
    stack = session.get(f"/threads/{second}/stacktrace").ok()
    assert (stack["live"], stack["frames"][-1]["name"] != "first") == (True, True)
    assert "second" in [frame["name"] for frame in stack["frames"]]
    for call in ("step-over", "continue", "run-to"):
        body = {"line": 1} if call == "run-to" else None
        error = session.post(f"/threads/{second}/{call}", body).refused(
            "INVALID_SESSION_STATE", 409
        )
        assert f"/threads/{second}/pause" in error["details"]["suggestion"]
        assert error["details"]["stopped_threads"] == [first]
    assert session.get("/scopes", thread_id=second).ok()["live"] is True
    paused = session.post(f"/threads/{second}/pause").ok()
    assert (paused["completed"], paused["stop_reason"]) == (True, "pause")
    assert (paused["thread_id"], paused["pause_pending"]) == (second, None)
    assert session.status()["stopped_threads"] == sorted([first, second])
    assert threads(session)["MainThread"]["status"] == "running"
    assert session.get(f"/threads/{second}/stacktrace").ok()["live"] is False
    error = session.post(f"/threads/{second}/pause").refused("INVALID_SESSION_STATE", 409)
    assert error["details"]["required_state"] == "running"
    let_end(session, first)


def test_in_a_session_that_stops_all_one_goes_on_alone(
    relay: Client, source: Write, python: str
) -> None:
    program = source(COUNTERS)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["first"])
        first = session.launch(program)["thread_id"]
        listed = threads(session)
        second, main = listed["second"]["id"], listed["MainThread"]["id"]
        assert {thread["status"] for thread in listed.values()} == {"paused"}
        assert session.status()["stopped_threads"] == sorted([first, second, main])
        before = count(session, "second", first)
        # Round and round, alone: the other's count stays where it was.
        for _ in range(3):
            answer = session.post(f"/threads/{first}/continue", {"wait": 10}).ok()
            assert (answer["thread_id"], answer["stop_reason"]) == (first, "breakpoint")
            step = session.post(f"/threads/{first}/step-over").ok()
            assert step["current_location"]["line"] == program["first_next"]
            assert step["thread_id"] == first
        assert count(session, "second", first) == before
        began = time.monotonic()
        for _ in range(10):
            session.post(f"/threads/{first}/step-over").ok()
        assert time.monotonic() - began < 1.5  # pydevd left alone: 0.2 s for each
        # Sent off, it leaves the session to the others, who stand.
        session.delete("/breakpoints").ok()
        gone = session.post(f"/threads/{first}/continue", {"wait": 0}).ok()
        assert (gone["status"], gone["stop_reason"]) == ("paused", "pause")
        assert gone["thread_id"] in (second, main)
        assert gone["current_location"]["path"] == str(program)
        status = session.status()
        assert status["stopped_threads"] == sorted([second, main])
        assert threads(session)["first"]["status"] == "running"
        mine = count(session, "first", status["stopped_thread_id"])
        eventually(
            lambda: count(session, "first", status["stopped_thread_id"]) > mine,
            what="it runs",
        )
        report = session.get("/snapshot").ok()["stop"]
        assert report["thread"]["id"] == status["stopped_thread_id"]
        assert report["source"]["lines"]
        # And back again: a pause of that one, and then of none, for all stand.
        paused = session.post(f"/threads/{first}/pause").ok()
        assert (paused["thread_id"], paused["stop_reason"]) == (first, "pause")
        session.post("/pause").refused("INVALID_SESSION_STATE", 409)
        let_end(session, first)


def test_a_thread_that_is_stepped_alone_and_blocks(
    relay: Client, source: Write, python: str
) -> None:
    program = source(
        """
        import threading
        lock = threading.Lock()
        lock.acquire()
        begun = threading.Event()

        def waits():
            begun.set()
            lock.acquire()  # @blocks
            done.append(1)  # @after
        done = []
        thread = threading.Thread(target=waits, name="waits")
        thread.start()
        while not done:
            if begun.wait(0.001) and lock.locked():
                pass
        thread.join()
        """
    )
    with relay.session(python_path=python) as session:
        session.break_at(program, program["blocks"])
        waits = session.launch(program)["thread_id"]
        step = session.post(f"/threads/{waits}/step-over", {"wait": 0.3}).ok()
        assert (step["status"], step["completed"]) == ("paused", False)
        assert step["thread_id"] != waits
        assert threads(session)["waits"]["status"] == "running"
        cursor = session.get("/events").ok()["next_cursor"]
        session.value("lock.release()", thread_id=session.status()["stopped_thread_id"])
        (event,) = session.events("stopped", cursor=cursor, timeout=10)
        assert (event["body"]["thread_id"], event["body"]["reason"]) == (waits, "step")
        assert session.line() == program["after"]
        assert session.resume()["exit_code"] == 0


def test_the_way_of_stopping_is_changed_while_it_runs(
    relay: Client, source: Write, python: str
) -> None:
    program = source(COUNTERS)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["first"])
        first = session.launch(program)["thread_id"]
        assert len(session.status()["stopped_threads"]) == 3
        assert session.patch("", {"stop_all": False}).ok()["config"]["stop_all"] is False
        answer = session.resume()
        assert answer["thread_id"] == first
        assert session.status()["stopped_threads"] == [first]
        session.patch("", {"stop_all": True}).ok()
        assert session.resume()["thread_id"] == first
        assert len(session.status()["stopped_threads"]) == 3
        let_end(session, first)


def test_threads_that_come_and_go_while_one_stands(
    relay: Client, source: Write, python: str
) -> None:
    program = source(
        """
        import threading

        def short(i):
            done.append(i)  # @short
        done = []

        def stands():
            x = 1  # @stands
        threading.Thread(target=stands).start()
        for i in range(50):
            thread = threading.Thread(target=short, args=(i,))
            thread.start()
            thread.join()
        print("all", len(done), flush=True)
        """
    )
    with relay.session(python_path=python, stop_all=False) as session:
        session.break_at(program, program["stands"])
        stood = session.launch(program)["thread_id"]
        eventually(lambda: "all 50" in session.printed("stdout"), what="the others have run")
        status = session.status()
        assert (status["status"], status["stopped_threads"]) == ("paused", [stood])
        assert stood in {thread["id"] for thread in session.get("/threads").ok()["threads"]}
        assert session.resume()["exit_code"] == 0


def test_each_of_many_hits_is_a_stop_of_its_own(relay: Client, source: Write, python: str) -> None:
    program = source(
        """
        import threading
        together = threading.Barrier(6)

        def work(i):
            together.wait()
            mark = i  # @here
        threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        """
    )
    with relay.session(python_path=python, stop_all=False) as session:
        session.break_at(program, program["here"])
        session.launch(program)
        eventually(lambda: len(session.status()["stopped_threads"]) == 6, what="all have stopped")
        stood = session.status()["stopped_threads"]
        seen = [int(session.value("i", thread_id=thread)) for thread in stood]
        assert sorted(seen) == list(range(6))
        stops = session.get("/history").ok()["items"]
        assert sorted(stop["thread"]["id"] for stop in stops) == stood
        assert all(stop["locals"][0]["name"] == "i" for stop in stops)
        for thread in stood[:-1]:
            session.post(f"/threads/{thread}/continue", {"wait": 0}).ok()
        assert session.status()["stopped_threads"] == stood[-1:]
        ended = session.post(f"/threads/{stood[-1]}/continue", {"wait": 10}).ok()
        assert (ended["completed"], ended["status"]) in ((True, "running"), (True, "terminated"))
        session.events("terminated", timeout=10)
        assert session.status()["exit_code"] == 0


def test_two_reports_at_once_leave_the_programs_output_alone(
    relay: Client, source: Write, python: str
) -> None:
    """The second begins while the first asks for a repr, and ends after it."""
    program = source("""
        import sys, threading, time

        stream = sys.stdout
        together = threading.Barrier(2)
        asked, both_asked = [], threading.Event()

        class Loud:
            def __repr__(self):
                print("not the program's")
                asked.append(self)
                if len(asked) == 1:
                    both_asked.wait(0.4)
                else:
                    both_asked.set()
                    time.sleep(0.1)
                return "loud"

        def work(name):
            value = Loud()
            together.wait()
            here = 1  # @here
            sys.stdout.write(name + "\\n")  # at once: threads print side by side

        threads = [threading.Thread(target=work, args=(name,)) for name in ("one", "two")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(sys.stdout is stream)
    """)
    with relay.session(python_path=python, stop_all=False) as session:
        session.break_at(program, program["here"])
        session.launch(program)
        # Each has told its report, or been interrupted while it did.
        eventually(
            lambda: (
                len(session.get("/history").ok()["items"]) == 2
                and len(session.status()["stopped_threads"]) == 2
            ),
            what="both have stopped",
        )
        for thread in session.status()["stopped_threads"]:
            session.value("name", thread_id=thread)  # in its turn, behind the report
        while session.status()["status"] == "paused":
            session.resume()
        assert sorted(session.printed().split()) == ["True", "one", "two"]


# -- where the relay's own part cannot be


def test_without_the_probe_all_threads_move_or_none(relay: Client, source: Write) -> None:
    program = source(COUNTERS)
    with relay.session() as session:
        session.break_at(program, program["first"])
        first = session.launch(program, env={"DEBUG_RELAY_PROBE": "off"})["thread_id"]
        error = session.patch("", {"stop_all": False}).refused("ATTACH_UNSUPPORTED", 400)
        assert "stop_all" in error["details"]["suggestion"]
        error = session.post(f"/threads/{first}/step-over").refused("DEBUGPY_ERROR")
        assert f"{session.id}/continue" in error["details"]["suggestion"]
        session.post("/run-to", {"line": program["second"]}).refused("DEBUGPY_ERROR")
        assert session.line() == program["first"]
        assert session.step("over")["completed"] is True


def test_a_program_that_is_joined_cannot_stop_one_thread_alone(relay: Client) -> None:
    with relay.session(stop_all=False) as session:
        error = session.post("/attach", {"port": 1}).refused("ATTACH_UNSUPPORTED", 400)
        assert error["details"]["field"] == "stop_all"
        assert session.status()["status"] == "created"
