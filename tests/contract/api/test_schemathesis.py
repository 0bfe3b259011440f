"""What a machine makes of the OpenAPI document is answered as the document says.

schemathesis is imported by the tests that run: each process of a run collects all tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from debug_relay.protocol.docs.openapi import openapi
from debug_relay.protocol.errors import Code
from debug_relay.protocol.operation_row import Operation
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.version import VERSION
from tests.kit.client import Client, Session
from tests.kit.relay import Relay, eventually
from tests.kit.source import Source

if TYPE_CHECKING:
    from schemathesis import Case
    from schemathesis.schemas import APIOperation

EXAMPLES = 3
# No generated text is that long. schemathesis makes one expression of a bound and a pattern: with a
# repetition of 131,072 that takes it seconds to compile, for each place where it occurs.
LONGEST_BOUND = 10_000
# Shutdown would end the relay, and an upgrade is no reply.
ROWS = [row for row in OPERATIONS.values() if row.name != "shutdown" and not row.streams]
# These end a session, at once or by a timeout, or keep others from driving it: they get one of
# their own, without a program.
ALONE = (
    "delete-session", "patch-session", "terminate", "detach", "launch", "attach", "take-lease",
)  # fmt: skip
# It stops at the call as well: a generated request may have removed the breakpoint.
PROGRAM = """
    n = 0
    while True:
        n += 1  # @inside
        breakpoint()
"""


def without_longest_bounds(document: Any) -> Any:
    if isinstance(document, list):
        return [without_longest_bounds(item) for item in document]
    if not isinstance(document, dict):
        return document
    return {
        key: without_longest_bounds(value)
        for key, value in document.items()
        if not (key == "maxLength" and isinstance(value, int) and value > LONGEST_BOUND)
    }


@cache
def nodes() -> dict[str, APIOperation]:
    """What schemathesis makes of each operation, by its id."""
    import schemathesis

    document = without_longest_bounds(openapi(VERSION, "http://127.0.0.1:1/api/v1"))
    found = schemathesis.openapi.from_dict(document).get_all_operations()
    return {one.definition.raw["operationId"]: one for one in (result.ok() for result in found)}


class Target:
    """A relay with a program that stops at a breakpoint again whenever it is let go."""

    def __init__(self, relay: Relay, program: Source) -> None:
        self.relay = relay
        self.program = program
        self.client = Client(relay.url)
        self.paused = self._paused()

    def _paused(self) -> Session:
        session = self.client.session(name="paused")
        session.break_at(self.program, self.program["inside"])
        assert session.launch(self.program)["status"] == "paused"
        return session

    def for_row(self, row: Operation) -> Session:
        if row.name in ALONE:
            return self.client.session(name="alone")
        answer = self.paused.get("/status")
        if answer.status != 200 or answer.ok()["status"] != "paused":
            self.client.delete(f"/sessions/{self.paused.id}", force="true")
            self.paused = self._paused()
        return self.paused

    def tidy(self) -> None:
        for item in self.client.get("/sessions", limit=1000).ok()["items"]:
            if item["session_id"] != self.paused.id:
                self.client.delete(f"/sessions/{item['session_id']}", force="true")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("schemathesis")
    many = {"OPENCODE_DEBUG_SESSIONS__MAX_SESSIONS": "60"}
    relay = Relay(folder / "data", env=many, forked=True).start()
    try:
        yield Target(relay, Source(folder / "program.py", PROGRAM))
    finally:
        relay.stop()
        eventually(lambda: relay.workers() == [], what="workers gone")


def shortened(case: Case, session: Session) -> None:
    """Into the session, and no longer than it takes to be answered."""
    if "session_id" in (case.path_parameters or {}):
        case.path_parameters["session_id"] = session.id
    for place in (case.query, case.body):
        if isinstance(place, dict):
            for name in ("wait", "timeout", "connect_timeout"):
                value = place.get(name)
                if isinstance(value, int | float) and not isinstance(value, bool) and value > 0.2:
                    place[name] = 0.2 if value <= 300 else value


def checks_of(mode: str) -> list[Any]:
    from schemathesis import checks
    from schemathesis.specs.openapi import checks as openapi_checks

    found = [
        openapi_checks.content_type_conformance,
        openapi_checks.response_headers_conformance,
        openapi_checks.response_schema_conformance,
        openapi_checks.status_code_conformance,
    ]
    return [*found, checks.negative_data_rejection] if mode == "negative" else found


def check_reply(row: Operation, case: Case, session: Session, url: str, checks: list[Any]) -> None:
    shortened(case, session)
    # Longer than a step waits by itself.
    response = case.call(base_url=url, timeout=40)
    case.validate_response(response, checks=checks)
    if response.status_code >= 500:
        # Only what the operation's row names; a mistake of the relay is never right.
        code = Code(response.json()["error"]["code"])
        assert code is not Code.INTERNAL_ERROR, response.text
        assert code in row.all_errors, response.text


@pytest.mark.long
def test_generated_requests(target: Target) -> None:
    """One test: each process that imports schemathesis and the document needs seconds for that."""
    for row in ROWS:
        for mode in ("positive", "negative"):
            try:
                check_requests(row, mode, target)
            except Exception as error:
                error.add_note(f"It is a {mode} request of {row.name}")
                raise


def check_requests(row: Operation, mode: str, target: Target) -> None:
    from schemathesis import GenerationMode

    node = nodes()[row.name]
    session = target.for_row(row)
    checks = checks_of(mode)

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=node.as_strategy(generation_mode=GenerationMode(mode)))
    def generated(case: Case) -> None:
        check_reply(row, case, session, target.relay.url, checks)

    try:
        generated()
    finally:
        target.tidy()
