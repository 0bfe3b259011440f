"""Traces: rows instead of stops, by places and by steps, and nothing of them left afterwards."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.kit.client import Client, Session
from tests.kit.relay import eventually
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

Write = Callable[..., Source]

LOOP = """
    class Box:
        def __init__(self):
            self.inner = []

    def work(limit):
        box = Box()
        total = 0  # @start
        for i in range(limit):  # @head
            total += i  # @body
            box.inner.append(total)  # @append
        return total  # @return

    print("before")  # @before
    print("result", work(200))  # @call
    print("after")  # @after
"""


@contextmanager
def at(relay: Client, program: Source, mark: str, **fields: Any) -> Iterator[Session]:
    """A session whose program stands at a line that is no breakpoint any more."""
    with relay.session(**fields) as session:
        breakpoint = session.break_at(program, program[mark])
        assert session.launch(program)["status"] == "paused"
        session.delete(f"/breakpoints/{breakpoint['id']}").ok()
        yield session


def trace(session: Session, **fields: Any) -> Any:
    return session.post("/trace", fields).ok()


def place(program: Source, mark: str, **fields: Any) -> Any:
    return {"file": str(program), "line": program[mark], **fields}


# -- by places


def test_rows_of_a_place_and_a_stop_at_the_last(relay: Client, source: Write, python: str) -> None:
    program = source(LOOP)
    with at(relay, program, "before", python_path=python) as session:
        spot = place(program, "body", capture=["i", "total * 2"], condition="i % 2")
        traced = trace(session, at=[spot], max_rows=5)
        assert [row["values"] for row in traced["rows"]] == [
            {"i": str(i), "total * 2": str(i * (i - 1))} for i in (1, 3, 5, 7, 9)
        ]
        first = traced["rows"][0]
        assert (first["seq"], first["line"], first["function"]) == (1, program["body"], "work")
        assert (first["path"], first["hit"]) == (str(program), 1)
        assert first["thread_id"] == traced["thread_id"]
        assert (traced["ended"], traced["total"], traced["left_out"]) == ("max_rows", 5, 0)
        assert (traced["status"], traced["stop_reason"]) == ("paused", "step")
        assert traced["current_location"]["line"] == program["body"]
        assert session.value("i") == "9"
        assert {row["name"]: row["value"] for row in traced["stop"]["locals"]}["i"] == "9"
        traced = trace(session, at=[place(program, "body", capture=["i"])], max_rows=1000)
        assert (traced["ended"], traced["total"]) == ("ended", 190)
        assert (traced["status"], traced["exit_code"]) == ("terminated", 0)
        assert {row["thread_id"] for row in traced["rows"]} == {1}
        assert traced["rows"][-1]["hit"] == traced["rows"][-1]["seq"]
        assert session.printed("stdout") == "before\nresult 19900\nafter\n"
        assert [event["body"]["reason"] for event in session.events("stopped")] == [
            "breakpoint", "breakpoint",
        ]  # fmt: skip


def test_until_ends_it_and_then_lets_it_run(relay: Client, source: Write, python: str) -> None:
    program = source(LOOP)
    with at(relay, program, "before", python_path=python) as session:
        traced = trace(
            session, at=[place(program, "append", capture=["total"])], until="total > 20",
            max_rows=1000, then="continue",
        )  # fmt: skip
        assert [row["values"]["total"] for row in traced["rows"]] == [
            "0", "1", "3", "6", "10", "15", "21",
        ]  # fmt: skip
        assert traced["ended"] == "until"
        [end] = session.events("terminated", timeout=10)
        assert end["body"]["exit_code"] == 0


def test_several_places_and_what_raises_there(relay: Client, source: Write, python: str) -> None:
    program = source(LOOP)
    with at(relay, program, "before", python_path=python) as session:
        spots = [
            place(program, "body", capture=["i"], condition="i < 2"),
            place(program, "append", condition="i < 2"),
            place(program, "append", capture=["total"], condition="i == 1"),
        ]
        rows = trace(session, at=spots, max_rows=5)["rows"]
        assert [(row["line"], row["values"]) for row in rows] == [
            (program["body"], {"i": "0"}),
            (program["append"], {}),
            (program["body"], {"i": "1"}),
            (program["append"], {}),
            (program["append"], {"total": "1"}),
        ]
        assert rows[1]["changed"]["total"] == "0"
        assert rows[3]["changed"] == {
            "total": "1", "i": "1", "box": rows[1]["changed"]["box"].replace("[]", "[0]"),
        }  # fmt: skip
        capture = ["1 / (i - 4)", "missing", "exit(3)", "[x * total for x in (1, 2)]"]
        spots = [
            place(program, "body", capture=capture, condition="i in (4, 5)"),
            place(program, "return", condition="nothing"),
        ]
        traced = trace(session, at=spots, timeout=10)
        # What fails is told once, and left out of the rows.
        assert [row["values"] for row in traced["rows"]] == [
            {"[x * total for x in (1, 2)]": "[6, 12]"},
            {"1 / (i - 4)": "1.0", "[x * total for x in (1, 2)]": "[10, 20]"},
        ]
        *failed, condition = traced["warnings"]
        assert [warning.partition(": capture ")[2] for warning in failed] == [
            "1 / (i - 4) raised ZeroDivisionError: division by zero",
            "missing raised NameError: name 'missing' is not defined",
            "exit(3) raised SystemExit: 3",
        ]
        assert condition.startswith(f"{program}:{program['return']}: condition raised NameError")
        assert traced["exit_code"] == 0


def test_a_captured_expression_that_never_ends(relay: Client, source: Write, python: str) -> None:
    program = source("""
        def forever():
            while True:
                pass

        for i in range(3):
            print(i)  # @body
        print("end")  # @end
    """)
    with at(relay, program, "body", python_path=python) as session:
        traced = trace(
            session, at=[place(program, "end", capture=["forever()"])], timeout=0.5,
            then="continue",
        )  # fmt: skip
        assert traced["ended"] == "timeout"
        [end] = session.events("terminated", timeout=10)
        assert end["body"]["exit_code"] == 0
        assert session.printed("stdout") == "0\n1\n2\nend\n"


# -- by steps


def test_the_current_function_line_by_line(relay: Client, source: Write, python: str) -> None:
    program = source(LOOP)
    with at(relay, program, "start", python_path=python) as session:
        traced = trace(session, step="function", max_rows=6)
        rows = traced["rows"]
        marks = ("head", "body", "append", "head", "body", "append")
        assert [row["line"] for row in rows] == [program[mark] for mark in marks]
        assert rows[0]["changed"] == {"total": "0"}
        assert rows[1]["changed"] == {"i": "0"}
        assert rows[2]["changed"] == {}
        assert rows[3]["changed"].keys() == {"box"}
        assert "inner=[0]" in rows[3]["changed"]["box"]
        assert [row["hit"] for row in rows] == [1, 1, 1, 2, 2, 2]
        assert traced["current_location"]["line"] == program["append"]
        # A function that returns ends its trace.
        traced = trace(session, step="function", max_rows=10_000, budget=10_000_000)
        assert (traced["ended"], traced["status"]) == ("returned", "paused")
        assert traced["total"] == 200 * 3 + 2 - 6
        assert traced["rows"][-1]["line"] == program["return"]
        assert traced["rows"][-1]["changed"] == {}
        assert traced["current_location"]["function"] == "<module>"
        assert session.resume()["exit_code"] == 0


def test_recursion_keeps_its_calls_apart(relay: Client, source: Write, python: str) -> None:
    program = source("""
        def factorial(n):
            if n < 2:  # @first
                return 1
            below = factorial(n - 1)
            return n * below

        print(factorial(4))
    """)
    with at(relay, program, "first", python_path=python) as session:
        traced = trace(session, step="function")
        assert traced["ended"] == "returned"
        changed = [row["changed"] for row in traced["rows"] if row["line"] == program["first"]]
        assert changed == [{"n": "3"}, {"n": "2"}, {"n": "1"}]
        assert [row["changed"] for row in traced["rows"] if "below" in row["changed"]] == [
            {"below": "1"}, {"below": "2"}, {"below": "6"},
        ]  # fmt: skip


def test_files_with_generators_threads_and_decorators(
    relay: Client, source: Write, python: str
) -> None:
    library = source(
        """
        import functools

        def counted(function):
            @functools.wraps(function)
            def wrapper(*args):
                return function(*args)
            return wrapper

        @counted
        def squares(n):
            for i in range(n):
                yield i * i  # @yield
        """,
        "library.py",
    )
    program = source("""
        import threading  # @first
        import library

        def collect(n):
            list(library.squares(n))

        threads = [threading.Thread(target=collect, args=(n,)) for n in (2, 3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print("done")
    """)
    with at(relay, program, "first", python_path=python, project_root=str(program.path.parent)) as (
        session
    ):
        traced = trace(
            session, step={"files": ["library.py"]}, max_rows=500, budget=1_000_000, then="continue"
        )
        yields = [row for row in traced["rows"] if row["line"] == library["yield"]]
        assert len(yields) == 5
        by_thread = {row["thread_id"] for row in yields}
        assert len(by_thread) == 2
        assert None not in by_thread
        assert {row["path"] for row in traced["rows"]} == {str(library)}
        assert traced["exit_code"] == 0


def test_ten_thousand_rows_in_a_second(relay: Client, source: Write, python: str) -> None:
    program = source("""
        def work():
            a = b = 0  # @start
            for i in range(10000):
                a += i
                b = a - i
        work()
    """)
    with at(relay, program, "start", python_path=python) as session:
        began = time.perf_counter()
        traced = trace(session, step="function", max_rows=10_000)
        taken = time.perf_counter() - began
        print(f"{taken:.2f} s")
        assert (traced["ended"], traced["total"]) == ("max_rows", 10_000)
        assert taken < 4, "ten thousand rows, on a machine that is shared"


# -- what is told, and how much


def test_the_budget_is_kept_and_the_rest_is_paged(relay: Client, source: Write) -> None:
    program = source(LOOP)
    with at(relay, program, "before") as session:
        spot = place(program, "body", capture=["i", "'x' * 100"])
        answer = session.post("/trace", {"at": [spot], "max_rows": 150, "budget": 2000})
        traced = answer.ok()
        sent = json.loads(answer.raw)["data"]["rows"]
        assert 1000 < len(json.dumps(sent, separators=(",", ":"))) <= 2000
        # The first rows and the last ones; the cursor leads to those in between.
        shown = [row["seq"] for row in traced["rows"]]
        assert 0 < traced["head"] <= 3
        assert shown[: traced["head"]] == list(range(1, traced["head"] + 1))
        assert shown[traced["head"] :] == list(range(151 - len(shown) + traced["head"], 151))
        assert traced["left_out"] == 150 - len(shown)
        assert traced["has_more"] is True
        seen, cursor = shown[: traced["head"]], traced["next_cursor"]
        while cursor:
            page = session.get("/trace", cursor=cursor, limit=40).ok()
            assert len(page["rows"]) <= 40
            seen += [row["seq"] for row in page["rows"]]
            cursor = page["next_cursor"]
        assert seen == list(range(1, 151))
        again = session.get("/trace", limit=1).ok()
        assert (again["rows"][0]["seq"], again["ended"]) == (1, "max_rows")


def test_old_rows_make_room_and_are_counted(relay: Client, source: Write) -> None:
    program = source("""
        text = "x" * 190
        for i in range(20000):
            pass  # @body
    """)
    with at(relay, program, "body") as session:
        capture = [f"({n}, text)[1]" for n in range(10)]
        traced = trace(
            session, at=[place(program, "body", capture=[*capture, "i"])], max_rows=19_000,
            then="continue",
        )  # fmt: skip
        assert traced["total"] == 19_000
        assert traced["dropped"] > 0
        first = traced["rows"][0]
        assert first["seq"] == traced["dropped"] + 1
        assert first["values"]["i"] == str(first["seq"])


# -- what ends it


def test_a_users_breakpoint_ends_it(relay: Client, source: Write, python: str) -> None:
    program = source(LOOP)
    with at(relay, program, "before", python_path=python) as session:
        mine = session.break_at(program, program["body"], condition="i == 3")
        spots = [place(program, "body", capture=["i"]), place(program, "append", capture=["i"])]
        traced = trace(session, at=spots)
        assert (traced["ended"], traced["stop_reason"]) == ("breakpoint", "breakpoint")
        assert [row["values"]["i"] for row in traced["rows"]] == list("0011223")
        assert session.value("i") == "3"
        [listed] = session.get("/breakpoints").ok()["breakpoints"]
        assert (listed["id"], listed["hit_count"]) == (mine["id"], 1)
        assert session.resume()["exit_code"] == 0


def test_an_exception_ends_it(relay: Client, source: Write, python: str) -> None:
    program = source("""
        def work():
            for i in range(5):  # @start
                1 / (3 - i)  # @body
        work()
    """)
    with at(relay, program, "start", python_path=python) as session:
        traced = trace(session, step={"files": [str(program)]})
        assert (traced["ended"], traced["stop_reason"]) == ("exception", "exception")
        assert traced["stop"]["exception"]["type"].endswith("ZeroDivisionError")
        assert traced["rows"][-1]["line"] == program["body"]


def test_time_is_up_or_a_pause_comes(relay: Client, source: Write, python: str) -> None:
    program = source("""
        import time
        def never():
            return 1  # @never
        while True:
            time.sleep(0.005)  # @body
    """)
    with at(relay, program, "body", python_path=python) as session:
        traced = trace(session, at=[place(program, "never")], timeout=0.2)
        assert (traced["ended"], traced["status"]) == ("timeout", "paused")
        assert traced["rows"] == []
        traced = trace(session, at=[place(program, "never")], timeout=0.2, then="continue")
        assert (traced["ended"], traced["status"]) == ("timeout", "running")
        # From running too, by places and files; the current function only where one is.
        traced = trace(session, at=[place(program, "body")], max_rows=3)
        assert (traced["ended"], traced["total"]) == ("max_rows", 3)
        assert traced["current_location"]["line"] == program["body"]
        rows_are_read_while_it_goes_on(session, place(program, "body"))
        session.resume(wait=0)
        session.post("/trace", {"step": "function"}).refused("INVALID_SESSION_STATE", 409)


def rows_are_read_while_it_goes_on(session: Session, spot: Any) -> None:
    """A pause ends the trace."""
    answers: list[Any] = []
    body = {"at": [spot], "max_rows": 100_000, "timeout": 60}
    asking = threading.Thread(target=lambda: answers.append(session.post("/trace", body)))
    asking.start()
    eventually(lambda: session.status()["status"] == "running")
    eventually(lambda: session.get("/trace").ok()["total"] > 3)
    going = session.get("/trace").ok()
    assert (going["ended"], going["status"], going["completed"]) == (None, "running", False)
    assert going["next_cursor"]
    session.post("/trace", body).refused("INVALID_SESSION_STATE", 409)
    assert session.post("/pause", {}).ok()["status"] == "paused"
    asking.join(20)
    assert answers[0].ok()["ended"] == "pause"


def test_from_entry_the_first_line_counts(relay: Client, source: Write, python: str) -> None:
    program = source("""
        x = 1  # @first
        y = 2
        print(x + y)
    """)
    with relay.session(python_path=python) as session:
        assert session.launch(program, stop_on_entry=True)["stop_reason"] == "entry"
        traced = trace(session, step={"files": [str(program)]})
        assert [row["line"] for row in traced["rows"]] == [1, 2, 3]
        assert traced["exit_code"] == 0


def test_a_killed_program_leaves_its_rows(relay: Client, source: Write) -> None:
    program = source("""
        import os, signal
        for i in range(100):
            if i == 57:  # @body
                os.kill(os.getpid(), signal.SIGKILL)
    """)
    with at(relay, program, "body") as session:
        traced = trace(session, at=[place(program, "body", capture=["i"])], max_rows=1000)
        assert (traced["ended"], traced["signal"]) == ("ended", "SIGKILL")
        assert traced["rows"][-1]["values"] == {"i": "57"}


def test_a_fork_writes_nothing_and_ends(relay: Client, source: Write, python: str) -> None:
    program = source("""
        import os

        def work(n):
            for i in range(n):
                pass  # @body

        print("go", flush=True)  # @go
        child = os.fork()
        work(5)
        if not child:
            os._exit(7)
        print(os.WEXITSTATUS(os.waitpid(child, 0)[1]))
    """)
    with at(relay, program, "go", python_path=python) as session:
        traced = trace(session, at=[place(program, "body", capture=["i"])], then="continue")
        assert traced["total"] == 5
        assert session.printed("stdout").split() == ["go", "7"]


# -- what is refused


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "INVALID_REQUEST"),
    ({"at": ["here"], "step": "function"}, "INVALID_REQUEST"),
    ({"at": ["here"], "until": "1 +"}, "EVALUATE_ERROR"),
    ({"at": ["blank"]}, "BREAKPOINT_INVALID_LINE"),
    ({"at": ["beyond"]}, "BREAKPOINT_INVALID_LINE"),
    ({"at": ["condition"]}, "BREAKPOINT_INVALID_CONDITION"),
    ({"at": ["capture"]}, "EVALUATE_ERROR"),
    ({"at": ["missing"]}, "BREAKPOINT_FILE_NOT_FOUND"),
    ({"step": {"files": []}}, "INVALID_REQUEST"),
    ({"step": {"files": ["/no/such.py"]}}, "BREAKPOINT_FILE_NOT_FOUND"),
    ({"step": "all"}, "INVALID_REQUEST"),
]


def test_what_cannot_be_traced_is_refused_and_nothing_moves(relay: Client, source: Write) -> None:
    program = source(LOOP)
    spots = {
        "here": place(program, "body"),
        "blank": {"file": str(program), "line": program["before"] - 1},
        "beyond": {"file": str(program), "line": 999},
        "condition": place(program, "body", condition="i >"),
        "capture": place(program, "body", capture=["i", "i ="]),
        "missing": {"file": str(program) + "x", "line": 1},
    }
    with at(relay, program, "before") as session:
        session.get("/trace").refused("INVALID_SESSION_STATE", 409)
        for body, code in REFUSED:
            places = {"at": [spots[name] for name in body["at"]]} if "at" in body else {}
            session.post("/trace", {**body, **places}).refused(code, 400)
            assert session.line() == program["before"], body
            session.get("/trace", cursor="abc").refused("INVALID_SESSION_STATE")
        # Nor is a cursor of another trace any good.
        spot = place(program, "body")
        old = trace(session, at=[spot], max_rows=5, budget=100)["next_cursor"]
        trace(session, at=[spot], max_rows=5, budget=100)
        error = session.get("/trace", cursor=old).refused("INVALID_PARAMETER", 400)
        assert "earlier trace" in error["message"]
        session.get("/trace", cursor="abc").refused("INVALID_PARAMETER", 400)


def test_text_that_was_launched_has_lines_to_trace_and_to_show(relay: Client, python: str) -> None:
    code = "def f(n):\n    for i in range(n):\n        x = i * i\n    return x\n\nf(2)\nlast = 1\n"
    trace = {"step": "function"}
    ran = relay.post("/run", {"code": code, "trace": trace, "python_path": python}).ok()
    assert [row["line"] for row in ran["trace"]["rows"]] == [1, 6, 7]
    with relay.session(python_path=python) as session:
        session.launch(code=code, stop_on_entry=True)
        session.step()
        inside = session.step("into", snapshot=True)["stop"]
        (shown,) = [line["text"] for line in inside["source"]["lines"] if line["current"]]
        assert shown == "    for i in range(n):"
        traced = session.post("/trace", trace).ok()
        assert [row["line"] for row in traced["rows"]] == [3, 2, 3, 2, 4]
        assert traced["ended"] == "returned"


@pytest.mark.slow
def test_a_capture_that_does_not_end_costs_one_row_its_value(
    relay: Client, source: Write, python: str
) -> None:
    program = source("""
        class Loud:
            def __repr__(self):
                while True:
                    pass

        def spin():
            while True:
                pass

        def main():
            loud = Loud()
            for i in range(3):  # @head
                print(i)  # @line

        main()
    """)
    with at(relay, program, "head", python_path=python) as session:
        spot = place(program, "line", capture=["spin()", "loud", "i"])
        traced = trace(session, at=[spot], timeout=60, then="continue")
        assert traced["ended"] == "ended"
        assert [row["values"]["i"] for row in traced["rows"]] == ["0", "1", "2"]
        spins = [row["values"]["spin()"] for row in traced["rows"]]
        assert spins[0] == "<interrupted: it took too long>"
        assert set(spins[1:]) == {"<not evaluated: it took too long at another row>"}
        assert "took too long" in traced["rows"][2]["values"]["loud"]
        assert session.printed("stdout") == "0\n1\n2\n"


def test_rows_as_columns(relay: Client, source: Callable[..., Source]) -> None:
    """The names are told once: a row costs its values."""
    program = source(
        """
        total = 0
        for n in range(60):
            total += n  # @add
        """
    )
    with relay.session() as session:
        session.launch(program, stop_on_entry=True)
        at = [{"file": str(program), "line": program["add"], "capture": ["total"]}]
        answer = session.post("/trace", {"at": at, "shape": "columns", "then": "continue"})
        told = answer.ok()
        assert told["columns"] == ["seq", "hit", "total"]
        assert told["same"]["path"] == str(program)
        assert told["rows"][:3] == [[1, 1, "0"], [2, 2, "0"], [3, 3, "1"]]
        rows = answer.raw.partition(b'"rows":')[2].partition(b"]]")[0]
        assert len(rows) < 60 * 20
        page = session.get("/trace", shape="columns", limit=3).ok()
        assert page["rows"] == [[1, 1, "0"], [2, 2, "0"], [3, 3, "1"]]
        text = session.get("/trace", shape="columns", limit=2, format="text").raw.decode()
        assert "total = 0" in text
    trace = {"at": at, "shape": "columns", "max_rows": 3}
    run = relay.post("/run", {"script": str(program), "trace": trace}).ok()["trace"]
    assert run["rows"] == [[1, 1, "0"], [2, 2, "0"], [3, 3, "1"]]
