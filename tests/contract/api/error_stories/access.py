"""Errors of callers that may not do what they ask for."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any

from debug_relay.protocol.errors import Code
from tests.contract.api.error_stories.scene import Scene, story_of, suggestion
from tests.kit.client import Answer, Client
from tests.kit.tokens import new_token, printed_by


@story_of(Code.FORBIDDEN_HOST)
def foreign_name(scene: Scene) -> Generator[Answer, Any, None]:
    name = {"Host": "relay.example"}
    error = yield scene.client.get("/health", headers=name)
    found = re.search(r"http://\S+?(?=,)", suggestion(error))
    assert found is not None
    Client(found.group() + scene.client.prefix).get("/health").ok()
    assert "allow_hosts" in suggestion(error)
    named = scene.start("--allow-hosts", "relay.example").client
    named.get("/health", headers=name).ok()


@story_of(Code.FORBIDDEN_ORIGIN)
def web_page(scene: Scene) -> Generator[Answer, Any, None]:
    page = {"Origin": "http://localhost:3000"}
    error = yield scene.client.get("/health", headers=page)
    assert "without Origin" in suggestion(error)
    scene.client.get("/health").ok()


@story_of(Code.UNAUTHENTICATED)
def no_token(scene: Scene) -> Generator[Answer, Any, None]:
    relay = scene.start()
    new_token(relay, "--scope", "admin")
    refused = relay.client.post("/sessions", {})
    assert refused.headers["WWW-Authenticate"] == "Bearer"
    error = yield refused
    bearer = f"Bearer {printed_by(suggestion(error))}"
    relay.client.called(Authorization=bearer).post("/sessions", {}).ok(201)


@story_of(Code.INSUFFICIENT_SCOPE)
def not_that_token(scene: Scene) -> Generator[Answer, Any, None]:
    relay = scene.start()
    reader = relay.client.called(
        Authorization=f"Bearer {new_token(relay, '--scope', 'sessions:read')}"
    )
    error = yield reader.post("/sessions", {})
    assert error["details"]["scope"] == "sessions:write"
    both = relay.client.called(Authorization=f"Bearer {printed_by(suggestion(error))}")
    session = both.session()
    session.get().ok()
    session.delete().ok()
