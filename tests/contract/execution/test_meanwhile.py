"""What is asked for, or happens, while something else is under way: each order is provoked."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kit.client import Client, Session
from tests.kit.faulty import Gates, with_fault
from tests.kit.listening import Listening
from tests.kit.relay import Relay, eventually
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

Write = Callable[..., Source]


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Gates]]:
    """One relay for all tests that hold its workers."""
    folder = tmp_path_factory.mktemp("held")
    gates = Gates(folder / "gates")
    relay = Relay(folder / "data", env=with_fault(folder / "fault", gates.fault)).start()
    yield relay.client, gates
    assert relay.stop() == 0
    assert relay.workers() == []


@pytest.fixture
def held_relay(held: tuple[Client, Gates]) -> Client:
    return held[0]


@pytest.fixture
def gates(held: tuple[Client, Gates]) -> Iterator[Gates]:
    yield held[1]
    held[1].open_all()


@pytest.fixture
def aside() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def test_breakpoints_change_while_a_process_comes(
    held_relay: Client, gates: Gates, source: Write, python: str, aside: ThreadPoolExecutor
) -> None:
    """First the program itself, which must answer all; then a child of its."""
    child = source(
        """
        first = 1  # @first
        second = 2  # @second
        third = 3  # @third
        """,
        "child.py",
    )
    program = source(
        f"""
        import subprocess, sys
        first = 1  # @first
        second = 2  # @second
        subprocess.run([sys.executable, {str(child)!r}])
        """
    )
    with held_relay.session(python_path=python) as session:

        def change(file: Source) -> None:
            dropped = session.break_at(file, file["first"])
            kept = session.break_at(file, file["second"], condition="first == 1")
            assert kept["verified"] is True
            session.delete(f"/breakpoints/{dropped['id']}").ok()
            shown = session.post("/exception-breakpoints", {"types": ["KeyError"]}).ok()
            assert shown["message"] is None

        gates.close("configure")
        launching = aside.submit(session.launch, program, debug_subprocesses=True)
        gates.until_reached("configure")
        change(program)
        gates.open("configure")
        stopped = launching.result()
        assert (stopped["status"], session.line()) == ("paused", program["second"])
        gates.close("configure")
        coming = aside.submit(session.resume)
        gates.until_reached("configure")
        change(child)
        gates.open("configure")
        stopped = coming.result()
        assert stopped["child_pid"] is not None
        assert session.line() == child["second"]
        session.delete("/breakpoints").ok()
        assert session.resume()["status"] == "terminated"


def test_a_child_dies_while_its_stop_is_told(
    held_relay: Client, gates: Gates, source: Write, aside: ThreadPoolExecutor
) -> None:
    child = source("stands = 1  # @stands", "child.py")
    program = source(
        f"""
        import subprocess, sys
        print(subprocess.run([sys.executable, {str(child)!r}]).returncode)
        input()
        """
    )
    with held_relay.session() as session:
        session.break_at(child, child["stands"])
        gates.close("at_stop")
        session.launch(program, debug_subprocesses=True, wait=0)
        gates.until_reached("at_stop")
        (attached,) = [one for one in told(session) if one["reason"] == "attached"]
        os.kill(attached["pid"], signal.SIGKILL)
        eventually(lambda: told(session)[-1]["reason"] == "exited", what="its end is told")
        gates.open("at_stop")
        session.post("/input", {"input": "\n", "eof": True}).ok()
        eventually(lambda: session.status()["status"] == "terminated", what="the program's end")
        assert session.events("stopped") == []
        assert session.printed("stdout") == "-9\n"


def test_a_stop_is_told_too_late(
    held_relay: Client, gates: Gates, source: Write, python: str, aside: ThreadPoolExecutor
) -> None:
    """Its thread was sent on with all others before anybody knew that it stands."""
    program = source(
        """
        import threading

        def other():
            enough.wait()

        enough = threading.Event()
        threading.Thread(target=other).start()
        one = 1  # @one
        two = 2
        input()
        enough.set()
        """
    )
    with held_relay.session(python_path=python) as session:
        session.break_at(program, program["one"])
        thread = session.launch(program)["thread_id"]
        gates.close("at_stop")
        session.post("/step-over", {"thread_id": thread, "wait": 0}).ok()
        gates.until_reached("at_stop")
        assert session.resume(wait=0)["status"] == "running"
        gates.open("at_stop")
        session.post("/input", {"input": "\n"}).ok()
        eventually(lambda: session.status()["status"] != "running", what="the end, or a stop")
        assert session.status()["status"] == "terminated"
        assert len(session.events("stopped")) == 1


def told(session: Session) -> list[dict[str, object]]:
    return [event["body"] for event in session.events("subprocess")]


def test_a_joined_program_ends_as_soon_as_it_runs(
    held_relay: Client, gates: Gates, source: Write, aside: ThreadPoolExecutor
) -> None:
    program = source("print(1)")
    target = Listening(program.path, wait=True)
    try:
        with held_relay.session() as session:
            gates.close("_settle")
            attaching = aside.submit(session.post, "/attach", {"port": target.port, "wait": 20})
            gates.until_reached("_settle")
            target.process.wait()
            gates.open("_settle")
            attached = attaching.result().ok()
            assert (attached["status"], attached["end_reason"]) == ("terminated", "target_lost")
            assert len(session.events("terminated")) == 1
    finally:
        target.end()


@pytest.mark.slow
def test_a_thread_stops_while_another_evaluates(
    relay: Client, source: Write, python: str, tmp_path: Path, aside: ThreadPoolExecutor
) -> None:
    """However long that takes: at an exception, about which its process has much to tell."""
    program = source(
        """
        import os, sys, threading, time

        def until_there(path):
            while not os.path.exists(path):
                time.sleep(0.01)

        def evaluated(begun, enough):
            open(begun, "w").close()
            until_there(enough)

        def fail():
            until_there(sys.argv[1])
            raise ValueError("in another thread")

        other = threading.Thread(target=fail)
        other.start()
        other.join()  # @stands
        """
    )
    fail, begun, enough = (tmp_path / name for name in ("fail", "begun", "enough"))
    with relay.session(python_path=python, stop_all=False) as session:
        session.break_at(program, program["stands"])
        session.launch(program, args=[str(fail)])
        try:
            asked = {"expression": f"evaluated({str(begun)!r}, {str(enough)!r})", "timeout": 60}
            evaluating = aside.submit(session.post, "/evaluate", asked)
            eventually(begun.exists, what="the evaluation runs")
            fail.touch()
            eventually(lambda: len(session.events("stopped")) == 2, what="the stop is told")
            assert session.events("stopped")[-1]["body"]["text"] == "ValueError: in another thread"
            assert not evaluating.done()
        finally:
            enough.touch()
        assert evaluating.result().ok()["error"] is None
        told = session.get("/exception").ok()
        assert (told["type"], told["message"]) == ("ValueError", "in another thread")


@pytest.mark.slow
def test_two_processes_whose_reports_hang(relay: Client, source: Write, python: str) -> None:
    """Both are interrupted, though the first needs it twice."""
    program = source(
        """
        import multiprocessing as mp

        class Stubborn:
            def __repr__(self):
                try:
                    while True:
                        pass
                except BaseException:
                    while True:
                        pass

        def work(barrier):
            bad = Stubborn()
            barrier.wait()
            return bad  # @stands

        if __name__ == "__main__":
            context = mp.get_context("fork")
            barrier = context.Barrier(2)
            child = context.Process(target=work, args=(barrier,))
            child.start()
            work(barrier)
            child.join()
        """
    )
    with relay.session(python_path=python) as session:
        session.break_at(program, program["stands"])
        session.launch(program, debug_subprocesses=True)
        eventually(lambda: len(session.status()["stopped_threads"]) == 2, what="both stand")
        for thread in session.status()["stopped_threads"]:
            assert session.value("1 + 1", thread_id=thread) == "2"


def test_a_stop_in_a_file_that_nobody_can_decode(relay: Client, source: Write) -> None:
    """The stop is told, and so are those that follow."""
    odd = source("# coding: rot13\nk = 1\nj = 2\n", "odd.py")
    program = source(
        f"""
        try:
            exec(compile("\\n\\nraise ValueError(1)", {str(odd)!r}, "exec"))
        except ValueError:
            after = 1  # @after
        """
    )
    with relay.session(python_path=sys.executable) as session:
        session.break_at(program, program["after"])
        stopped = session.launch(program, stop_on_exception="raised", snapshot=True)
        assert stopped["current_location"]["path"] == str(odd)
        assert stopped["stop"]["source"]["lines"][-1]["text"] == "j = 2"
        session.resume()
        assert session.line() == program["after"]


def test_a_program_that_was_resumed_is_not_shown_as_paused(
    relay: Client, source: Write, aside: ThreadPoolExecutor, tmp_path: Path
) -> None:
    """What it does can be seen at once; its worker sends the state up to 10 ms later."""
    resumed = tmp_path / "resumed"
    program = source(
        f"""
        import os, time
        while True:
            stands = 1  # @stands
            os.close(os.open({str(resumed)!r}, os.O_CREAT))
            time.sleep(0.2)
        """
    )
    with relay.session() as session:
        session.break_at(program, program["stands"])
        session.launch(program)
        for _ in range(6):
            before = session.status()["stop_id"]
            resuming = aside.submit(session.resume)
            while not (resumed.exists() or resuming.done()):
                pass  # a pause here would let the moment pass
            shown = session.status()
            assert (shown["status"], shown["stop_id"]) != ("paused", before)
            resumed.unlink()
            resuming.result()
