"""All that is wrong with a request is told in one answer: shapes, and what fields mean together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.client import Answer, Client
from tests.kit.source import Source

PROGRAM = """
    x = 1  # @here
    y = 2
"""
ROOTLESS = "must be absolute: the session has no project_root"


def told(answer: Answer, code: str = "INVALID_REQUEST") -> dict[str, Any]:
    """By field: what each wrong field was told."""
    errors = answer.refused(code, 400)["details"]["errors"]
    assert all({"field", "message", "value"} <= one.keys() for one in errors), errors
    return {one["field"]: one for one in errors}


def values(errors: dict[str, Any]) -> dict[str, Any]:
    return {field: one["value"] for field, one in errors.items()}


def test_launch_tells_shapes_and_meaning_together(relay: Client) -> None:
    with relay.session() as session:
        body = {"script": "a.py", "module": "m", "args": [1], "console": "externalTerminal"}
        errors = told(session.post("/launch", body))
        assert values(errors) == {
            "script": "a.py", "module": "m", "args[0]": 1, "console": "externalTerminal",
        }  # fmt: skip
        assert errors["module"]["message"] == "give exactly one of script, module, code"
        errors = told(session.post("/launch", {"wait": "x"}))
        assert errors.keys() == {"wait", "script"}
        errors = told(session.post("/launch", {"script": "a.py"}))
        assert values(errors) == {"script": "a.py"}
        errors = told(session.post("/launch", {"script": "/a.py", "cwd": "here"}))
        assert values(errors) == {"cwd": "here"}
        assert errors["cwd"]["message"] == ROOTLESS
        assert session.status()["status"] == "created"


def test_attach_tells_shapes_and_meaning_together(relay: Client) -> None:
    with relay.session() as session:
        errors = told(session.post("/attach", {"pid": 5, "port": 6, "connect_timeout": 0}))
        assert values(errors) == {"pid": 5, "port": 6, "connect_timeout": 0}
        errors = told(session.post("/attach", {"host": "localhost", "tree": 1}))
        assert errors.keys() == {"pid", "host", "tree"}
        assert errors["host"]["message"] == "needs port as well"


def test_create_tells_shapes_and_meaning_together(relay: Client) -> None:
    body = {
        "project_root": "src",
        "timeout_minutes": 5,
        "idle_timeout": 300,
        "labels": {"": "a", "a=b": "c", "ok": 1},
        "script": "x.py",
    }
    errors = told(relay.post("/sessions", body))
    assert errors.keys() == {
        *("project_root", "timeout_minutes", "idle_timeout", "script"),
        *("labels.", "labels.a=b", "labels.ok"),
    }
    assert errors["project_root"]["message"] == "must be absolute"
    assert errors["labels.a=b"]["message"].endswith("without =, not empty")
    assert errors["script"]["message"] == "needs mode launch or attach"
    errors = told(relay.post("/sessions", {"mode": "launch", "module": "m", "code": "1", "pid": 5}))
    assert values(errors) == {"module": "m", "code": "1", "pid": 5}
    assert relay.get("/sessions").ok()["total"] == 0


def test_a_relative_project_root_is_refused_and_a_home_is_not(relay: Client) -> None:
    with relay.session(project_root="~/somewhere/../else") as session:
        shown = session.get().ok()["config"]["project_root"]
        assert shown == str(Path("~/else").expanduser())
        assert told(session.patch("", {"project_root": "src"})).keys() == {"project_root"}
        assert session.get().ok()["config"]["project_root"] == shown


def test_a_batch_of_breakpoints_tells_every_entry(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source(PROGRAM)
    path = str(program)
    with relay.session() as session:
        batch = [
            {"file": path, "line": program["here"]},
            {"file": path, "line": 999},
            {"file": "a.py", "line": 1},
            {"file": path},
            {"line": "x"},
            {"file": "/other.py", "source": {"path": path}, "line": 1},
            {"file": path, "line": 1, "condition": "x ="},
            {"file": "/nowhere.py", "line": 1, "must_exist": True},
            {"file": path, "line": 1, "text": "x"},
            {"file": path, "line": 1, "hit_condition": "often"},
        ]
        answer = session.post("/breakpoints", {"breakpoints": batch, "linee": 1})
        errors = told(answer)
        assert {field: (one.get("code"), one["value"]) for field, one in errors.items()} == {
            "linee": (None, 1),
            "breakpoints[1].line": ("BREAKPOINT_INVALID_LINE", 999),
            "breakpoints[2].file": ("INVALID_REQUEST", "a.py"),
            "breakpoints[3].line": ("INVALID_REQUEST", None),
            "breakpoints[4].line": ("INVALID_REQUEST", "x"),
            "breakpoints[4].source.path": ("INVALID_REQUEST", None),
            "breakpoints[5].file": ("INVALID_REQUEST", "/other.py"),
            "breakpoints[6].condition": ("BREAKPOINT_INVALID_CONDITION", "x ="),
            "breakpoints[7].file": ("BREAKPOINT_FILE_NOT_FOUND", "/nowhere.py"),
            "breakpoints[8].line": ("INVALID_REQUEST", 1),
            "breakpoints[8].text": ("INVALID_REQUEST", "x"),
            "breakpoints[9].hit_condition": ("BREAKPOINT_INVALID_CONDITION", "often"),
        }
        assert errors["breakpoints[2].file"]["message"] == ROOTLESS
        assert "ends with line" in errors["breakpoints[1].line"]["message"]
        assert session.get("/breakpoints").ok()["total"] == 0


def test_the_code_of_a_batch_is_its_entries_where_they_agree(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source(PROGRAM)
    good = {"file": str(program), "line": program["here"]}
    with relay.session() as session:
        batch = [good, {**good, "line": 100}, {**good, "line": 200}]
        answer = session.post("/breakpoints", {"breakpoints": batch})
        errors = told(answer, "BREAKPOINT_INVALID_LINE")
        assert values(errors) == {"breakpoints[1].line": 100, "breakpoints[2].line": 200}
        answer = session.post("/breakpoints", {"breakpoints": [good, {**good, "line": 100}]})
        assert answer.refused("BREAKPOINT_INVALID_LINE")["details"]["max_line"] == 2
        answer = session.post("/breakpoints", {**good, "line": 100})
        assert values(told(answer, "BREAKPOINT_INVALID_LINE")) == {"line": 100}
        assert answer.refused("BREAKPOINT_INVALID_LINE")["details"]["max_line"] == 2
        assert session.get("/breakpoints").ok()["total"] == 0


def test_one_breakpoint_without_a_place(relay: Client) -> None:
    with relay.session() as session:
        assert told(session.post("/breakpoints", {"enabled": True})).keys() == {
            "source.path", "line",
        }  # fmt: skip
        entry = {"file": "/a.py", "line": 1}
        body = {**entry, "breakpoints": [entry]}
        assert told(session.post("/breakpoints", body)).keys() == {"file", "line"}
        body = {"file": "/a.py", "source": {"path": "/b.py"}, "line": 3}
        assert values(told(session.post("/breakpoints", body))) == {"file": "/a.py"}
        same = {"file": "/a.py", "source": {"path": "/a.py"}, "line": 3}
        assert session.post("/breakpoints", same).status == 200
        answer = session.get("/breakpoints", file="a.py")
        assert told(answer, "INVALID_PARAMETER").keys() == {"file"}


def test_input_that_cannot_be_written(relay: Client) -> None:
    with relay.session() as session:
        errors = told(session.post("/input", {"base64": "%%%", "eof": 1}))
        assert errors.keys() == {"base64", "eof"}
        assert told(session.post("/input", {"input": ""})).keys() == {"input"}


def test_what_the_path_says_cannot_be_said_otherwise(relay: Client) -> None:
    with relay.session() as session, relay.session() as other:
        errors = told(session.post("/continue", {"session_id": other.id}))
        assert errors["session_id"]["message"] == f"the path says {session.id!r}"
        errors = told(session.post("/threads/1/continue", {"thread_id": 2, "wait": "x"}))
        assert errors.keys() == {"thread_id", "wait"}
        answer = session.get("/status", session_id=other.id)
        assert told(answer, "INVALID_PARAMETER").keys() == {"session_id"}
        assert told(session.post("/continue?wait=1", {"wait": 2})).keys() == {"wait"}
        # The same again is no contradiction; what follows is about the state.
        body = {"thread_id": 1.0, "session_id": session.id}
        session.post("/threads/1/continue", body).refused("INVALID_SESSION_STATE", 409)


@pytest.mark.parametrize(
    ("body", "places"),
    [
        (b'{"name": "a", "name": "b"}', ["name"]),
        (b'{"labels": {"a": "1", "b": "2", "a": "3"}}', ["labels.a"]),
        (b'{"args": [{"x": 1}, {"x": 1, "x": 1}], "cwd": "", "cwd": 1}', ["args[1].x", "cwd"]),
        (b'{"\\u0061": 1, "a": 1}', ["a"]),
    ],
    ids=ascii,
)
def test_a_name_given_twice(relay: Client, body: bytes, places: list[str]) -> None:
    errors = told(relay.post("/sessions", body))
    assert list(errors) == places
    assert {one["message"] for one in errors.values()} == {"given twice"}


@pytest.mark.parametrize(
    "body",
    [b'{"name": "\\ud800"}', b'{"name": "\\udc00\\ud800", "labels": {}}', b'{"\\ud800x": 1}'],
    ids=ascii,
)
def test_half_a_surrogate_pair_is_named(relay: Client, body: bytes) -> None:
    error = relay.post("/sessions", body).refused("INVALID_REQUEST", 400)
    column = body.index(b"\\u") + 1
    assert (
        f"half of a surrogate pair, which is not a character, at line 1, column {column}"
        in (error["message"])
    )
    assert error["details"]["column"] == column


def test_integers_may_be_written_with_a_point(relay: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    created = relay.post("/sessions", {"timeout_minutes": 60.0}).ok(201)
    assert created["config"]["timeout_minutes"] == 60
    with relay.session() as session:
        line = float(program["here"])
        assert session.break_at(program, line)["line"] == program["here"]
        errors = told(session.post("/breakpoints", {"file": str(program), "line": 9.5}))
        assert values(errors) == {"line": 9.5}
        assert session.get("/output", limit="10.0").ok()["entries"] == []
        errors = told(session.get("/output", limit="9.5"), "INVALID_PARAMETER")
        assert errors["limit"]["message"] == "expected `int`, got `float`"
