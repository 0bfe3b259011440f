"""Running to a line, once; and steps into functions that have no lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.client import Client, Session
from tests.kit.relay import eventually
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

Write = Callable[..., Source]

PROGRAM = """
    def work(n):  # @def
        # nothing here
        doubled = n * 2  # @inside
        return doubled  # @last

    total = 0  # @begin
    for n in range(5):
        total += work(n)  # @loop
    end = total  # @end
    print(end)  # @prints
"""


def stopped_at(session: Session, program: Source, mark: str, **fields: Any) -> Any:
    breakpoint = session.break_at(program, program[mark])
    stop = session.launch(program, **fields)
    session.delete(f"/breakpoints/{breakpoint['id']}").ok()
    return stop


def run_to(session: Session, line: int, file: Any = None, **fields: Any) -> Any:
    named = {} if file is None else {"file": str(file)}
    return session.post("/run-to", {"line": line, **named, **fields}).ok()


def test_once_and_no_list_knows_of_it(relay: Client, source: Write, python: str) -> None:
    program = source(PROGRAM)
    with relay.session(python_path=python) as session:
        stopped_at(session, program, "begin")
        answer = run_to(session, program["inside"], program)
        assert (answer["status"], answer["completed"], answer["reached"]) == ("paused", True, True)
        assert answer["stop_reason"] == "step"
        assert answer["current_location"]["line"] == program["inside"]
        assert session.get("/breakpoints").ok()["breakpoints"] == []
        assert session.get("").ok()["breakpoint_count"] == 0
        assert session.events("breakpoint")[-1]["body"]["reason"] == "removed"
        assert session.events("stopped")[-1]["body"]["reason"] == "run-to"
        assert session.events("stopped")[-1]["body"]["hit_breakpoint_ids"] == []
        # In the file in which it stands, and to the line that it stands at: the next time.
        answer = run_to(session, program["inside"], snapshot=True)
        assert (answer["reached"], session.value("n")) == (True, "1")
        assert answer["stop"]["hit_breakpoints"] == []
        answer = run_to(session, program["end"])
        assert (answer["reached"], session.value("total")) == (True, "20")
        # The end comes first.
        answer = run_to(session, program["inside"])
        assert (answer["status"], answer["completed"]) == ("terminated", True)
        assert (answer["reached"], answer["exit_code"]) == (False, 0)
        assert session.printed("stdout") == "20\n"


def test_a_breakpoint_on_the_same_line_keeps_its_own_mind(
    relay: Client, source: Write, python: str
) -> None:
    program = source(PROGRAM)
    with relay.session(python_path=python) as session:
        stopped_at(session, program, "begin")
        breakpoint = session.break_at(program, program["inside"], condition="n == 3")
        answer = run_to(session, program["inside"])
        assert (answer["reached"], answer["stop_reason"], session.value("n")) == (True, "step", "0")
        assert session.get(f"/breakpoints/{breakpoint['id']}").ok()["hit_count"] == 0
        assert session.resume()["stop_reason"] == "breakpoint"
        assert session.value("n") == "3"
        # Both at once: it is the breakpoint's stop, and the line is reached.
        session.patch(f"/breakpoints/{breakpoint['id']}", {"condition": None}).ok()
        answer = run_to(session, program["inside"])
        assert (answer["reached"], answer["stop_reason"]) == (True, "breakpoint")
        assert session.events("stopped")[-1]["body"]["hit_breakpoint_ids"] == [breakpoint["id"]]
        assert session.get(f"/breakpoints/{breakpoint['id']}").ok()["hit_count"] == 2
        assert session.resume()["exit_code"] == 0


def test_it_goes_on_when_the_time_is_up(relay: Client, source: Write, python: str) -> None:
    program = source("x = 1  # @begin\ninput()\nx = 2  # @after\n")
    with relay.session(python_path=python) as session:
        stopped_at(session, program, "begin")
        answer = run_to(session, program["after"], wait=0.2)
        assert (answer["status"], answer["completed"]) == ("running", False)
        assert answer["reached"] is None
        cursor = session.get("/events").ok()["next_cursor"]
        session.post("/input", {"input": "\n"}).ok()
        (event,) = session.events("stopped", cursor=cursor, timeout=10)
        assert event["body"]["reason"] == "run-to"
        assert session.line() == program["after"]


def test_lines_are_judged_as_those_of_breakpoints_and_another_stop_ends_it(
    relay: Client, source: Write, python: str
) -> None:
    program = source(PROGRAM)
    with relay.session(python_path=python) as session:
        stopped_at(session, program, "begin")

        def refused(code: str, **body: Any) -> Any:
            return session.post("/run-to", body).refused(code, 400)["details"]

        details = refused("BREAKPOINT_INVALID_LINE", line=program["def"] + 1)
        assert str(program["inside"]) in details["suggestion"]
        assert refused("BREAKPOINT_INVALID_LINE", line=999)["max_line"] == program["prints"]
        refused("BREAKPOINT_FILE_NOT_FOUND", line=1, file=str(program) + "x")
        session.post("/run-to", {"line": 0}).refused("INVALID_REQUEST", 400)
        assert session.line() == program["begin"]
        assert session.status()["stop_id"] == 1
        # Another stop ends it, and it does not stop at its line later.
        breakpoint = session.break_at(program, program["last"])
        answer = run_to(session, program["end"])
        assert (answer["completed"], answer["reached"]) == (True, False)
        assert answer["stop_reason"] == "breakpoint"
        session.delete(f"/breakpoints/{breakpoint['id']}").ok()
        assert session.resume()["status"] == "terminated"
        session.post("/run-to", {"line": 1}).refused("INVALID_SESSION_STATE", 409)


@pytest.mark.parametrize("stop_all", [True, False])
def test_any_thread_may_reach_it_or_just_one(
    relay: Client, source: Write, python: str, stop_all: bool
) -> None:
    program = source(
        """
        import threading, time
        over = threading.Event()
        begun = threading.Barrier(3)

        def work(name):
            begun.wait()
            while not over.is_set():
                turn = name  # @turn
                time.sleep(0.001)
        threads = [threading.Thread(target=work, args=(n,), name=n) for n in ("one", "two")]
        for thread in threads:
            thread.start()
        begun.wait()
        here = 1  # @here
        over.wait()
        """
    )
    with relay.session(python_path=python, stop_all=stop_all) as session:
        main = stopped_at(session, program, "here")["thread_id"]
        answer = run_to(session, program["turn"])
        assert (answer["reached"], answer["thread_id"] != main) == (True, True)
        ids = {t["name"]: t["id"] for t in session.get("/threads").ok()["threads"]}
        for name in ("one", "two", "one"):
            if ids[name] not in session.status()["stopped_threads"]:
                session.post(f"/threads/{ids[name]}/pause").ok()
            path = f"/threads/{ids[name]}/run-to"
            answer = session.post(path, {"line": program["turn"], "file": str(program)}).ok()
            assert (answer["reached"], answer["thread_id"]) == (True, ids[name])
            assert session.value("name", thread_id=ids[name]) == f"'{name}'"
        session.value("over.set()", thread_id=ids["one"])
        assert session.resume()["exit_code"] == 0


def test_of_threads_that_come_at_once_one_is_told(
    relay: Client, source: Write, python: str
) -> None:
    program = source(
        """
        import threading
        together = threading.Barrier(4)

        def work(i):
            together.wait()
            mark = i  # @mark
        start = 1  # @start
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        """
    )
    with relay.session(python_path=python) as session:
        stopped_at(session, program, "start")
        assert run_to(session, program["mark"])["reached"] is True
        assert session.resume()["exit_code"] == 0


# -- functions in C


NATIVE = """
    import time, json

    def python(x):
        return x  # @python

    values = [3, 1, 2]
    a = len(values)  # @len
    values.append(4)  # @append
    time.sleep(0.001)  # @sleep
    b = python(len(values))  # @both
    c = sorted(values, key=python)  # @key
    d = a + 1  # @plain
    e = [1][0]  # @last
"""


CLASSES = """
    import collections
    from functools import partial

    class Own(dict):
        pass

    class Written:
        def __init__(self):
            self.x = 1

    class Called:
        def __int__(self):
            return 1  # @int

    texts = ["5"]
    a = dict(x=1)  # @dict
    a = int(texts[0])  # @number
    a = collections.deque([1])  # @deque
    a = list(  # @list
        map(str, [1]))
    a = Own() if texts else len(texts)  # @own
    if partial(len, texts)():  # @partial
        a = ValueError("x")  # @error
    a = int if texts else None  # @none
    a = int(Called())  # @runs
    a = Written()  # @written
"""


def test_a_step_into_a_class_in_c_names_the_class(
    relay: Client, source: Write, python: str
) -> None:
    program = source(CLASSES)
    into = (
        ("dict", "dict"), ("number", "int"), ("deque", "collections.deque"),
        ("list", "map"), ("partial", "functools.partial"), ("error", "ValueError"),
        ("none", None), ("runs", None), ("written", None),
    )  # fmt: skip
    with relay.session(python_path=python) as session:
        stopped_at(session, program, "dict")
        for place, callee in into:
            if session.line() != program[place]:
                run_to(session, program[place])
            answer = session.step("into")
            told = (answer["native_frame"], answer["native_callee"])
            assert told == ((True, callee) if callee else (None, None)), place
            if place == "runs":
                assert answer["current_location"]["line"] == program["int"]
        assert answer["current_location"]["function"] == "__init__"


def test_a_step_into_c_is_over_and_says_what_it_went_into(
    relay: Client, source: Write, python: str
) -> None:
    program = source(NATIVE)
    with relay.session(python_path=python) as session:
        stopped_at(session, program, "len")
        for callee, after in (
            ("len", "append"),
            ("list.append", "sleep"),
            ("time.sleep", "both"),
        ):
            answer = session.step("into")
            assert (answer["completed"], answer["native_frame"]) == (True, True)
            assert answer["native_callee"] == callee
            assert answer["current_location"]["line"] == program[after]
        answer = session.step("into")
        assert answer["current_location"]["line"] == program["python"]
        assert (answer["native_frame"], answer["native_callee"]) == (None, None)
        run_to(session, program["key"])
        answer = session.step("into")
        assert (answer["current_location"]["function"], answer["native_frame"]) == ("python", None)
        run_to(session, program["plain"])
        answer = session.step("into")
        assert (answer["current_location"]["line"], answer["native_frame"]) == (
            program["last"],
            None,
        )
        assert session.resume()["exit_code"] == 0


def test_the_program_keeps_its_own_profiler(relay: Client, source: Write, python: str) -> None:
    program = source(
        """
        import sys
        seen = []
        def profiler(frame, event, arg):
            if event == "c_call":
                seen.append(arg.__name__)
        here = 1  # @here
        before = sys.getprofile()  # @before
        sys.setprofile(profiler)  # @sets
        same = sys.getprofile() is profiler  # @same
        sys.setprofile(None)
        print(before, same, seen, sys.getprofile())
        """
    )
    with relay.session(python_path=python) as session:
        stopped_at(session, program, "here")
        for _ in range(5):
            session.step("into")
        session.resume()
        eventually(lambda: session.status()["status"] == "terminated")
        printed = session.printed("stdout")
        assert printed.startswith("None True [")
        assert printed.endswith("] None\n")
        assert "getprofile" in printed
