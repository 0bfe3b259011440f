"""Sessions as such, and the relay's own settings: created, listed, changed, kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.version import API_PREFIX, VERSION
from tests.kit.client import Client, Session
from tests.kit.relay import Relay, eventually
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

PROGRAM = "x = 1\ny = x + 1  # @here\nprint(y)\n"


def seconds_left(shown: Any) -> float:
    expires = datetime.fromisoformat(shown["expires_at"])
    return (expires - datetime.now(UTC)).total_seconds()


def ids(relay: Client, **query: Any) -> list[str]:
    return [item["session_id"] for item in relay.get("/sessions", **query).ok()["items"]]


# -- creating


def test_what_was_said_is_what_is_shown(relay: Client, tmp_path: Path) -> None:
    created = relay.post(
        "/sessions",
        {
            "name": "mine",
            "project_root": str(tmp_path),
            "timeout_minutes": 7,
            "max_lifetime": 100,
            "pause_budget": 9,
            "labels": {"team": "search"},
            "stop_on_entry": True,
            "just_my_code": True,
        },
        headers={"X-Agent": "tester"},
    ).ok(201)
    assert (created["name"], created["status"], created["created_by"]) == (
        "mine",
        "created",
        "tester",
    )
    config = created["config"]
    assert config["project_root"] == str(tmp_path)
    assert (config["timeout_minutes"], config["max_lifetime"], config["pause_budget"]) == (
        7,
        100,
        9,
    )
    assert config["labels"] == {"team": "search"}
    assert (config["stop_on_entry"], config["just_my_code"], config["stop_all"]) == (
        True,
        True,
        True,
    )
    assert 400 < seconds_left(created) <= 420
    shown = relay.get(f"/sessions/{created['session_id']}")
    assert shown.ok()["config"] == config
    assert b'"limits"' not in shown.raw  # it has none


def test_a_session_without_a_name_gets_one(relay: Client) -> None:
    answer = relay.post("/sessions")
    created = answer.ok(201)
    # The reply leaves out fields that nobody has set.
    unset = (b"_seconds", b"breakpoints", b"max_lifetime", b"pause_budget")
    assert not any(name in answer.raw for name in unset)
    assert created["session_id"].removeprefix("sess_") in created["name"]
    assert created["config"]["timeout_minutes"] == 60


def test_create_and_launch_in_one_call(relay: Client, source: Callable[..., Source]) -> None:
    program = source("import sys\nprint(sys.argv[1:])  # @here\n")
    created = relay.post(
        "/sessions",
        {
            "mode": "launch",
            "script": str(program),
            "args": ["a", "b"],
            "stop_on_entry": True,
            "wait": 20,
        },
    ).ok(201)
    assert (created["status"], created["stop_reason"]) == ("paused", "entry")
    assert created["program"]["script"] == str(program)
    session = Session(relay, created["session_id"])
    assert session.resume()["exit_code"] == 0
    assert session.printed("stdout") == "['a', 'b']\n"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"script": "/nowhere/at/all.py"}, "LAUNCH_SCRIPT_NOT_FOUND"),
        ({"script": "broken.py"}, "LAUNCH_SYNTAX_ERROR"),
        ({"code": "pass", "cwd": "/nowhere/at/all"}, "LAUNCH_CWD_NOT_FOUND"),
        ({"code": "pass", "python_path": "/nowhere/python"}, "LAUNCH_INTERPRETER_NOT_FOUND"),
        ({"module": "no_such_module_at_all"}, "LAUNCH_MODULE_NOT_FOUND"),
        ({}, "INVALID_REQUEST"),
        ({"script": "/a.py", "port": 1}, "INVALID_REQUEST"),
    ],
)
def test_a_launch_that_fails_leaves_no_session(
    relay: Client, shared_relay: Relay, tmp_path: Path, fields: dict[str, Any], code: str
) -> None:
    (tmp_path / "broken.py").write_text("if True\n    pass\n")
    body = {"mode": "launch", "project_root": str(tmp_path), **fields}
    relay.post("/sessions", body).refused(code, 400)
    assert ids(relay) == []
    assert list(shared_relay.run_dir.iterdir()) == []
    eventually(lambda: shared_relay.workers() == [])


def test_a_program_without_a_mode_is_refused(relay: Client) -> None:
    error = relay.post("/sessions", {"script": "/a.py", "name": "x"}).refused(
        "INVALID_REQUEST", 400
    )
    assert [one["field"] for one in error["details"]["errors"]] == ["script"]
    assert '"mode": "launch"' in error["details"]["suggestion"]
    assert ids(relay) == []


# -- listing


def test_lists_page_and_filter(relay: Client, source: Callable[..., Source]) -> None:
    made = [
        relay.session(name=f"s{n}", labels={"team": "a" if n < 2 else "b", "n": str(n)})
        for n in range(3)
    ]
    newest_first = [one.id for one in reversed(made)]
    assert ids(relay) == newest_first
    page = relay.get("/sessions", limit=2).ok()
    assert (page["total"], page["offset"], page["limit"], page["has_more"]) == (3, 0, 2, True)
    rest = relay.get("/sessions", limit=2, offset=2).ok()
    assert (len(rest["items"]), rest["has_more"]) == (1, False)
    assert ids(relay, label="team=a") == [made[1].id, made[0].id]
    assert ids(relay, label="n=2") == [made[2].id]
    assert ids(relay, label="team=") == []
    assert ids(relay, label="other=a") == []
    assert made[0].launch(source("print()\n"))["status"] == "terminated"
    assert ids(relay, status="terminated") == [made[0].id]
    assert ids(relay, status="created", label="team=a") == [made[1].id]
    item = relay.get("/sessions", status="terminated").ok()["items"][0]
    assert item["program"].endswith("program.py")
    assert (item["name"], item["labels"]) == ("s0", {"team": "a", "n": "0"})


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"label": "team"}, "label"),
        ({"status": "asleep"}, "status"),
        ({"limit": 1001}, "limit"),
        ({"limit": 0}, "limit"),
        ({"offset": -1}, "offset"),
    ],
)
def test_a_list_is_asked_for_wrongly(relay: Client, query: dict[str, Any], field: str) -> None:
    error = relay.get("/sessions", **query).refused("INVALID_PARAMETER", 400)
    assert [one["field"] for one in error["details"]["errors"]] == [field]


def test_a_label_may_contain_an_equals_sign(relay: Client) -> None:
    session = relay.session(labels={"filter": "a=b"})
    assert ids(relay, label="filter=a=b") == [session.id]


# -- changing


def test_patch_changes_what_it_names(relay: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    session = relay.session(name="before", labels={"a": "1"}, max_lifetime=50)
    session.break_at(program, program["here"])
    session.launch(program)
    shown = session.patch("", {"name": "after", "timeout_minutes": 2}).ok()
    assert (shown["name"], shown["status"]) == ("after", "paused")
    assert (shown["config"]["timeout_minutes"], shown["config"]["max_lifetime"]) == (2, 50)
    assert shown["config"]["labels"] == {"a": "1"}
    assert 100 < seconds_left(shown) <= 120
    shown = session.patch("", {"labels": {"b": "2"}, "idle_timeout": 90, "pause_budget": 1}).ok()
    assert shown["config"]["labels"] == {"b": "2"}
    assert (shown["config"]["timeout_minutes"], shown["config"]["pause_budget"]) == (1.5, 1)
    assert session.get().ok()["config"] == shown["config"]
    assert ids(relay, label="a=1") == []
    assert ids(relay, label="b=2") == [session.id]
    assert session.line() == program["here"]


def test_patch_with_nothing_changes_nothing(relay: Client) -> None:
    session = relay.session(name="as it was")
    before = session.get().ok()
    after = session.patch("", {}).ok()
    assert (after["name"], after["config"]) == (before["name"], before["config"])


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({"name": "x", "timeout_minutes": 0}, ["timeout_minutes"]),
        ({"timeout_minutes": 1441, "labels": {"a": 1}}, ["timeout_minutes", "labels.a"]),
        ({"nam": "x"}, ["nam"]),
        ({"status": "paused"}, ["status"]),
        ({"timeout_minutes": 1, "idle_timeout": 60}, ["timeout_minutes", "idle_timeout"]),
    ],
)
def test_a_patch_that_does_not_fit_changes_nothing(
    relay: Client, body: dict[str, Any], fields: list[str]
) -> None:
    session = relay.session(name="as it was")
    error = session.patch("", body).refused("INVALID_REQUEST", 400)
    assert sorted(one["field"] for one in error["details"]["errors"]) == sorted(fields)
    shown = session.get().ok()
    assert (shown["name"], shown["config"]["timeout_minutes"]) == ("as it was", 60)


def test_a_patch_holds_for_the_next_relay(own_relay: Callable[..., Relay]) -> None:
    relay = own_relay()
    session = relay.client.session(name="before")
    session.patch("", {"name": "after", "labels": {"a": "1"}}).ok()
    relay.kill()
    relay.start()
    shown = relay.client.get(f"/sessions/{session.id}").ok()
    assert (shown["name"], shown["config"]["labels"]) == ("after", {"a": "1"})


def test_a_program_that_runs_puts_expiry_off(relay: Client) -> None:
    with relay.session(idle_timeout=2, max_lifetime=600) as session:
        assert seconds_left(session.get().ok()) < 3
        session.launch(code="import time\ntime.sleep(60)", wait=0.1)
        (shown,) = relay.get("/sessions").ok()["items"]
        assert (shown["status"], shown["warning"]) == ("running", None)
        assert 500 < seconds_left(shown) < 601
        session.patch("", {"max_lifetime": 0}).ok()
        assert session.status()["expires_at"] is None


def test_a_ping_puts_expiry_off(relay: Client) -> None:
    session = relay.session(idle_timeout=90)
    for how in ("GET", "POST"):
        before = relay.get("/sessions").ok()["items"][0]["expires_at"]

        def pinged(how: str = how, before: str = before) -> Any:
            shown = relay.call(how, f"/sessions/{session.id}/ping").ok()
            return shown if shown["expires_at"] > before else None

        shown = eventually(pinged)
        assert isinstance(shown, dict)
        assert (shown["session_id"], shown["status"]) == (session.id, "created")
        assert 80 < seconds_left(shown) <= 90
        assert shown["warning"] is None
    relay.post("/sessions/sess_00000000/ping").refused("SESSION_NOT_FOUND", 404)


# -- the relay's settings


def test_config_shows_every_value_and_where_it_is_from(own_relay: Callable[..., Relay]) -> None:
    relay = own_relay(env={"OPENCODE_DEBUG_SESSIONS__TOMBSTONE": "12"})
    shown = relay.client.get("/config").ok()
    names = {f"{section}.{key}" for section, keys in shown["config"].items() for key in keys}
    assert names == shown["origins"].keys()
    assert set(shown["changeable"]) < names
    assert shown["config"]["sessions"]["tombstone"] == 12
    assert shown["origins"]["sessions.tombstone"] == (
        "environment OPENCODE_DEBUG_SESSIONS__TOMBSTONE"
    )
    assert shown["origins"]["server.port"] == "flag --port"
    assert shown["origins"]["sessions.idle_timeout"] == "built-in default"


def test_what_is_changed_holds_at_once_and_after_a_restart(own_relay: Callable[..., Relay]) -> None:
    relay = own_relay()
    body = {"sessions": {"max_sessions": 1, "idle_timeout": 120}, "log": {"level": "warning"}}
    shown = relay.client.patch("/config", body).ok()
    assert shown["config"]["sessions"]["max_sessions"] == 1
    assert "PATCH /config" in shown["origins"]["sessions.max_sessions"]
    created = relay.client.post("/sessions").ok(201)
    assert created["config"]["timeout_minutes"] == 2
    relay.client.post("/sessions").refused("SESSION_LIMIT_REACHED", 429)
    assert relay.client.get("/info").ok()["capabilities"]["max_sessions"] == 1
    assert json.loads((relay.data_dir / "config.json").read_text()) == body
    assert relay.stop() == 0
    relay.start()
    again = relay.client.get("/config").ok()
    assert again["config"]["sessions"]["max_sessions"] == 1
    assert again["config"]["log"]["level"] == "warning"
    assert "PATCH /config" in again["origins"]["sessions.max_sessions"]
    # A second change adds to the first.
    relay.client.patch("/config", {"sessions": {"max_sessions": 2}}).ok()
    kept = json.loads((relay.data_dir / "config.json").read_text())
    assert kept["sessions"] == {"max_sessions": 2, "idle_timeout": 120}


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"sessions": {"max_session": 3}}, "sessions.max_session", "sessions.max_sessions"),
        ({"dap": {"request_timeout": 0}}, "dap.request_timeout", "3600"),
        ({"limits": {"processes": "3"}}, "limits.processes", "integer"),
        ({"log": {"level": "loud"}}, "log.level", "debug, error, info, warning"),
        ({"log": {"format": "text"}}, "log.format", "at its start"),
        ({"server": {"port": 1}}, "server.port", "at its start"),
        ({"python": {"default_path": "x"}}, "python.default_path", "at its start"),
        ({"auth": {"tokens_file": "x"}}, "auth.tokens_file", "at its start"),
        ({"session": {"max_sessions": 3}}, "session", "sessions"),
    ],
)
def test_what_cannot_be_changed_is_refused_by_name(
    relay: Client, body: dict[str, Any], field: str, words: str
) -> None:
    before = relay.get("/config").ok()
    # Beside one that could be changed: all of it or nothing.
    sent = {**body, "output": {"max_events": 5000}}
    error = relay.patch("/config", sent).refused("INVALID_REQUEST", 400)
    [problem] = error["details"]["errors"]
    assert problem["field"] == field
    assert words in problem["message"]
    assert relay.get("/config").ok() == before


def test_what_the_environment_sets_is_changed_there(own_relay: Callable[..., Relay]) -> None:
    relay = own_relay("--max-body-bytes", "2048", env={"OPENCODE_DEBUG_MAX_SESSIONS": "3"})
    error = relay.client.patch("/config", {"sessions": {"max_sessions": 5}}).refused(
        "INVALID_REQUEST", 400
    )
    assert "environment OPENCODE_DEBUG_MAX_SESSIONS" in error["message"]
    assert relay.client.get("/config").ok()["config"]["sessions"]["max_sessions"] == 3
    assert not (relay.data_dir / "config.json").exists()


# -- what it says of itself


def test_info_tells_what_there_is(relay: Client) -> None:
    info = relay.get("/info").ok()
    assert (info["version"], info["api_version"]) == (VERSION, "v1")
    assert info["debugpy_version"].startswith("1.8.")
    able = info["capabilities"]
    assert able.pop("max_sessions") == 40
    assert len(able) == 9
    assert set(able.values()) == {True}
    there = {API_PREFIX + row.path for row in OPERATIONS.values()}
    assert sorted(info["endpoints"]) == sorted({path.rstrip("/") for path in there})


def test_patch_changes_what_the_next_launch_does(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source("x = 1\nprint(x)\n")
    with relay.session() as session:
        changed = session.patch("", {"python_path": python, "stop_on_entry": True}).ok()
        assert changed["config"]["python_path"] == python
        launched = session.launch(program)
        assert (launched["stop_reason"], launched["current_location"]["line"]) == ("entry", 1)
        assert launched["program"]["python_path"] == python


def test_both_timeouts_are_refused_alike(relay: Client) -> None:
    both = {"timeout_minutes": 5, "idle_timeout": 60}
    relay.post("/sessions", both).refused("INVALID_REQUEST", 400)
    with relay.session() as session:
        session.patch("", both).refused("INVALID_REQUEST", 400)


def test_half_way_to_expiry_there_is_a_warning(relay: Client) -> None:
    with relay.session(idle_timeout=8) as session:
        cursor = session.get("/events").ok()["next_cursor"]

        def warned() -> str | None:
            # Lists do not touch; anything else would put the expiry off.
            (item,) = relay.get("/sessions").ok()["items"]
            # The worker looks once a second: well past half-way it has told.
            return item["warning"] if (item["warning"] or "").endswith(" 2 seconds") else None

        assert "will expire in" in str(eventually(warned, 8))
        told = session.get("/events", cursor=cursor, types="session").ok()["events"]
        assert any("will expire in" in (event["body"].get("warning") or "") for event in told)


def test_code_that_does_not_compile(relay: Client) -> None:
    with relay.session() as session:
        error = session.post("/launch", {"code": "x = 1\ny = = 2\n"}).refused(
            "LAUNCH_SYNTAX_ERROR", 400
        )
        assert error["details"]["line"] == 2
        assert session.status()["status"] == "created"
