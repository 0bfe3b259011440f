"""Export, import and clone: all of a session that is not its state."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from debug_relay.protocol.version import VERSION
from tests.kit.client import Client, Session
from tests.kit.relay import Relay
from tests.kit.source import Source

PROGRAM = """
    import os, sys

    def work(n):
        doubled = n * 2  # @inside
        return doubled  # @next

    print(sys.argv[1:], os.environ.get("PLAIN"), os.environ.get("API_TOKEN"), flush=True)
    for n in range(10):
        work(n)
"""
ENV = {"PLAIN": "ü", "API_TOKEN": "s3cr3t", "DB": "postgres://me:pw123@db/x", "GONE": None}


def rich(client: Client, program: Source, root: Path) -> Session:
    """A session with something of everything, at a stop."""
    session = client.session(
        name="rich", project_root=str(root), timeout_minutes=7, max_lifetime=900.5,
        pause_budget=12, labels={"team": "search", "ü": ""}, just_my_code=True,
    )  # fmt: skip
    session.break_at(program, program["next"])
    session.delete("/breakpoints").ok()
    session.break_at(program, program["inside"], condition="n > 2", hit_condition=">=2")
    session.break_at(program, program["next"], log_message="{n!r:>4} {{}}", enabled=False)
    session.break_at(root / "later.py", 7)
    session.post("/watch", {"expression": "n + 1"}).ok()
    fields = {"cwd": str(root), "env": ENV, "stop_on_exception": "raised"}
    session.launch(program, args=["--x", "a b"], python_args=["-X", "dev"], **fields)
    assert session.status()["status"] == "paused"
    return session


def exported(session: Session) -> Any:
    return session.get("/export").ok()


def test_an_export_holds_all_but_state_and_secrets(
    relay: Client, source: Callable[..., Source], tmp_path: Path
) -> None:
    program = source(PROGRAM)
    with rich(relay, program, tmp_path) as session:
        told = exported(session)
        text = json.dumps(told)
        assert "s3cr3t" not in text
        assert "pw123" not in text
        assert told["missing_env"] == ["API_TOKEN", "DB"]
        assert told["program"]["env"] == {"PLAIN": "ü", "GONE": None}
        assert told["program"]["script"] == str(program)
        assert told["program"]["args"] == ["--x", "a b"]
        assert "wait" not in told["program"]
        assert told["version"] == VERSION
        assert told["config"]["timeout_minutes"] == 7
        assert [one["line"] for one in told["breakpoints"]] == [4, 5, 7]
        assert all("id" not in one for one in told["breakpoints"])
        assert told["watches"] == [{"expression": "n + 1"}]
        assert not {"status", "session_id", "stop_id"} & told.keys()


def test_there_and_back_is_exact(
    relay: Client, source: Callable[..., Source], tmp_path: Path
) -> None:
    program = source(PROGRAM)
    with rich(relay, program, tmp_path) as session:
        told = exported(session)
        listed = session.get("/breakpoints").ok()["breakpoints"]
    again = relay.post("/sessions/import", told).ok(201)
    assert (again["status"], again["name"], again["restored"]) == ("created", "rich", False)
    assert again["missing_env"] == ["API_TOKEN", "DB"]
    assert again["breakpoint_count"] == 3
    assert again["session_id"] != session.id
    with Session(relay, again["session_id"]) as other:
        assert exported(other) == told
        there = other.get("/breakpoints").ok()["breakpoints"]
        assert [one["id"] for one in there] == ["bp_1", "bp_2", "bp_3"]
        for name in ("source", "line", "condition", "hit_condition", "log_message", "enabled"):
            assert [one[name] for one in there] == [one[name] for one in listed]
        assert [one["verified"] for one in there] == [True, True, False]
        stopped = other.launch(program, args=["y"], env={**ENV, "API_TOKEN": "new"})
        assert stopped["current_location"]["line"] == program["inside"]
        assert other.printed("stdout") == "['y'] ü new\n"
        assert other.get().ok()["missing_env"] == []


def test_an_empty_session_is_exported_and_nothing_is_not_imported(relay: Client) -> None:
    with relay.session() as session:
        told = exported(session)
        assert (told["program"], told["breakpoints"], told["missing_env"]) == (None, [], [])
        other = Session(relay, relay.post("/sessions/import", told).ok(201)["session_id"])
        assert exported(other) == told
    for nothing in (None, {}, {"name": "mine", "version": VERSION}, {"config": {}, "watches": []}):
        answer = relay.post("/sessions/import", nothing)
        assert "nothing to import" in answer.refused("INVALID_REQUEST", 400)["message"]
    with relay.session(idle_timeout=0, max_lifetime=0) as session:
        told = exported(session)
        other = Session(relay, relay.post("/sessions/import", told).ok(201)["session_id"])
        assert exported(other) == told
        assert other.status()["expires_at"] is None


def test_a_clone_has_the_secrets_too(
    relay: Client, shared_relay: Relay, source: Callable[..., Source], tmp_path: Path
) -> None:
    program = source(PROGRAM)
    with rich(relay, program, tmp_path) as session:
        made = session.post("/clone").ok(201)
        told = exported(session)
        assert (made["status"], made["name"]) == ("created", "rich-clone")
        assert made["config"] == session.get().ok()["config"]
        assert made["missing_env"] == []
        clone = Session(relay, made["session_id"])
        assert {**exported(clone), "name": "rich"} == told
        named = session.post("/clone", {"name": "other", "labels": {"a": "b"}}).ok(201)
        assert (named["name"], named["config"]["labels"]) == ("other", {"a": "b"})
        # The one at its stop has noticed nothing.
        assert session.value("n") == "4"
    # No file has them.
    for folder in (shared_relay.data_dir, shared_relay.run_dir):
        for path in folder.rglob("session.json"):
            assert "s3cr3t" not in path.read_text()
            assert "pw123" not in path.read_text()


def test_of_a_session_whose_worker_is_gone(
    own_relay: Callable[..., Relay], source: Callable[..., Source], tmp_path: Path
) -> None:
    relay = own_relay()
    session = rich(relay.client, source(PROGRAM), tmp_path)
    told = exported(session)
    relay.worker(session.id).kill()
    session.get(
        "/events", timeout=20, types="stopped", cursor=session.get("/events").ok()["next_cursor"]
    )
    assert session.status()["status"] == "failed"
    assert exported(session) == told
    made = session.post("/clone").ok(201)
    assert made["missing_env"] == ["API_TOKEN", "DB"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"missing_env": ["A"], "version": "99.0.0"}, "version"),
        ({"missing_env": ["A"], "version": "banana"}, "version"),
        ({"nam": "x"}, "nam"),
        ({"config": {"project_rot": "/x"}}, "config.project_rot"),
        ({"config": []}, "config"),
        ({"config": {"project_root": "here"}}, "config.project_root"),
        ({"program": {"scrip": "/a.py"}}, "program.scrip"),
        ({"program": {"script": 7}}, "program.script"),
        ({"program": {"session_id": "x"}}, "program.session_id"),
        ({"program": "x"}, "program"),
        ({"breakpoints": [{"file": "/a.py"}]}, "breakpoints[0].line"),
        ({"breakpoints": [{"file": "/a.py", "line": 0}]}, "breakpoints[0].line"),
        ({"watches": [{}]}, "watches[0].expression"),
        ({"exception_breakpoints": {"filters": ["x"]}}, "exception_breakpoints.filters[0]"),
    ],
)
def test_what_is_no_export_is_refused(relay: Client, body: Any, field: str) -> None:
    before = relay.get("/sessions").ok()["total"]
    error = relay.post("/sessions/import", body).refused("INVALID_REQUEST", 400)
    assert field in [one["field"] for one in error["details"]["errors"]]
    assert relay.get("/sessions").ok()["total"] == before


def test_they_count(own_relay: Callable[..., Relay]) -> None:
    client = own_relay(env={"OPENCODE_DEBUG_MAX_SESSIONS": "1"}).client
    session = client.session()
    told = exported(session)
    client.post("/sessions/import", told).refused("SESSION_LIMIT_REACHED", 429)
    session.post("/clone").refused("SESSION_LIMIT_REACHED", 429)
