"""The audit log: who did what to which session, and what of it nobody is to read."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.relay import Relay, eventually
from tests.kit.source import Source


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_who_did_what_to_which_session(
    own_relay: Callable[..., Relay], source: Callable[..., Source], tmp_path: Path
) -> None:
    file = tmp_path / "who" / "did.jsonl"
    file.parent.mkdir()
    relay = own_relay(env={"OPENCODE_DEBUG_LOG__AUDIT_FILE": str(file)})
    ann = relay.client.called(X_Agent="ann")
    program = source("word = input()\nprint(len(word))  # @here\n")
    session = ann.session(name="mine")
    session.break_at(program, program["here"])
    session.launch(
        program,
        wait=0,
        env={"API_TOKEN": "hunter2", "COLOUR": "red", "DB": "postgres://me:hunter2@db/x"},
        args=["--password", "hunter2", "--token=hunter2", "plain"],
    )
    session.post("/input", {"input": "hunter2\n"}).ok()
    assert session.events("stopped", timeout=10)
    bob = session.called(X_Agent="bob")
    bob.get("/stacktrace").ok()  # who only looks does nothing
    bob.value("1 + 1")
    bob.post("/evaluate", {"expresion": "1"}).refused("INVALID_REQUEST")
    bob.post("/attach", {"pid": os.getpid()}).refused("INVALID_SESSION_STATE")
    session.delete().ok()
    bob.post("/continue").refused("SESSION_NOT_FOUND")
    eventually(lambda: len(lines(file)) == 9)
    told = lines(file)
    assert [(line["operation"], line["caller"], line["status"]) for line in told] == [
        ("create-session", "ann", 201),
        ("set-breakpoints", "ann", 200),
        ("launch", "ann", 200),
        ("input", "ann", 200),
        ("evaluate", "bob", 200),
        ("evaluate", "bob", 400),
        ("attach", "bob", 409),
        ("delete-session", "ann", 200),
        ("continue", "bob", 404),
    ]
    assert {line["session_id"] for line in told} == {session.id}
    assert {line["uid"] for line in told} == {os.getuid()}
    assert [line.get("code") for line in told[5:]] == [
        "INVALID_REQUEST", "INVALID_SESSION_STATE", None, "SESSION_NOT_FOUND",
    ]  # fmt: skip
    assert told[4]["parameters"]["expression"] == "1 + 1"
    launched = told[2]["parameters"]
    assert launched["script"] == str(program)
    assert launched["args"] == ["--password", "***", "--token=***", "plain"]
    assert launched["env"] == {"API_TOKEN": "***", "COLOUR": "red", "DB": "postgres://me:***@db/x"}
    assert told[3]["parameters"] == {"input": "<8 characters>"}
    assert "hunter2" not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len({line["request_id"] for line in told}) == 9


def test_without_a_place_it_is_in_the_data_directory(own_relay: Callable[..., Relay]) -> None:
    relay = own_relay()
    relay.client.post("/sessions", {}).ok(201)
    # No number in a call can keep it out of the log.
    relay.client.patch("/config", {"sessions": {"max_sessions": 10**30}}).refused("INVALID_REQUEST")
    assert relay.stop() == 0
    created, refused = lines(relay.data_dir / "logs" / "audit.log")
    assert created["operation"] == "create-session"
    assert refused["parameters"] == {"sessions": {"max_sessions": 10**30}}


def test_one_that_was_asked_for_must_be_there(tmp_path: Path) -> None:
    relay = Relay(tmp_path / "data", env={"OPENCODE_DEBUG_LOG__AUDIT_FILE": "/proc/no/audit"})
    with pytest.raises(AssertionError, match="audit"):
        relay.start()
    assert relay.wait() == 1
    said = relay.stderr()
    assert "The audit log /proc/no/audit cannot be written: No such file or directory." in said
    assert "audit_file below [log]" in said
