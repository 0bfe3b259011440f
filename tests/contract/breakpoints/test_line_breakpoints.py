"""Line breakpoints found by text, guarded by text, counted to the last, a thousand at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.client import Client, Session
from tests.kit.source import Source, interpreters

SHOP = """
    def price(item):
        total = item * 2  # @total
        return total  # @back

    def refund(item):
        total = -item
        return total

    for n in range(4):
        price(n)
"""


def post(session: Session, path: Any, **fields: Any) -> Any:
    return session.post("/breakpoints", {"file": str(path), **fields})


def test_text_finds_the_one_line_that_contains_it(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source(SHOP)
    with relay.session() as session:
        (found,) = post(session, program, text="total = item * 2").ok()["breakpoints"]
        assert (found["line"], found["verified"]) == (program["total"], True)
        assert session.launch(program)["current_location"]["line"] == program["total"]


def test_text_in_several_lines_lists_them(relay: Client, source: Callable[..., Source]) -> None:
    program = source(SHOP)
    lines = program.text.splitlines()
    with relay.session() as session:
        error = post(session, program, text="return total").refused("BREAKPOINT_TEXT_MISMATCH", 400)
        expected = [
            {"line": number, "text": text}
            for number, text in enumerate(lines, 1)
            if "return total" in text
        ]
        assert len(expected) == 2
        assert error["details"]["lines"] == expected
        assert error["details"]["matches"] == 2
        assert f"{expected[1]['line']}: return total" in error["details"]["suggestion"]


def test_text_in_no_line_lists_the_nearest(relay: Client, source: Callable[..., Source]) -> None:
    program = source(SHOP)
    with relay.session() as session:
        error = post(session, program, text="total = item + 2").refused(
            "BREAKPOINT_TEXT_MISMATCH", 400
        )
        assert error["details"]["matches"] == 0
        assert program["total"] in [line["line"] for line in error["details"]["lines"]]
        assert session.get("/breakpoints").ok()["total"] == 0


def test_text_needs_a_file_that_is_there(
    relay: Client, source: Callable[..., Source], tmp_path: Path
) -> None:
    program = source(SHOP)
    with relay.session() as session:
        post(session, tmp_path / "later.py", text="x").refused("BREAKPOINT_FILE_NOT_FOUND", 400)
        post(session, program, text="x", line=3).refused("INVALID_REQUEST", 400)


def test_expected_text_guards_a_line_and_shows_its_neighbours(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source(SHOP)
    with relay.session() as session:
        (set_,) = post(session, program, line=program["total"], expected_text="item * 2").ok()[
            "breakpoints"
        ]
        assert set_["verified"] is True
        error = post(session, program, line=program["back"], expected_text="item * 2").refused(
            "BREAKPOINT_TEXT_MISMATCH", 400
        )
        details = error["details"]
        assert details["found_in"] == [program["total"]]
        assert f"line {program['total']}" in details["suggestion"]
        shown = {line["line"]: line["text"] for line in details["lines"]}
        assert shown[program["back"]] == program.text.splitlines()[program["back"] - 1]
        assert {program["back"] - 1, program["back"] + 1} <= shown.keys()


def test_a_guarded_line_that_moved_before_the_launch_is_said(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source(SHOP)
    with relay.session() as session:
        id = post(session, program, line=program["total"], expected_text="item * 2").ok()[
            "breakpoints"
        ][0]["id"]
        program.path.write_text("# a new first line\n" + program.text)
        assert session.launch(program)["exit_code"] == 0
        now = session.get(f"/breakpoints/{id}").ok()
        assert now["verified"] is False
        assert f"line {program['total'] + 1}" in now["suggestion"]
        # It can still be changed, whatever the file became.
        assert session.patch(f"/breakpoints/{id}", {"enabled": False}).ok()["enabled"] is False


ENDS = {
    "os._exit": "import os; os._exit(3)",
    "SIGKILL": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
}


@pytest.mark.parametrize("end", ENDS)
def test_hits_are_counted_to_the_last_however_it_ends(
    relay: Client, source: Callable[..., Source], python: str, end: str
) -> None:
    program = source(f"for i in range(1000):\n    x = i  # @loop\n{ENDS[end]}\n")
    with relay.session(python_path=python) as session:
        often = session.break_at(program, program["loop"], condition="i % 2", hit_condition=">9999")
        assert session.launch(program)["status"] == "terminated"
        assert session.get(f"/breakpoints/{often['id']}").ok()["hit_count"] == 500


def test_a_count_goes_on_when_a_hit_condition_is_patched(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source("for i in range(20):\n    x = i  # @loop\n    y = x  # @next\n")
    with relay.session(python_path=python) as session:
        id = session.break_at(program, program["loop"], condition="i >= 0", log_message="{i}")["id"]
        session.break_at(program, program["next"], hit_condition="5")
        session.launch(program)
        session.patch(f"/breakpoints/{id}", {"hit_condition": "8", "log_message": None}).ok()
        session.resume()
        assert session.value("i") == "7"
        assert session.get(f"/breakpoints/{id}").ok()["hit_count"] == 8
        # Set anew, it begins to count anew.
        session.break_at(program, program["loop"], hit_condition="2")
        session.resume()
        assert session.value("i") == "9"
        assert session.get(f"/breakpoints/{id}").ok()["hit_count"] == 2


def test_the_programs_own_interpreter_judges_at_the_launch(
    relay: Client, source: Callable[..., Source]
) -> None:
    found = interpreters()
    if "3.8" not in found:
        pytest.skip("no CPython 3.8 on this machine")
    # From 3.9 on a decorator of several lines has code on its last ones; 3.8 knows no match.
    program = source("""
        x = 1  # @first
        match x:
            case 1:
                y = 2  # @case
    """)
    with relay.session() as session:
        assert session.break_at(program, program["case"])["verified"] is True
        id = session.break_at(program, program["first"])["id"]
        session.try_launch(program, python_path=found["3.8"]).refused("LAUNCH_SYNTAX_ERROR", 400)
        module = source("def late():\n    match 1:\n        case 1: pass\n", "late.py")
        late = session.break_at(module, 2)
        assert late["verified"] is True
        main = source("print('ran')\n", "main.py")
        assert session.launch(main, python_path=found["3.8"])["exit_code"] == 0
        again = session.get(f"/breakpoints/{late['id']}").ok()
        assert again["verified"] is False
        assert "does not compile" in again["message"]
        assert session.get(f"/breakpoints/{id}").ok()["verified"] is False


def test_a_library_that_is_left_out_is_said(
    relay: Client, source: Callable[..., Source], tmp_path: Path
) -> None:
    library = source("def f():\n    return 1  # @in\n", "lib/python3/site-packages/library.py")
    main = source("import library\nlibrary.f()\n")
    with relay.session(just_my_code=True) as session:
        id = session.break_at(library, library["in"])["id"]
        ended = session.launch(main, env={"PYTHONPATH": str(library.path.parent)})
        assert ended["status"] == "terminated"
        told = session.get(f"/breakpoints/{id}").ok()
        assert told["verified"] is False
        assert "just_my_code" in told["message"]


@pytest.mark.parametrize("running", [False, True])
def test_a_thousand_in_one_file_take_less_than_a_second(
    relay: Client, source: Callable[..., Source], python: str, running: bool
) -> None:
    body = "".join(f"    x{n} = {n}\n" for n in range(1000))
    text = f"import time\ndef f():\n{body}print('up', flush=True)\nwhile True: time.sleep(0.01)\n"
    program = source(text)
    batch = [{"file": str(program), "line": n + 3, "condition": f"x{n} > 5"} for n in range(1000)]
    with relay.session(python_path=python) as session:
        if running:
            session.launch(program, wait=0.1)
            session.events("output", timeout=20)
        began = time.monotonic()
        set_ = session.post("/breakpoints", {"breakpoints": batch}).ok()["breakpoints"]
        anew = session.post("/breakpoints", {"breakpoints": batch}).ok()["breakpoints"]
        assert session.delete("/breakpoints").ok()["deleted"] == 1000
        # 0.1 s; a busy machine gets its time.
        assert time.monotonic() - began < 3
        assert all(breakpoint["verified"] for breakpoint in set_)
        assert [b["id"] for b in anew] == [b["id"] for b in set_]
        assert all(breakpoint["updated"] for breakpoint in anew)
