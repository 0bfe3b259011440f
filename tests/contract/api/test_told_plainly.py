"""What refusals and entrances say: accepted values by name, and the call that leads on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.source import Source

pytestmark = pytest.mark.one_python


@pytest.mark.parametrize(
    ("verb", "path", "sent", "field", "accepted"),
    [
        ("GET", "/sessions", {"status": "resting"}, "status", "created, launching, running"),
        ("POST", "{id}/launch", {"script": "/a.py", "console": "x"}, "console", "internalConsole"),
        (
            *("POST", "{id}/launch", {"script": "/a.py", "stop_on_exception": "x"}),
            *("stop_on_exception", "uncaught, raised"),
        ),
        ("POST", "{id}/evaluate", {"expression": "1", "context": "x"}, "context", "repl"),
        (
            *("POST", "{id}/exception-breakpoints", {"filters": ["raised", "x"]}),
            *("filters[1]", "raised, uncaught, user_unhandled"),
        ),
        ("GET", "{id}/output", {"category": "x"}, "category", "stdout"),
        ("GET", "{id}/events", {"types": "x"}, "types", "stopped"),
        ("GET", "/sessions", {"label": "team"}, "label", "key=value"),
        ("DELETE", "{id}/watch", {"watch_id": "one"}, "watch_id", "watch_1"),
        ("GET", "/breakpoint-profiles/a b", {}, "name", "letters"),
    ],
)
def test_what_is_accepted_is_named(
    relay: Client, verb: str, path: str, sent: dict[str, Any], field: str, accepted: str
) -> None:
    with relay.session() as session:
        path = path.replace("{id}", f"/sessions/{session.id}").replace(" ", "%20")
        if verb == "POST":
            error = relay.post(path, sent).refused("INVALID_REQUEST", 400)
        else:
            error = relay.call(verb, path, **sent).refused("INVALID_PARAMETER", 400)
        (told,) = error["details"]["errors"]
        assert told["field"] == field
        assert accepted in f"{told['message']} {error['details']['suggestion']}"
        assert "regex" not in str(error)


def test_what_has_ended_can_be_run_again(relay: Client, source: Callable[..., Source]) -> None:
    with relay.session() as session:
        program = source("x = 1\n")
        assert session.launch(program)["status"] == "terminated"
        error = session.post("/continue").refused("INVALID_SESSION_STATE", 409)
        assert f"POST /api/v1/sessions/{session.id}/restart" in error["details"]["suggestion"]
        error = session.try_launch(program).refused("INVALID_SESSION_STATE", 409)
        assert f"POST /api/v1/sessions/{session.id}/restart" in error["details"]["suggestion"]
        assert session.post("/restart", {"wait": 20}).ok()["status"] == "terminated"


def test_what_cannot_be_done_now_is_a_sentence(relay: Client) -> None:
    with relay.session() as session:
        for verb, path, words in (
            ("GET", "/threads", "Cannot show threads: the session is created"),
            ("POST", "/step-over", "Cannot step-over: the session is created"),
        ):
            answer = relay.call(verb, f"/sessions/{session.id}{path}")
            assert answer.refused("INVALID_SESSION_STATE", 409)["message"].startswith(words)


def test_a_restart_without_a_launch_says_when_it_can_be(relay: Client) -> None:
    with relay.session() as session:
        error = session.post("/restart").refused("INVALID_SESSION_STATE", 409)
        needed = error["details"]["required_state"]
        assert needed == "launching or paused or running or terminated"


def test_lines_that_a_file_does_not_have(relay: Client, source: Callable[..., Source]) -> None:
    program = source("x = 1\ny = 2\n")
    with relay.session(project_root=str(program.path.parent)) as session:
        asked = f"/source?path={program}&start="
        for start, query in (("3", "3"), ("2", "2&end=1")):
            error = session.get(asked + query).refused("INVALID_PARAMETER", 400)
            (told,) = error["details"]["errors"]
            assert (told["field"], str(told["value"])) == ("start", start)
            assert "from 1 to" in error["details"]["suggestion"]
        assert session.get(asked + "2").ok()["lines"] == ["y = 2"]


def test_a_watch_goes_by_its_own_address(relay: Client) -> None:
    with relay.session() as session:
        for expression in ("a", "b"):
            session.post("/watch", {"expression": expression}).ok()
        assert session.delete("/watch/watch_1").ok() == {"deleted": 1}
        (left,) = session.get("/watch").ok()["watches"]
        assert left["id"] == "watch_2"
        session.delete("/watch/watch_1").refused("WATCH_NOT_FOUND", 404)


def test_info_names_every_endpoint_once(relay: Client) -> None:
    endpoints = relay.get("/info").ok()["endpoints"]
    assert len(endpoints) == len(set(endpoints))
    assert {"/api/v1", "/api/v1/health", "/api/v1/sessions"} <= set(endpoints)


def test_children_page_by_either_name(relay: Client, source: Callable[..., Source]) -> None:
    program = source("rows = list(range(50))\nprint()  # @here\n")
    with relay.session() as session:
        session.break_at(program, program["here"])
        session.launch(program)
        listed = session.get("/frames/0/variables").ok()["variables"]
        rows = next(one for one in listed if one["name"] == "rows")
        children = f"/frames/0/variables/{rows['variables_reference']}/children"
        by_offset = session.get(children, offset=10, limit=2).ok()
        assert [one["value"] for one in by_offset["variables"]] == ["10", "11"]
        assert by_offset == session.get(children, start=10, count=2).ok()
        error = session.get(children, start=1, offset=2).refused("INVALID_PARAMETER", 400)
        assert [one["field"] for one in error["details"]["errors"]] == ["start", "offset"]
        session.get(children, limit=1001).refused("INVALID_PARAMETER", 400)


def test_the_source_of_a_launched_text(relay: Client, python: str) -> None:
    """And of no other text that the program compiles, although that has the same file name."""
    text = (
        "import functools\n"
        "@functools.lru_cache(None)\n"
        "def inner(n):\n"
        "    return [1 / n for n in (0,)]\n"
        "\n"
        "exec('def other():\\n    inner(0)\\n\\nother()\\n')\n"
    )
    with relay.session(python_path=python) as session:
        reply = session.launch(code=text)
        assert (reply["status"], reply["stop_reason"]) == ("paused", "exception")
        frames = session.get("/stacktrace").ok()["frames"]
        names = [frame["name"] for frame in frames]
        for frame in frames:
            read = session.get("/source", frame_id=frame["id"]).ok()
            is_ours = frame["name"] in ("inner", "<listcomp>") or frame is frames[-1]
            assert (read["lines"] == text.splitlines()) is is_ours, (names, frame)
