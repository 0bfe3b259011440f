"""Errors of requests that are wrong in themselves, or too many."""

from __future__ import annotations

import re
import socket
from collections.abc import Generator
from typing import Any

from debug_relay.protocol.errors import Code
from tests.contract.api.error_stories.scene import Scene, story_of, suggestion
from tests.kit.client import Answer
from tests.kit.faulty import IMPATIENT, with_fault
from tests.kit.relay import eventually
from tests.kit.wire import Wire, parsed


@story_of(Code.INVALID_REQUEST)
def wrong_fields(scene: Scene) -> Generator[Answer, Any, None]:
    body = {"nam": "mine", "timeout_minutes": 0, "labels": {}}
    error = yield scene.client.post("/sessions", body)
    problems = {one["field"]: one["message"] for one in error["details"]["errors"]}
    assert problems.keys() == {"nam", "timeout_minutes"}
    meant = re.search(r"did you mean (\w+)\?", problems["nam"])
    least = re.search(r">= (\d+)", problems["timeout_minutes"])
    assert meant is not None
    assert least is not None
    body = {meant.group(1): "mine", "timeout_minutes": int(least.group(1))}
    scene.client.post("/sessions", body).ok(201)


@story_of(Code.MISSING_PARAMETER)
def no_reference(scene: Scene) -> Generator[Answer, Any, None]:
    session, _ = scene.at_a_stop()
    error = yield session.get("/variables")
    [problem] = error["details"]["errors"]
    reference = session.get("/scopes").ok()["scopes"][0]["variables_reference"]
    session.get("/variables", **{problem["field"]: reference}).ok()


@story_of(Code.INVALID_PARAMETER)
def over_the_maximum(scene: Scene) -> Generator[Answer, Any, None]:
    error = yield scene.client.get("/sessions", limit=5000)
    [problem] = error["details"]["errors"]
    most = re.search(r"<= (\d+)", problem["message"])
    assert most is not None
    scene.client.get("/sessions", **{problem["field"]: most.group(1)}).ok()


@story_of(Code.UNSUPPORTED_MEDIA_TYPE)
def as_a_form(scene: Scene) -> Generator[Answer, Any, None]:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    error = yield scene.client.post("/sessions", {"name": "x"}, headers=form)
    name, value = suggestion(error).split("header ")[1].rstrip(".").split(": ")
    scene.client.post("/sessions", {"name": "x"}, headers={name: value}).ok(201)


@story_of(Code.REQUEST_TOO_LARGE)
def large_body(scene: Scene) -> Generator[Answer, Any, None]:
    client = scene.start("--max-body-bytes", "2048").client
    body = b'{"name": "x"}'
    error = yield client.post("/sessions", body.ljust(2049))
    most = int(re.findall(r"\d+", suggestion(error))[0])
    client.post("/sessions", body.ljust(most)).ok(201)
    assert "max_body_bytes" in suggestion(error)
    roomy = scene.start("--max-body-bytes", "4096", name="roomy").client
    roomy.post("/sessions", body.ljust(2049)).ok(201)


@story_of(Code.REQUEST_TIMEOUT)
def half_a_body(scene: Scene) -> Generator[Answer, Any, None]:
    env = with_fault(scene.folder / "fault", IMPATIENT)
    client = scene.start(env=env).client
    headers = {"Content-Length": "100"}
    error = yield client.post("/sessions", b'{"name"', headers=headers)
    assert "exact length" in suggestion(error)
    client.post("/sessions", b'{"name": "x"}').ok(201)


@story_of(Code.NOT_FOUND)
def misspelt_path(scene: Scene) -> Generator[Answer, Any, None]:
    session = scene.session()
    error = yield session.get("/statsu")
    assert scene.suggested(error).ok()["session_id"] == session.id


@story_of(Code.METHOD_NOT_ALLOWED)
def wrong_verb(scene: Scene) -> Generator[Answer, Any, None]:
    session = scene.session()
    answer = session.client.call("PUT", f"/sessions/{session.id}")
    allowed = answer.headers["Allow"].split(", ")
    error = yield answer
    assert set(allowed) == {"DELETE", "GET", "HEAD", "PATCH"}
    assert error["details"]["allow"] == sorted(allowed)
    scene.suggested(error).ok()


@story_of(Code.TOO_MANY_WAITERS)
def crowd(scene: Scene) -> Generator[Answer, Any, None]:
    session = scene.session()
    request = (
        f"GET {scene.client.prefix}/sessions/{session.id}/events?timeout=60&types=stopped "
        f"HTTP/1.1\r\nHost: {scene.client.host}:{scene.client.port}\r\n\r\n"
    ).encode()
    for _ in range(100):
        waiter = socket.create_connection((scene.client.host, scene.client.port), 10)
        scene.ends.enter_context(waiter)
        waiter.sendall(request)

    def one_more() -> Answer | None:
        answer = session.get("/events", types="stopped", timeout=0.01)
        return answer if answer.status != 200 else None

    answer = eventually(one_more, what="all of them wait")
    assert isinstance(answer, Answer)
    assert answer.headers["Retry-After"]
    error = yield answer
    assert "without timeout" in suggestion(error)
    assert session.events("stopped") == []
    other = scene.client.called(X_Agent="other")  # who has room of its own
    other.get(f"/sessions/{session.id}/events", types="stopped", timeout=0.01).ok()


@story_of(Code.TOO_MUCH_IN_FLIGHT)
def many_long_bodies(scene: Scene) -> Generator[Answer, Any, None]:
    wire, size = Wire(scene.client), 10 * 1024 * 1024
    line = f"POST {scene.client.prefix}/sessions"
    announced = wire.request(line, "Content-Type: application/json", f"Content-Length: {size}")
    for _ in range(6):
        sock = scene.ends.enter_context(wire.connect())
        sock.sendall(announced)
    long = {"name": "x" * 5_000_000}

    def one_more() -> Answer | None:
        # Long enough to be counted, and only announced: refused before it has been sent.
        answer = parsed(wire.exchange(announced, shut=True))
        return answer if answer.status == 429 else None

    answer = eventually(one_more, what="all of them are on their way")
    assert isinstance(answer, Answer)
    assert answer.headers["Retry-After"]
    error = yield answer
    assert error["details"]["bytes_in_flight"] == 6 * size
    assert "again" in suggestion(error)
    # Short calls go on, and so do long ones when the others have left.
    scene.client.post("/sessions", {"name": "x" * 300}).refused("INVALID_REQUEST", 400)
    scene.ends.close()
    eventually(lambda: scene.client.post("/sessions", long).status == 400, what="room again")


@story_of(Code.TOO_MANY_STREAMS)
def audience(scene: Scene) -> Generator[Answer, Any, None]:
    session = scene.session()
    request = (
        f"GET {scene.client.prefix}/sessions/{session.id}/events/stream "
        f"HTTP/1.1\r\nHost: {scene.client.host}:{scene.client.port}\r\n\r\n"
    ).encode()
    for _ in range(256):
        reader = socket.create_connection((scene.client.host, scene.client.port), 10)
        scene.ends.enter_context(reader)
        reader.sendall(request)
        assert reader.recv(12) == b"HTTP/1.1 200"
    answer = session.get("/output/stream")
    assert answer.headers["Retry-After"]
    error = yield answer
    scene.suggested(error).ok()


@story_of(Code.UPGRADE_REQUIRED)
def no_socket(scene: Scene) -> Generator[Answer, Any, None]:
    error = yield scene.session().get("/debug")
    assert "/events/stream" in suggestion(error)
