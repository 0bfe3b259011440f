"""Errors that the relay and its workers are the cause of."""

from __future__ import annotations

import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

from debug_relay.protocol.errors import Code
from tests.contract.api.error_stories.scene import Scene, story_of, suggestion
from tests.kit.client import Answer
from tests.kit.faulty import MISTAKE, with_fault
from tests.kit.relay import eventually


@story_of(Code.WORKER_START_FAILED)
def no_place_for_workers(scene: Scene) -> Generator[Answer, Any, None]:
    relay = scene.start()
    aside = relay.run_dir.rename(relay.run_dir.with_name("aside"))
    relay.run_dir.touch()
    error = yield relay.client.post("/sessions")
    assert "Not a directory" in error["message"]
    relay.run_dir.unlink()
    aside.rename(relay.run_dir)
    relay.client.post("/sessions").ok(201)


@story_of(Code.WORKER_UNRESPONSIVE)
def stopped_worker(scene: Scene) -> Generator[Answer, Any, None]:
    relay = scene.start(env={"OPENCODE_DEBUG_DAP__REQUEST_TIMEOUT": "0.1"})
    session = relay.client.session()
    relay.worker(session.id).suspend()
    scene.client = relay.client
    error = yield session.patch("", {"name": "x"})
    path = re.search(r"force=true", suggestion(error))
    assert path is not None
    session.delete(force="true").ok()
    session.get().refused("SESSION_NOT_FOUND", 404)


@story_of(Code.SHUTTING_DOWN)
def while_it_stops(scene: Scene) -> Generator[Answer, Any, None]:
    relay = scene.start()
    # A session that does not end at once holds the stop back.
    relay.worker(relay.client.session().id).suspend()
    relay.client.post("/shutdown").ok()
    refused = eventually(lambda: (a := relay.client.post("/sessions")).status != 201 and a)
    assert isinstance(refused, Answer)
    assert refused.headers["Retry-After"] == "1"
    error = yield refused
    assert "after it has restarted" in suggestion(error)
    assert relay.wait() == 0
    relay.start()
    relay.client.post("/sessions").ok(201)


@story_of(Code.INTERNAL_ERROR)
def mistake(scene: Scene) -> Generator[Answer, Any, None]:
    relay = scene.start(env=with_fault(scene.folder / "fault", MISTAKE))
    answer = relay.client.get("/info")
    assert b"inner secret" not in answer.raw
    error = yield answer
    details = error["details"]
    assert details["error_id"] in suggestion(error)
    assert details["log_file"] in suggestion(error)
    log = Path(details["log_file"])
    eventually(lambda: details["error_id"] in log.read_text())
    [line] = [line for line in log.read_text().splitlines() if details["error_id"] in line]
    assert "Traceback" in line
    assert "inner secret" in line
