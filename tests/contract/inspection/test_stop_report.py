"""The stop report: everything about a stop in the reply of the call that came to it."""

from __future__ import annotations

import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.client import Client, Session
from tests.kit.relay import eventually
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

PROGRAM = """
    class Box:
        def __init__(self):
            self.held = 1

    def add(a, b):
        c = a + b  # @inside
        return c

    def main():
        total = 0
        seen = {"x": [1, 2]}
        box = Box()
        for i in range(3):
            print("round", i)
            seen["x"].append(i)  # @call
            box.held += 1  # @second
            total = add(total, i)  # @third
        raise ValueError("boom")  # @raise

    main()
"""
OFF = {"DEBUG_RELAY_PROBE": "off"}


def by_name(rows: list[Any]) -> dict[str, Any]:
    return {row["name"]: row["value"] for row in rows}


def changes(report: Any) -> dict[str, tuple[str | None, str | None]]:
    return {change["name"]: (change["before"], change["after"]) for change in report["changed"]}


def at_call(session: Session, program: Source, **fields: Any) -> Any:
    session.break_at(program, program["call"])
    return session.launch(program, snapshot=True, **fields)["stop"]


def test_one_reply_tells_all_and_what_has_changed(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(PROGRAM)
    with relay.session(python_path=python) as session:
        report = at_call(session, program)
        assert (report["stop_id"], report["stop_reason"]) == (1, "breakpoint")
        thread = report["thread"]
        assert (thread["id"], thread["name"], thread["is_child"]) == (1, "MainThread", False)
        assert report["current_location"]["line"] == program["call"]
        assert report["hit_breakpoints"] == ["bp_1"]
        assert report["output"] == [{"category": "stdout", "text": "round 0\n"}]
        marked = [line["text"] for line in report["source"]["lines"] if line["current"]]
        assert marked == ['        seen["x"].append(i)  # @call']
        assert len(report["source"]["lines"]) == 7
        assert [frame["name"] for frame in report["frames"]] == ["main", "<module>"]
        listed = session.get("/stacktrace").ok()["frames"]
        for name in ("id", "name", "line"):
            assert [one[name] for one in report["frames"]] == [one[name] for one in listed]
        assert by_name(report["locals"]) == {
            "total": "0",
            "seen": "{'x': [1, 2]}",
            "box": "<__main__.Box held=1>",
            "i": "0",
        }
        assert (report["total_frames"], report["total_locals"]) == (2, 4)
        assert (report["changed"], report["cut"], report["note"]) == ([], [], None)
        # Its variables can be opened.
        seen = next(row for row in report["locals"] if row["name"] == "seen")
        assert (seen["length"], seen["expandable"]) == (1, True)
        opened = session.get(f"/variables/{seen['variables_reference']}").ok()["variables"]
        assert by_name(opened) == {"'x'": "[1, 2]"}

        report = session.step(snapshot=True)["stop"]
        assert changes(report) == {"seen": ("{'x': [1, 2]}", "{'x': [1, 2, 0]}")}
        report = session.step(snapshot=True)["stop"]
        assert changes(report) == {"box": ("<__main__.Box held=1>", "<__main__.Box held=2>")}
        inside = session.step("into", snapshot=True)["stop"]
        assert changes(inside) == {}, "another function"
        assert changes(session.step(snapshot=True)["stop"]) == {"c": (None, "0")}


def test_a_generator_goes_on_in_its_frame(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source("""
        def count():
            for n in range(3):
                yield n  # @yield

        list(count())
    """)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["yield"])
        session.launch(program)
        assert changes(session.resume(snapshot=True)["stop"]) == {"n": ("0", "1")}


def test_what_was_returned_and_what_was_raised(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(PROGRAM)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["inside"])
        session.launch(program)
        for _ in range(2):
            # Another call is another frame.
            assert session.resume(snapshot=True)["stop"]["changed"] == []
        returned = session.step("out", snapshot=True)
        assert returned["stop"]["return_value"] == {"type": "int", "value": "3"}
        assert returned["stop"]["return_value"] == returned["return_value"]
        report = session.resume(snapshot=True)["stop"]
        assert report["stop_reason"] == "exception"
        assert (report["exception"]["type"], report["exception"]["message"]) == (
            "ValueError",
            "boom",
        )
        assert "raise ValueError" in report["exception"]["traceback"]
        assert report["current_location"]["line"] == program["raise"]
        assert "__exception__" not in by_name(report["locals"])


def test_bounds_of_each_part_and_later_reports(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source(PROGRAM)
    with relay.session() as session:
        at_call(session, program)
        bounds = {"frames": 1, "locals": 2, "source_lines": 0, "output_bytes": 3}
        report = session.resume(snapshot=bounds)["stop"]
        assert len(report["frames"]) == 1
        assert list(by_name(report["locals"])) == ["total", "seen"]
        assert [line["line"] for line in report["source"]["lines"]] == [program["call"]]
        assert report["output"] == [{"category": "stdout", "text": " 1\n"}]
        cut = {part["part"]: (part["shown"], part["total"]) for part in report["cut"]}
        assert cut == {"frames": (1, 2), "locals": (2, 4), "output": (3, 8)}
        for part in report["cut"]:
            path = part["get"].removeprefix(f"GET /api/v1/sessions/{session.id}")
            session.get(path).ok()
        assert session.get("/snapshot", locals=0).ok()["stop"]["locals"] == []
        # A snapshot is of now.
        session.post("/evaluate", {"expression": "total = 7"}).ok()
        now = session.get("/snapshot").ok()["stop"]
        assert by_name(now["locals"])["total"] == "7"
        assert now["stop_id"] == report["stop_id"]
        # A report of the history has the lines as they were at its stop.
        program.path.write_text("# gone\n" * 30)
        session.step()
        older = session.get("/history").ok()["items"][1]
        assert older["source"]["lines"][3]["text"].strip().startswith('seen["x"]')
        session.delete("/breakpoints")
        session.resume()
        session.resume()
        session.get("/snapshot").refused("INVALID_SESSION_STATE", 409)


@pytest.mark.parametrize(
    ("bounds", "field"),
    [({"framez": 1}, "framez"), ({"frames": -1}, "frames"), ({"max_bytes": 10}, "max_bytes")],
)
def test_bounds_that_do_not_fit_are_told(
    relay: Client, source: Callable[..., Source], bounds: dict[str, int], field: str
) -> None:
    with relay.session() as session:
        error = session.post("/step-over", {"snapshot": bounds}).refused("INVALID_REQUEST")
        assert field in error["details"]["errors"][0]["field"]


def test_a_pause_reports_too(relay: Client, source: Callable[..., Source]) -> None:
    program = source("import time\nprint('up')\nwhile True:\n    time.sleep(0.01)\n")
    with relay.session() as session:
        session.launch(program, wait=0)
        eventually(lambda: session.printed() == "up\n")
        stopped = session.post("/pause", {"wait": 20, "snapshot": True}).ok()
        assert stopped["stop"]["stop_reason"] == "pause"
        assert "time" in by_name(stopped["stop"]["locals"])


def test_all_locals_and_frames_that_are_asked_for(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    names = "\n".join(f"    v{n} = {n}" for n in range(500))
    program = source(
        f"import sys\nsys.setrecursionlimit(9000)\ndef deep(n):\n    if n:\n"
        f"        return deep(n - 1)\n{names}\n    last = 1  # @stop\n    return last\ndeep(3000)\n"
    )
    with relay.session(python_path=python) as session:
        session.break_at(program, program["stop"])
        report = session.launch(
            program, snapshot={"locals": 1000, "frames": 1000, "max_bytes": 1_000_000}
        )["stop"]
        assert (len(report["frames"]), report["total_frames"]) == (1000, 3002)
        assert by_name(report["locals"])["v499"] == "499"
        assert [part["part"] for part in report["cut"]] == ["frames"]
        unasked = session.step(snapshot=True)["stop"]
        assert (len(unasked["locals"]), unasked["total_locals"]) == (50, 502)
        assert changes(unasked) == {"last": (None, "1")}, "beyond those that are shown"


def test_a_reply_is_never_larger_than_asked(relay: Client, source: Callable[..., Source]) -> None:
    program = source("""
        def f():
            print("noise " * 3000)
            text, rows = "x" * 100000, list(range(10000))
            a, b, c = [text] * 5, {n: text for n in range(50)}, text.encode()
            raise ValueError(text)  # @raise

        f()
    """)
    with relay.session() as session:
        session.break_at(program, program["raise"])
        session.launch(program)
        for most in (1024, 1500, 3000, 6000, 20000, 65536):
            answer = session.get("/snapshot", max_bytes=most, output_bytes=65536, source_lines=50)
            answer.ok()
            assert len(answer.raw) <= most
        answer = session.post("/continue", {"wait": 20, "snapshot": {"max_bytes": 2000}})
        assert len(answer.raw) <= 2000
        assert answer.ok()["stop"]["cut"]


def test_code_that_is_in_no_file_has_its_lines(
    relay: Client, source: Callable[..., Source], python: str, tmp_path: Path
) -> None:
    program = source("""
        import linecache

        text = "def made(x):\\n    y = x + 1\\n    breakpoint()\\n    z = y + 1\\n"
        linecache.cache["<made>"] = (len(text), None, text.splitlines(True), "<made>")
        names = {}
        exec(compile(text, "<made>", "exec"), names)
        names["made"](1)
    """)
    archive = tmp_path / "library.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("packed.py", "def inside():\n    breakpoint()\n    return 7\n")
    wanted = ["    z = y + 1", "    return 7", "made = 1 / 0"]
    with relay.session(python_path=python) as session:
        stop = session.launch(program, snapshot=True)["stop"]
        assert current(stop) == (wanted[0], 4)
        assert stop["current_location"]["function"] == "made"
        assert session.get("/source", frame_id=0).ok()["lines"][3] == wanted[0]
    with relay.session(python_path=python) as session:
        code = "import packed\npacked.inside()\nexec('breakpoint()\\nx = 5')\nmade = 1 / 0\n"
        stop = session.launch(code=code, pythonpath=[str(archive)], snapshot=True)["stop"]
        assert current(stop) == (wanted[1], 3)
        assert session.get("/source", frame_id=0).ok()["lines"][2] == wanted[1]
        assert session.get("/source", frame_id=1).ok()["lines"] == code.splitlines()
        # Of the same file name, and not the text that was launched.
        stop = session.resume(snapshot=True)["stop"]
        assert (stop["current_location"]["line"], stop["source"]) == (2, None)
        stop = session.resume(snapshot=True)["stop"]
        assert current(stop) == (wanted[2], 4)
        assert wanted[2] in session.get("/exception").ok()["traceback"]


def current(stop: Any) -> tuple[str, int]:
    """The line at which the report's source stands, and how many there are."""
    (line,) = (line["text"] for line in stop["source"]["lines"] if line["current"])
    return line, stop["source"]["total_lines"]


def test_the_same_report_by_plain_dap(relay: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    with relay.session() as session:
        session.post("/watch", {"expression": "total + i"}).ok()
        report = at_call(session, program, env=OFF)
        assert by_name(report["locals"])["seen"] == "{'x': [1, 2]}"
        assert [frame["name"] for frame in report["frames"]] == ["main", "<module>"]
        assert report["watches"][0]["value"] == "0"
        report = session.step(snapshot=True)["stop"]
        assert changes(report)["seen"] == ("{'x': [1, 2]}", "{'x': [1, 2, 0]}")
        assert session.get("/snapshot").ok()["stop"]["total_locals"] == 4


def test_a_frame_is_compared_with_its_own_last_stop(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source("""
        def fill(box, depth):
            seen = len(box)  # @seen
            if depth:
                fill(box, depth - 1)
            box.append(depth)
            return box  # @filled

        def main():
            text = "x" * 3000
            text = "x" * 2999 + "y"  # @text
            many = list(range(5000))
            many.append(1)
            return fill([], 2)

        main()
    """)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["text"])
        first = session.launch(program, snapshot=True)["stop"]
        assert first["new_frame"] is True
        long = session.step(snapshot=True)["stop"]
        assert long["new_frame"] is False
        before, after = changes(long)["text"]
        assert (before or "") + " (differs beyond what is shown)" == after
        session.step()
        before, after = changes(session.step(snapshot=True)["stop"])["many"]
        assert before != after, "their sizes tell them apart"
        session.break_at(program, program["seen"])
        assert [session.resume(snapshot=True)["stop"]["new_frame"] for _ in range(3)] == [True] * 3
        session.delete("/breakpoints").ok()
        session.break_at(program, program["filled"])
        inner = session.resume(snapshot=True)["stop"]
        assert changes(inner) == {"box": ("[]", "[0]"), "seen": (None, "0")}
        outer = session.resume(snapshot=True)["stop"]
        # Up to 3.11 nothing tells a frame that was left for another from a new one in its place.
        assert changes(outer) in ({}, {"box": ("[]", "[0, 1]"), "seen": (None, "0")})
        assert outer["new_frame"] is (changes(outer) == {})


def test_cut_output_counts_bytes_and_says_where_the_rest_is(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source("""
        print("before")
        here = 1  # @here
        print("ž" * 500)
        there = 2  # @there
    """)
    with relay.session() as session:
        session.break_at(program, program["here"])
        session.break_at(program, program["there"])
        session.launch(program)
        report = session.resume(snapshot={"output_bytes": 100})["stop"]
        assert report["output"] == [{"category": "stdout", "text": "ž" * 49 + "\n"}]
        (cut,) = [cut for cut in report["cut"] if cut["part"] == "output"]
        assert (cut["shown"], cut["total"]) == (99, 1001)
        rest = session.get(cut["get"].partition(session.id)[2]).ok()["entries"]
        assert "".join(entry["output"] for entry in rest) == "ž" * 500 + "\n"


def test_a_repr_that_hangs_costs_its_patience_once(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source("""
        import time

        class Slow:
            def __repr__(self):
                time.sleep(30)
                return "at last"

        def main():
            slow, fast = Slow(), [1]
            a = 1  # @a
            b = 2
            c = 3

        main()
    """)
    with relay.session() as session:
        session.break_at(program, program["a"])
        first = by_name(session.launch(program, snapshot=True)["stop"]["locals"])
        assert "took too long" in first["slow"]
        assert first["fast"] == "[1]"
        began = time.monotonic()
        second = by_name(session.step(snapshot=True)["stop"]["locals"])
        unasked = time.monotonic() - began
        assert second["a"] == "1"
        began = time.monotonic()
        asked = by_name(session.get("/snapshot").ok()["stop"]["locals"])
        assert "took too long" in asked["slow"]
        assert unasked < time.monotonic() - began < 5


def test_what_changes_beyond_the_locals_that_are_shown_is_told_in_words(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    many = "; ".join(f"name_{number} = 0" for number in range(60))
    program = source(f"""
        def main():
            {many}
            last = [1]  # @stop
            last.append(2)
            return last

        main()
    """)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["stop"])
        session.launch(program)
        (made,) = session.step(snapshot=True)["stop"]["changed"]
        assert (made["name"], made["before"], made["after"]) == ("last", None, "[1]")
        (grown,) = session.step(snapshot=True)["stop"]["changed"]
        assert (grown["name"], grown["after"]) == ("last", "[1, 2]")
