"""The audit log: who did what to which session, and what of it nobody is to read."""

from __future__ import annotations

import base64
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.relay import Relay, eventually
from tests.kit.source import Source
from tests.kit.tokens import new_token


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


def test_who_is_not_let_in_is_counted(own_relay: Callable[..., Relay]) -> None:
    """Not one line for each: who is refused could otherwise fill the logs."""
    relay = own_relay()
    token = new_token(relay, "--scope", "sessions:read", "--name", "reader")
    right, wrong = f"Bearer {token}", f"Bearer {token}x"
    ways: dict[str, dict[str, str]] = {
        "FORBIDDEN_HOST": {"Host": "rebound.example"},
        "FORBIDDEN_ORIGIN": {"Origin": "http://evil.example"},
        "FORBIDDEN_ORIGIN: Sec-Fetch-Site": {"Sec-Fetch-Site": "cross-site"},
        "UNAUTHENTICATED: No token": {},
        "UNAUTHENTICATED: The token is unknown": {"Authorization": wrong},
        "INSUFFICIENT_SCOPE: list-processes": {"Authorization": right},
    }
    for headers in ways.values():
        for verb in (
            ("GET", "POST", "DELETE") if headers.get("Authorization") != right else ("GET",)
        ):
            for _ in range(5):
                path = "/processes" if verb == "GET" else "/sessions/x/launch"
                assert relay.client.call(verb, path, headers=headers).status in (401, 403)
    eventually(lambda: len(lines(relay.data_dir / "logs" / "audit.log")) == len(ways))
    assert relay.stop() == 0
    for name in ("relay.log", "audit.log"):
        file = relay.data_dir / "logs" / name
        told = [one for one in lines(file) if "request.refused" in one.values()]
        assert len(told) == 2 * len(ways)
        assert {one["uid"] for one in told} == {os.getuid()}
        for reason, headers in ways.items():
            first, last = (one for one in told if _is_for(one["reason"], reason))
            asked = 5 if headers.get("Authorization") == right else 15
            assert (first["count"], last["count"]) == (1, asked - 1)
            assert (first["method"], first["path"]) == ("GET", "/api/v1/processes")
        assert token not in file.read_text()
    assert "rebound.example" in relay.stderr()
    assert len(lines(relay.data_dir / "logs" / "audit.log")) == 2 * len(ways)


def _is_for(told: str, reason: str) -> bool:
    return told == reason if reason == "FORBIDDEN_ORIGIN" else told.startswith(reason)


CANARY = "c4nary"
ENV = {
    "GITHUB_PAT": CANARY, "SSHPASS": CANARY, "STRIPE_SK": CANARY, "SLACK_WEBHOOK": CANARY,
    "X_SIGNATURE": CANARY, "SESSIONID": CANARY, "NETRC": CANARY, "PIN": CANARY, "AUTH": CANARY,
    "CONN": f"Server=db;Password={CANARY}", "DB": f"postgres://me:{CANARY}@db/x", "COLOUR": "red",
}  # fmt: skip
ARGS = [
    "--api-key", CANARY, f"--token={CANARY}", f"--password={CANARY}", f"-p{CANARY}", "plain",
    f"https://me:{CANARY}@h/", "-H", f"Authorization: Bearer {CANARY}",
]  # fmt: skip
LEAKY = """
    import os, subprocess, sys

    def here():
        print("started")  # @here

    assert sys.argv[2] == os.environ["PIN"]
    child = [sys.executable, "-c", "input()", "--password", sys.argv[2]]
    child = subprocess.Popen(child, stdin=subprocess.PIPE)
    here()
    child.communicate(b"on\\n")
"""


def test_a_planted_secret_is_in_no_reply_and_no_file(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    relay, program = own_relay(env={"OPENCODE_DEBUG_LOG__LEVEL": "debug"}), source(LEAKY)
    told: list[bytes] = []

    def ask(verb: str, path: str, body: Any = None, key: str = "", **query: Any) -> Any:
        headers = {"Idempotency-Key": key} if key else {}
        answer = relay.client.call(verb, path, body, headers, **query)
        told.append(answer.raw)
        return None if "format" in query else answer.body["data"]

    labels = {"api_token": CANARY, "team": "blue"}
    made = ask("POST", "/sessions", {"labels": labels, "name": "leaky"}, key="one")
    here = f"/sessions/{made['session_id']}"
    assert made["config"]["labels"] == {"api_token": "***", "team": "blue"}
    ask("POST", f"{here}/breakpoints", {"file": str(program), "line": program["here"]})
    body = {
        "script": str(program),
        "args": ARGS,
        "env": ENV,
        "wait": 20,
        "snapshot": True,
        "stdin_inputs": [f"password={CANARY}"],
        "python_args": ["-X", f"token={CANARY}"],
    }
    launched = ask("POST", f"{here}/launch", body, key="two")
    assert launched["status"] == "paused"
    assert launched["program"]["args"] == [
        "--api-key", "***", "--token=***", "--password=***", "-p***", "plain",
        "https://me:***@h/", "-H", "Authorization: ***",
    ]  # fmt: skip
    assert launched["program"]["env"]["COLOUR"] == "red"
    exported = ask("GET", f"{here}/export")
    assert exported["missing_fields"] == ["args", "python_args", "stdin_inputs"]
    assert set(exported["missing_env"]) == ENV.keys() - {"COLOUR"}
    imported = ask("POST", "/sessions/import", exported, key="three")
    clone = ask("POST", f"{here}/clone", key="four")
    assert not clone.keys() & {"missing_fields", "missing_env"}
    for path in ("", "/status", "/events", "/resources", "/breakpoints", "/ping"):
        ask("GET", here + path)
        ask("GET", here + path, format="text")
    ask("GET", "/sessions")
    listed = ask("GET", "/processes", limit=1000)
    assert any("--password" in one["command"] for one in listed["items"])
    pid = launched["pid"]
    ask("GET", f"/processes/{pid}")
    # Where it lives in memory it is launched again as it was.
    assert ask("POST", f"{here}/restart", {"wait": 20})["status"] == "paused"
    again = ask("POST", f"/sessions/{clone['session_id']}/restart", {"wait": 9})
    assert "exit_code" not in again
    bad = {"script": str(program), "env": {"API_TOKEN": [CANARY]}, "token": CANARY}
    ask("POST", f"/sessions/{imported['session_id']}/launch", bad)
    ask("GET", "/sessions", token=CANARY)
    ask("DELETE", f"/sessions/{clone['session_id']}")
    ask("POST", f"{here}/terminate", {"grace": 0})
    ask("GET", f"{here}/events")
    folders = (relay.data_dir, relay.run_dir)
    assert relay.stop() == 0
    for raw in told:
        assert CANARY.encode() not in raw, raw
    written = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    names = {path.name for path in written}
    assert {"audit.log", "relay.log", "session.json", "idempotency.jsonl"} <= names
    for path in [*written, relay.log]:
        data = path.read_bytes()
        if path.name == "idempotency.jsonl":
            kept = [json.loads(line) for line in data.splitlines()]
            assert len(kept) == 4
            data += b"".join(base64.b64decode(reply[5]["body"]) for reply in kept)
        assert CANARY.encode() not in data, path


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
