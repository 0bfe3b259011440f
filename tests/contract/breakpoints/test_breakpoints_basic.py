"""Line breakpoints: how they are judged, when they stop, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.client import Client, Session
from tests.kit.source import Source

LOOP = """
    import sys

    def work(i):
        value = i * 2  # @work
        return value  # @back

    for i in range(10):
        work(i)  # @call
    print("done")  # @after
"""

SHAPES = '''
    """What this module is about."""  # @docstring

    # a comment  # @comment
    values = [  # @statement
        1,  # @inside
        2,
    ]

    def call():
        """Says nothing."""  # @words
        return values  # @code

    call()
'''


def spec(path: Any, line: int, **fields: Any) -> dict[str, Any]:
    return {"source": {"path": str(path)}, "line": line, **fields}


def stops_of(session: Session, expression: str) -> list[str]:
    """What the expression is at every stop from here to the end."""
    seen = []
    while session.status()["status"] == "paused":
        assert session.status()["stop_reason"] == "breakpoint"
        seen.append(session.value(expression))
        session.resume()
    return seen


# -- judged when they are set


def test_a_line_with_code_is_verified_at_once(relay: Client, source: Callable[..., Source]) -> None:
    program = source(LOOP)
    with relay.session() as session:
        assert session.break_at(program, program["work"], condition="i > 3") == {
            "id": "bp_1",
            "verified": True,
            "source": {"path": str(program)},
            "line": program["work"],
            "owner": None,
            "function": None,
            "watch": None,
            "in": None,
            "change": None,
            "condition": "i > 3",
            "hit_condition": None,
            "log_message": None,
            "enabled": True,
            "hit_count": 0,
            "message": None,
            "suggestion": None,
            "updated": False,
        }


def test_a_line_without_code_says_so_and_names_the_lines_that_have_code(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source(SHAPES)
    text = program.text.splitlines()
    lines = {
        program["comment"]: ("comment", program["statement"]),
        program["comment"] - 1: ("blank", None),
        program["words"]: ("docstring", program["code"]),
        program["code"] + 1: ("blank", None),
    }
    with relay.session() as session:
        for line, (why, meant) in lines.items():
            answer = session.break_at(program, line)
            assert (answer["verified"], answer["line"]) == (False, line)
            assert answer["message"].startswith("No executable code")
            assert why in answer["message"]
            sides = [told.split("`") for told in answer["suggestion"].split("Code ")[1:]]
            for told in sides:
                side, _, number = told[0].strip().split(" ")
                assert text[int(number) - 1].strip() == told[1]
                assert (int(number) < line) == (side == "above:")
            if meant is not None:
                shown = f"line {meant} `{text[meant - 1].strip()}`, which is probably meant"
                assert shown in answer["suggestion"]
        # Never moved to another line: the program runs through.
        assert session.launch(program)["exit_code"] == 0
        assert session.events("stopped") == []


def test_a_line_past_the_end_is_refused_with_the_last(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source(LOOP)
    last = len(program.text.splitlines())
    with relay.session() as session:
        error = session.post("/breakpoints", spec(program, last + 1)).refused(
            "BREAKPOINT_INVALID_LINE", 400
        )
        assert error["details"]["max_line"] == last
        assert str(last) in error["details"]["suggestion"]
        assert session.get("/breakpoints").ok()["total"] == 0


def test_a_condition_that_does_not_compile_is_refused_with_the_syntax_error(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(LOOP)
    with relay.session(python_path=python) as session:
        for condition in ("i >", "i = 3", "if i: pass", "(i"):
            error = session.post(
                "/breakpoints", spec(program, program["work"], condition=condition)
            ).refused("BREAKPOINT_INVALID_CONDITION", 400)
            assert error["details"]["condition"] == condition
            assert error["details"]["error_message"] in error["message"]
            assert error["details"]["error_message"]
            if condition == "i >":
                assert error["details"]["offset"] in (3, 4)  # its end, as each Python counts it
        assert session.get("/breakpoints").ok()["total"] == 0


def test_a_hit_condition_of_no_known_form_is_refused_with_the_forms(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source(LOOP)
    with relay.session() as session:
        for wrong in ("abc", "> x", "5 6", "=5", "%0", "-1", "5.5"):
            body = spec(program, program["work"], hit_condition=wrong)
            error = session.post("/breakpoints", body).refused("BREAKPOINT_INVALID_CONDITION", 400)
            told = error["message"] + error["details"]["suggestion"]
            assert ">=" in told, wrong
            assert "%" in told, wrong


def test_a_relative_path_without_project_root_is_refused(relay: Client) -> None:
    with relay.session() as session:
        error = session.post("/breakpoints", spec("program.py", 1)).refused("INVALID_REQUEST", 400)
        assert "project_root" in error["message"]
        assert "absolute" in error["details"]["suggestion"]


def test_a_missing_file_that_must_exist_is_refused_with_the_closest(
    relay: Client, source: Callable[..., Source], tmp_path: Path
) -> None:
    program = source(LOOP, "program.py")
    with relay.session() as session:
        error = session.post(
            "/breakpoints", spec(tmp_path / "progam.py", 1, must_exist=True)
        ).refused("BREAKPOINT_FILE_NOT_FOUND", 400)
        assert str(program) in error["details"]["suggestion"]


def test_a_missing_file_is_pending_and_verifies_when_the_program_starts(
    relay: Client, source: Callable[..., Source], tmp_path: Path
) -> None:
    main = source("import late\nlate.work()\n")
    with relay.session() as session:
        pending = session.break_at(tmp_path / "late.py", 2)
        assert pending["verified"] is False
        assert "pending" in pending["message"]
        assert pending["suggestion"]
        source("def work():\n    return 1\n", "late.py")
        stopped = session.launch(main)
        assert stopped["current_location"]["path"] == str(tmp_path / "late.py")
        assert session.get(f"/breakpoints/{pending['id']}").ok()["verified"] is True
        told = [event["body"] for event in session.events("breakpoint")]
        assert [(body["reason"], body["breakpoint"]["verified"]) for body in told] == [
            ("new", False),
            ("changed", True),
        ]


# -- many of them


def test_set_twice_on_a_line_is_the_same_breakpoint_set_anew(
    relay: Client, source: Callable[..., Source], tmp_path: Path
) -> None:
    program = source(LOOP)
    link = tmp_path / "link.py"
    link.symlink_to(program.path)
    with relay.session() as session:
        first = session.break_at(program, program["work"], condition="i == 1", hit_condition="2")
        assert (first["id"], first["updated"]) == ("bp_1", False)
        again = session.break_at(link, program["work"], condition="i == 4")
        assert (again["id"], again["updated"]) == ("bp_1", True)
        assert (again["condition"], again["hit_condition"]) == ("i == 4", None)
        assert session.get("/breakpoints").ok()["total"] == 1
        session.launch(program)
        assert stops_of(session, "i") == ["4"]


def test_a_post_adds_and_removes_none(relay: Client, source: Callable[..., Source]) -> None:
    program = source(LOOP)
    with relay.session() as session:
        batch = [spec(program, program["work"]), {"file": str(program), "line": program["back"]}]
        added = session.post("/breakpoints", {"breakpoints": batch}).ok()["breakpoints"]
        assert [breakpoint["id"] for breakpoint in added] == ["bp_1", "bp_2"]
        short = session.post("/breakpoints", {"file": str(program), "line": program["after"]}).ok()
        assert [breakpoint["id"] for breakpoint in short["breakpoints"]] == ["bp_3"]
        listed = session.get("/breakpoints").ok()
        assert [breakpoint["id"] for breakpoint in listed["breakpoints"]] == [
            "bp_1",
            "bp_2",
            "bp_3",
        ]
        assert listed["total"] == 3


def test_the_list_is_narrowed_by_file_and_verified(
    relay: Client, source: Callable[..., Source]
) -> None:
    program, other = source(LOOP), source(SHAPES, "other.py")
    with relay.session() as session:
        session.break_at(program, program["work"])
        session.break_at(other, other["comment"])
        session.break_at(other, other["code"])

        def ids(**query: Any) -> list[str]:
            listed = session.get("/breakpoints", **query).ok()["breakpoints"]
            return [breakpoint["id"] for breakpoint in listed]

        assert ids(file=str(other)) == ["bp_2", "bp_3"]
        assert ids(verified="false") == ["bp_2"]
        assert ids(file=str(other), verified="true") == ["bp_3"]


def test_a_batch_is_set_whole_or_not_at_all_and_every_bad_entry_is_named(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source(LOOP)
    with relay.session() as session:
        error = session.post(
            "/breakpoints",
            {
                "breakpoints": [
                    spec(program, program["work"]),
                    spec(program, 999),
                    spec(program, program["back"]),
                    spec(program, program["call"], condition="i >"),
                ]
            },
        ).refused("INVALID_REQUEST", 400)
        named = {entry["field"]: entry["code"] for entry in error["details"]["errors"]}
        assert named == {
            "breakpoints[1].line": "BREAKPOINT_INVALID_LINE",
            "breakpoints[3].condition": "BREAKPOINT_INVALID_CONDITION",
        }
        # Where all bad entries agree, the reply's code is theirs.
        error = session.post(
            "/breakpoints",
            {
                "breakpoints": [
                    spec(program, 998),
                    spec(program, program["work"]),
                    spec(program, 999),
                ]
            },
        ).refused("BREAKPOINT_INVALID_LINE", 400)
        assert [entry["field"] for entry in error["details"]["errors"]] == [
            "breakpoints[0].line",
            "breakpoints[2].line",
        ]
        assert session.get("/breakpoints").ok()["total"] == 0


def test_a_batch_beside_single_fields_is_refused(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source(LOOP)
    with relay.session() as session:
        session.post(
            "/breakpoints", {"breakpoints": [spec(program, program["work"])], "line": 3}
        ).refused("INVALID_REQUEST", 400)
        session.post("/breakpoints", {"file": str(program)}).refused("INVALID_REQUEST", 400)
        session.post("/breakpoints", {"line": 3}).refused("INVALID_REQUEST", 400)


# -- changed and removed


def test_deleted_ones_are_gone_and_their_ids_are_not_used_again(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source(LOOP)
    with relay.session() as session:
        for mark in ("work", "back", "after"):
            session.break_at(program, program[mark])
        session.launch(program)
        assert session.delete("/breakpoints/bp_1").ok()["deleted"] is True
        for gone in (session.get, session.delete):
            error = gone("/breakpoints/bp_1").refused("BREAKPOINT_NOT_FOUND", 404)
            assert "bp_2" in error["details"]["suggestion"]
        session.patch("/breakpoints/bp_1", {}).refused("BREAKPOINT_NOT_FOUND", 404)
        assert session.resume()["current_location"]["line"] == program["back"]
        assert session.delete("/breakpoints").ok()["deleted"] == 2
        assert session.break_at(program, program["work"])["id"] == "bp_4"
        assert session.delete("/breakpoints").ok()["deleted"] == 1
        assert session.delete("/breakpoints").ok()["deleted"] == 0
        assert session.resume()["exit_code"] == 0
        bodies = [event["body"] for event in session.events("breakpoint")]
        for reason in ("new", "removed"):
            assert [body["breakpoint"]["id"] for body in bodies if body["reason"] == reason] == [
                "bp_1", "bp_2", "bp_3", "bp_4",
            ]  # fmt: skip


@pytest.mark.one_python
def test_a_patch_changes_what_it_names_and_keeps_the_rest(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(LOOP)
    with relay.session(python_path=python) as session:
        id = session.break_at(program, program["work"], condition="i in (2, 5, 7)")["id"]
        off = session.break_at(program, program["back"], enabled=False)
        assert (off["enabled"], off["verified"]) == (False, True)
        session.launch(program)
        assert session.value("i") == "2"
        changed = session.patch(f"/breakpoints/{id}", {"hit_condition": "3"}).ok()
        assert (changed["condition"], changed["hit_condition"]) == ("i in (2, 5, 7)", "3")
        # Its count goes on: the third time that the condition is true.
        session.resume()
        assert session.value("i") == "7"
        session.patch(f"/breakpoints/{id}", {"condition": "i >"}).refused(
            "BREAKPOINT_INVALID_CONDITION", 400
        )
        cleared = session.patch(f"/breakpoints/{id}", {"condition": None, "hit_condition": None})
        assert (cleared.ok()["condition"], cleared.ok()["hit_condition"]) == (None, None)
        session.resume()
        assert session.value("i") == "8"
        # A disabled one does not stop until it is enabled.
        session.patch(f"/breakpoints/{off['id']}", {"enabled": True}).ok()
        assert session.resume()["current_location"]["line"] == program["back"]
        assert session.value("i") == "8"
        for one in (id, off["id"]):
            assert session.patch(f"/breakpoints/{one}", {"enabled": False}).ok()["enabled"] is False
        assert session.resume()["exit_code"] == 0


# -- when they stop

CONDITIONS = """
    LIMIT = 3

    def work(i, wanted):
        {lines}

    for n in range(6):
        work(n, {{2, 4}})
"""
# A line's condition and hit condition, and what `i` is when the program stops there.
STOPS = {
    (None, "3"): ["2"],
    (None, "==3"): ["2"],
    (None, "!= 3"): ["0", "1", "3", "4", "5"],
    (None, ">=5"): ["4", "5"],
    (None, ">5"): ["5"],
    (None, " <= 2 "): ["0", "1"],
    (None, "<2"): ["0"],
    (None, "% 2"): ["1", "3", "5"],
    # Counted are the hits at which the condition is true: 0, 2, 4.
    ("i % 2 == 0", "%2"): ["2"],
    # It reads locals and globals, also from within a nested scope.
    ("any(x == i for x in wanted) and i > LIMIT", None): ["4"],
}


def test_conditions_and_hit_conditions(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    lines = "\n        ".join(f"line_{number} = i" for number in range(len(STOPS)))
    program = source(CONDITIONS.format(lines=lines))
    first = program.text.splitlines().index("    line_0 = i") + 1
    with relay.session(python_path=python) as session:
        for line, (condition, hit_condition) in enumerate(STOPS, first):
            session.break_at(program, line, condition=condition, hit_condition=hit_condition)
        seen: dict[int, list[str]] = {}
        answer = session.launch(program)
        while answer["status"] == "paused":
            line = answer["current_location"]["line"]
            seen.setdefault(line, []).append(session.value("i"))
            answer = session.resume()
        assert {form: seen[line] for line, form in enumerate(STOPS, first)} == STOPS
        listed = session.get("/breakpoints").ok()["breakpoints"]
        assert [one["hit_count"] for one in listed] == [6] * 8 + [3, 1]


def test_hits_are_counted_while_it_runs_and_after_the_end(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source(LOOP)
    with relay.session() as session:
        passed = session.break_at(program, program["work"], condition="i < 4", hit_condition=">99")
        stopping = session.break_at(program, program["call"], condition="i == 2")
        session.launch(program)

        def counts() -> list[int]:
            return [
                session.get(f"/breakpoints/{breakpoint['id']}").ok()["hit_count"]
                for breakpoint in (passed, stopping)
            ]

        assert counts() == [2, 1]
        (stopped,) = session.events("stopped")
        assert stopped["body"]["hit_breakpoint_ids"] == [stopping["id"]]
        assert session.status()["stop_reason"] == "breakpoint"
        session.break_at(program, program["after"])
        session.resume()
        assert counts() == [4, 1]
        session.resume()
        assert counts() == [4, 1]


def test_conditions_that_raise_or_cost_much_are_reported_once(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source("""
        for i in range(2000):
            value = i  # @raises
        for i in range(250_000):
            value = i  # @hot
        for i in range(1000):
            value = i  # @short
        print("done")
    """)
    with relay.session(python_path=python) as session:
        raising = session.break_at(program, program["raises"], condition="unknown > i")["id"]
        hot = session.break_at(program, program["hot"], condition="i < 0")["id"]
        session.break_at(program, program["short"], condition="i < 0")
        ended = session.launch(program)
        assert (ended["status"], ended["exit_code"]) == ("terminated", 0)
        assert session.events("stopped") == []
        # Nothing of it among what the program printed.
        assert session.printed() == "done\n"
        bodies = [event["body"] for event in session.events("breakpoint")]
        assert [body["reason"] for body in bodies] == ["new"] * 3 + ["changed"] * 2
        of_raising, of_hot = (body["breakpoint"] for body in bodies[3:])
        assert (of_raising["id"], of_hot["id"]) == (raising, hot)
        assert "NameError" in of_raising["message"]
        assert "NameError" in session.get(f"/breakpoints/{raising}").ok()["message"]
        assert of_hot["verified"]
        assert "many times slower" in of_hot["message"]
        assert "`if`" in of_hot["suggestion"]


def test_set_and_removed_while_the_program_runs_in_a_hot_loop(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source("""
        def spin():
            n = 0
            while n >= 0:
                n += 1  # @loop

        print("spinning", flush=True)
        spin()
    """)
    with relay.session(python_path=python) as session:
        assert session.launch(program, wait=0.1)["status"] == "running"
        session.events("output", timeout=20)
        cursor = session.get("/events", limit=1000).ok()["next_cursor"]
        for _ in range(2):
            assert session.break_at(program, program["loop"])["verified"] is True
            (stopped,) = session.events("stopped", cursor=cursor, timeout=20)
            assert stopped["body"]["current_location"]["line"] == program["loop"]
            session.delete("/breakpoints").ok()
            assert session.resume(wait=0.05)["status"] == "running"
            cursor = session.get("/events", cursor=cursor, limit=1000).ok()["next_cursor"]
        assert session.status()["status"] == "running"


@pytest.mark.one_python
def test_breakpoints_in_imported_modules_and_odd_file_names(
    relay: Client, source: Callable[..., Source], python: str, tmp_path: Path
) -> None:
    """A relative path resolves against the project root."""
    module = source("def work(x):\n    return x  # @work\n", "pkg with space/mödule.py")
    main = source("""
        import sys
        sys.path.insert(0, sys.argv[1])
        import mödule
        mödule.work(7)
    """)
    with relay.session(python_path=python, project_root=str(tmp_path)) as session:
        answer = session.break_at("pkg with space/mödule.py", module["work"])
        assert answer["verified"] is True
        assert answer["source"]["path"] == str(module)
        stopped = session.launch(main, args=[str(module.path.parent)])
        assert stopped["current_location"]["path"] == str(module)
        assert session.locals() == {"x": "7"}
