"""Looking into a stopped program: threads, stacks, scopes and variables."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.client import Client, Session
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

VALUES = """
    class Point:
        def __init__(self, x, y):
            self.x = x
            self.y = y

    GLOBAL = "of the module"

    def show():
        number = 7
        words = ["a", "b", "c"]
        pairs = {"one": 1, "two": [1, 2]}
        point = Point(1, Point(2, 3))
        many = list(range(90))
        text = "ünïcödé"
        return number  # @here

    def outer(label):
        return show()  # @outer

    outer("start")  # @module
"""


def stopped_at(session: Session, program: Source, mark: str) -> Any:
    session.break_at(program, program[mark])
    answer = session.launch(program)
    assert answer["current_location"]["line"] == program[mark]
    return answer


def named(variables: list[Any]) -> dict[str, Any]:
    return {variable["name"]: variable for variable in variables}


def children(session: Session, reference: int, **query: Any) -> dict[str, Any]:
    page = session.get("/variables", variables_reference=reference, **query).ok()
    return named(page["variables"])


# -- threads


def test_threads_are_listed_with_names_and_the_stopped_one_is_current(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source("""
        import threading

        started, done = [], []

        def busy(mine):
            started.append(mine)
            while not done:
                pass

        for name in ("first", "second"):
            threading.Thread(target=busy, args=(name,), name=name).start()
        while len(started) < 2:
            pass
        here = 1  # @here
        done.append(True)
    """)
    with relay.session(python_path=python) as session:
        stopped = stopped_at(session, program, "here")
        answer = session.get("/threads").ok()
        threads = {thread["name"]: thread for thread in answer["threads"]}
        assert set(threads) == {"MainThread", "first", "second"}
        assert {thread["status"] for thread in threads.values()} == {"paused"}
        main = threads["MainThread"]
        assert main["id"] == answer["stopped_thread_id"] == stopped["thread_id"]
        assert [name for name, thread in threads.items() if thread["is_current"]] == ["MainThread"]
        # Another thread's stack and its variables, by its id.
        id = threads["second"]["id"]
        stack = session.get(f"/threads/{id}/stacktrace").ok()
        assert stack["thread_id"] == id
        assert stack["frames"][0]["name"] == "busy"
        assert stack["frames"][0]["source"]["path"] == str(program)
        assert session.get("/scopes", thread_id=id).ok()["thread_id"] == id
        (mine,) = session.get("/frames/0/variables", thread_id=id).ok()["variables"]
        assert (mine["name"], mine["value"]) == ("mine", "'second'")
        assert session.value("mine", thread_id=id) == "'second'"
        assert session.resume()["exit_code"] == 0


def test_a_running_program_shows_its_threads_alone(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source("print('up', flush=True)\nwhile True:\n    pass\n")
    with relay.session() as session:
        session.launch(program, wait=0)
        session.events("output", timeout=20)
        answer = session.get("/threads").ok()
        assert [(t["name"], t["status"]) for t in answer["threads"]] == [("MainThread", "running")]
        assert answer["stopped_thread_id"] is None
        session.get("/stacktrace").refused("INVALID_SESSION_STATE", 409)
        for refused in (session.get("/scopes"), session.post("/evaluate", {"expression": "1"})):
            error = refused.refused("INVALID_SESSION_STATE", 409)
            assert error["details"]["current_state"] == "running"
            assert "/pause" in error["details"]["suggestion"]
        live = session.get(f"/threads/{answer['threads'][0]['id']}/stacktrace").ok()
        assert (live["live"], live["frames"][0]["source"]["path"]) == (True, str(program))
        assert session.status()["status"] == "running"


# -- stacks


def test_a_deep_stack_pages_without_gaps(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source("""
        import sys, threading
        sys.setrecursionlimit(6000)

        def down(n):
            if n == 0:
                return n  # @bottom
            return down(n - 1)

        # A thread of its own: its stack may be large everywhere.
        threading.stack_size(512 * 1024 * 1024)
        thread = threading.Thread(target=down, args=(4999,))
        thread.start()
        thread.join()
    """)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["bottom"])
        began = time.monotonic()
        report = session.launch(program, snapshot={"frames": 1000, "max_bytes": 10_000_000})["stop"]
        assert len(report["frames"]) == 1000
        whole = session.get("/stacktrace", levels=1000).ok()
        assert whole["has_more"] is True
        assert whole["total_frames"] == report["total_frames"] >= 5000
        frames = []
        for start in range(0, 5000, 1000):
            page = session.get("/stacktrace", start_frame=start, levels=1000).ok()
            assert page["total_frames"] == whole["total_frames"]
            frames += page["frames"]
        assert time.monotonic() - began < 15
        assert [frame["id"] for frame in frames] == list(range(5000))
        assert {frame["name"] for frame in frames} == {"down"}
        few = session.get("/stacktrace", start_frame=1500, levels=2).ok()
        assert few["frames"] == frames[1500:1502]
        assert few["has_more"] is True
        assert session.locals(4999) == {"n": "4999"}
        assert session.value("n", frame_id=1234) == "1234"
        past = session.get("/stacktrace", start_frame=whole["total_frames"]).ok()
        assert (past["frames"], past["has_more"]) == ([], False)
        assert session.resume()["exit_code"] == 0


def test_a_woken_sleeper_stands_in_its_own_frame(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source("""
        import time

        def nap(why):
            time.sleep(1000)  # @asleep

        print("up", flush=True)
        nap("tired")
    """)
    with relay.session(python_path=python) as session:
        session.launch(program, wait=0)
        session.events("output", timeout=20)
        stopped = session.post("/pause", {"wait": 10}).ok()
        assert stopped["current_location"]["line"] == program["asleep"]
        stack = session.get("/stacktrace").ok()
        assert [frame["name"] for frame in stack["frames"]] == ["nap", "<module>"]
        assert stack["total_frames"] == 2
        assert session.locals() == {"why": "'tired'"}
        assert session.value("why") == "'tired'"
        session.get("/frames/2/variables").refused("FRAME_NOT_FOUND", 404)


# -- scopes and variables: one program, which all of these look into


def a_stack_has_the_programs_frames_and_no_others(
    session: Session, program: Source, thread: int
) -> None:
    stack = session.get("/stacktrace").ok()
    assert [(f["id"], f["name"], f["line"]) for f in stack["frames"]] == [
        (0, "show", program["here"]),
        (1, "outer", program["outer"]),
        (2, "<module>", program["module"]),
    ]
    assert {f["source"]["path"] for f in stack["frames"]} == {str(program)}
    assert {f["source"]["name"] for f in stack["frames"]} == {"program.py"}
    assert (stack["total_frames"], stack["has_more"], stack["live"]) == (3, False, False)
    assert stack["thread_id"] == thread


def scopes_and_their_variables(session: Session) -> None:
    answer = session.get("/scopes").ok()
    assert answer["frame_id"] == 0
    scopes = {scope["name"]: scope for scope in answer["scopes"]}
    assert list(scopes) == ["Locals", "Globals"]
    assert scopes["Locals"]["presentation_hint"] == "locals"
    assert scopes["Locals"]["expensive"] is False
    local = children(session, scopes["Locals"]["variables_reference"])
    assert sorted(local) == ["many", "number", "pairs", "point", "text", "words"]
    number = local["number"]
    assert (number["value"], number["type"], number["expandable"]) == ("7", "int", False)
    assert number["variables_reference"] == 0
    assert local["text"]["value"] == "'ünïcödé'"
    assert local["words"]["expandable"] is True
    globals_ = children(session, scopes["Globals"]["variables_reference"])
    assert globals_["GLOBAL"]["value"] == "'of the module'"
    listed = session.get("/frames/0/variables", scope="globals").ok()["variables"]
    assert named(listed)["GLOBAL"]["value"] == "'of the module'"
    assert session.locals(1) == {"label": "'start'"}


def children_open_level_by_level(session: Session) -> None:
    local = named(session.get("/frames/0/variables").ok()["variables"])
    words = children(session, local["words"]["variables_reference"], filter="indexed")
    assert [(name, entry["value"]) for name, entry in words.items()] == [
        ("0", "'a'"),
        ("1", "'b'"),
        ("2", "'c'"),
    ]
    pairs = children(session, local["pairs"]["variables_reference"])
    two = children(session, pairs["'two'"]["variables_reference"], filter="indexed")
    assert [entry["value"] for entry in two.values()] == ["1", "2"]
    point = children(session, local["point"]["variables_reference"])
    assert point["x"]["value"] == "1"
    inner = children(session, point["y"]["variables_reference"])
    assert (inner["x"]["value"], inner["y"]["value"]) == ("2", "3")


def variables_page(session: Session) -> None:
    page = session.get("/frames/0/variables", start=1, count=2).ok()
    assert [v["name"] for v in page["variables"]] == ["number", "pairs"]
    assert (page["total"], page["has_more"]) == (6, True)
    last = session.get("/frames/0/variables", start=4, count=100).ok()
    assert (len(last["variables"]), last["has_more"]) == (2, False)
    many = named(session.get("/frames/0/variables").ok()["variables"])["many"]
    seen = []
    for start in (0, 40, 80):
        page = session.get(
            f"/variables/{many['variables_reference']}",
            start=start,
            count=40,
            filter="indexed",
        ).ok()
        assert page["total"] == 90
        assert page["has_more"] is (start < 80)
        seen += [v["value"] for v in page["variables"]]
    assert seen == [str(n) for n in range(90)]
    error = session.get("/frames/0/variables", count=1001).refused("INVALID_PARAMETER", 400)
    assert "1000" in error["message"]


def every_path_to_a_variable_leads_to_the_same(session: Session, thread: int) -> None:
    assert session.get("/stacktrace").ok() == session.get(f"/threads/{thread}/stacktrace").ok()
    scopes = session.get("/scopes", frame_id=1).ok()
    assert scopes["frame_id"] == 1
    assert session.get("/frames/1/scopes").ok() == scopes
    reference = session.get("/scopes").ok()["scopes"][0]["variables_reference"]
    one = session.get("/variables", variables_reference=reference).ok()
    assert one["variables_reference"] == reference
    assert session.get(f"/variables/{reference}").ok() == one
    assert session.get(f"/scopes/{reference}/variables").ok() == one
    assert session.get("/frames/0/variables").ok() == one
    words = named(one["variables"])["words"]["variables_reference"]
    opened = session.get(f"/variables/{words}", filter="indexed").ok()
    assert [variable["value"] for variable in opened["variables"]] == ["'a'", "'b'", "'c'"]
    again = session.get(f"/frames/0/variables/{words}/children", filter="indexed").ok()
    assert again == opened
    # Read again at the same stop, a reference is what it was.
    assert session.get("/scopes").ok()["scopes"][0]["variables_reference"] == reference


def frames_and_threads_that_are_not_there(session: Session, thread: int) -> None:
    for answer in (
        session.get("/frames/3/variables"),
        session.get("/frames/3/scopes"),
        session.get("/scopes", frame_id=3),
        session.post("/evaluate", {"expression": "1", "frame_id": 3}),
    ):
        error = answer.refused("FRAME_NOT_FOUND", 404)
        assert "0 to 2" in error["details"]["suggestion"]
    for answer in (
        session.get("/threads/99/stacktrace"),
        session.get("/stacktrace", thread_id=99),
        session.get("/scopes", thread_id=99),
        session.get("/frames/0/variables", thread_id=99),
        session.post("/evaluate", {"expression": "1", "thread_id": 99}),
    ):
        error = answer.refused("THREAD_NOT_FOUND", 404)
        assert str(thread) in error["details"]["suggestion"]


def a_reference_from_an_earlier_stop_is_refused_as_such(session: Session) -> None:
    reference = session.get("/scopes").ok()["scopes"][0]["variables_reference"]
    session.step("out")
    error = session.get(f"/variables/{reference}").refused("VARIABLE_NOT_FOUND", 404)
    assert "earlier stop" in error["message"]
    assert error["details"]["from_earlier_stop"] is True
    # Numbers are not used again: the new stop's scope has another.
    assert session.get("/scopes").ok()["scopes"][0]["variables_reference"] > reference
    error = session.get("/variables/999999").refused("VARIABLE_NOT_FOUND", 404)
    assert error["details"]["from_earlier_stop"] is False


def test_a_stopped_program_is_looked_into(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(VALUES)
    with relay.session(python_path=python) as session:
        thread = stopped_at(session, program, "here")["thread_id"]
        a_stack_has_the_programs_frames_and_no_others(session, program, thread)
        scopes_and_their_variables(session)
        children_open_level_by_level(session)
        variables_page(session)
        every_path_to_a_variable_leads_to_the_same(session, thread)
        frames_and_threads_that_are_not_there(session, thread)
        a_reference_from_an_earlier_stop_is_refused_as_such(session)


def test_nothing_to_look_into_before_the_launch(relay: Client) -> None:
    paths = ("/scopes", "/frames/0/variables", "/variables/1000", "/stacktrace", "/threads")
    with relay.session() as session:
        for path in paths:
            error = session.get(path).refused("INVALID_SESSION_STATE", 409)
            assert "/launch" in error["details"]["suggestion"], path


def test_values_that_are_hard_to_show(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source("""
        class Broken:
            def __repr__(self):
                raise ValueError("no words")

        def show():
            broken = Broken()
            lone = "a\\ud800b"
            loop = []
            loop.append(loop)
            large = "x" * 200_000
            nothing = None
            return 1  # @here

        show()
    """)
    with relay.session(python_path=python) as session:
        stopped_at(session, program, "here")
        local = named(session.get("/frames/0/variables").ok()["variables"])
        assert "\\ud800" in local["lone"]["value"]
        assert local["nothing"]["value"] == "None"
        assert local["broken"]["type"] == "Broken"
        inner = children(session, local["loop"]["variables_reference"])
        assert inner["0"]["type"] == "list"
        assert len(local["large"]["value"]) <= 65536
        assert session.resume()["exit_code"] == 0
