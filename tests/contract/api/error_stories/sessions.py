"""Errors of calls to a session that is not there, or not in the right state."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from debug_relay.protocol.errors import Code
from tests.contract.api.error_stories.scene import (
    NOBODY,
    PROGRAM,
    SLEEPING,
    Scene,
    story_of,
    suggestion,
)
from tests.kit.client import Answer
from tests.kit.relay import eventually


@story_of(Code.SESSION_NOT_FOUND)
def no_such_session(scene: Scene) -> Generator[Answer, Any, None]:
    there = scene.session()
    error = yield scene.client.get(NOBODY)
    assert there.id in suggestion(error)
    listed = scene.suggested(error).ok()["items"]
    assert [item["session_id"] for item in listed] == [there.id]


@story_of(Code.SESSION_LIMIT_REACHED)
def too_many_sessions(scene: Scene) -> Generator[Answer, Any, None]:
    scene.client = scene.start(env={"OPENCODE_DEBUG_MAX_SESSIONS": "1"}).client
    scene.client.session()
    error = yield scene.client.post("/sessions")
    assert scene.suggested(error).ok()["deleted"] is True
    scene.client.post("/sessions").ok(201)


@story_of(Code.SESSION_EXPIRED)
def expired(scene: Scene) -> Generator[Answer, Any, None]:
    session = scene.session(idle_timeout=0.1)
    # Lists do not touch.
    eventually(lambda: scene.client.get("/sessions").ok()["total"] == 0)
    error = yield session.get()
    assert "timeout_minutes" in suggestion(error)
    later = scene.suggested(error, {"timeout_minutes": 5}).ok(201)
    assert later["config"]["timeout_minutes"] == 5


@story_of(Code.SESSION_CRASHED)
def crashed(scene: Scene) -> Generator[Answer, Any, None]:
    session = scene.session()
    session.launch(scene.write(SLEEPING), wait=0)
    scene.relay.worker(session.id).kill()
    eventually(lambda: session.status()["status"] == "failed")
    error = yield session.post("/pause")
    assert scene.suggested(error).ok()["entries"] == []
    assert f"DELETE /api/v1/sessions/{session.id}" in suggestion(error)
    session.delete().ok()
    scene.session()


@story_of(Code.INVALID_SESSION_STATE)
def wrong_state(scene: Scene) -> Generator[Answer, Any, None]:
    session, program = scene.session(), scene.write(PROGRAM)
    error = yield session.post("/continue")
    body = {"script": str(program), "stop_on_entry": True, "wait": 20}
    assert scene.suggested(error, body).ok()["status"] == "paused"
    session.post("/continue").ok()


@story_of(Code.STOP_CHANGED)
def stop_changed(scene: Scene) -> Generator[Answer, Any, None]:
    session, _ = scene.paused()
    seen = session.status()["stop_id"]
    session.step()
    error = yield session.post("/step-over", headers={"If-Stop": str(seen)})
    name, value = suggestion(error).rstrip(".").split("send ")[1].split(": ")
    assert int(value) == session.status()["stop_id"]
    session.post("/step-over", headers={name: value}).ok()


@story_of(Code.IDEMPOTENCY_CONFLICT)
def another_body(scene: Scene) -> Generator[Answer, Any, None]:
    key = {"Idempotency-Key": scene.folder.name}
    scene.client.post("/sessions", {"name": "a"}, headers=key).ok(201)
    error = yield scene.client.post("/sessions", {"name": "b"}, headers=key)
    assert "key" in suggestion(error)
    key = {"Idempotency-Key": scene.folder.name + "-another"}
    scene.client.post("/sessions", {"name": "b"}, headers=key).ok(201)


@story_of(Code.SESSION_LEASED)
def somebody_drives(scene: Scene) -> Generator[Answer, Any, None]:
    session, program = scene.paused()
    session.called(X_Agent="ann").post("/lease", {"ttl": 600}).ok()
    bob = session.called(X_Agent="bob")
    error = yield bob.post("/step-over")
    assert error["details"]["holder"] == "ann"
    assert 590 < error["details"]["seconds_left"] <= 600
    taken = scene.suggested(error, {"take_over": True}, headers={"X-Agent": "bob"}).ok()
    assert taken["holder"] == "bob"
    assert bob.step()["current_location"]["line"] == program["next"]
