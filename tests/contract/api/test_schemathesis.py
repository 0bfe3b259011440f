"""What a machine makes of the OpenAPI document is answered as the document says.

schemathesis is imported by the tests that run: each process of a run collects all tests.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
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
# Any operation takes them, and the same code checks them before it looks for the operation. For an
# operation without other fields schemathesis draws 160 requests to find 3 that violate these.
CALLER_HEADERS = [
    f"#/components/parameters/{name}"
    for name in ("X-Request-ID", "X-Agent", "X-Human-Front", "X-Lease-Key")
]
NAMING_CALLERS = ("create-session", "take-lease")
# Shutdown would end the relay, and an upgrade is no reply.
ROWS = [row for row in OPERATIONS.values() if row.name != "shutdown" and not row.streams]
# These end a session, at once or by a timeout, or keep others from driving it: they get one of
# their own, without a program.
ALONE = (
    "delete-session", "patch-session", "terminate", "detach", "launch", "attach", "take-lease",
)  # fmt: skip
# A valid request may also meet a state that forbids it, or the lease of another caller (423).
ACCEPTED = ["2xx", "401", "403", "404", "409", "423", "429", "5xx"]
# It stops at the call as well: a generated request may have removed the breakpoint. Each line has
# code and an `n`, so each is a place for a breakpoint.
PROGRAM = """
    def work(n):
        n = n + 1  # @inside
        return n
    for n in iter(int, 1): work(n); breakpoint()
"""
LINES = 4
NO_PROCESS = 2**22  # the kernel's numbers end below it


def simplified(document: Any) -> Any:
    """Without what makes generation slow and finds nothing, or what schemathesis cannot take: it
    makes at most 31 combinations of a schema's alternatives.
    """
    created = document["components"]["schemas"]["CreateSessionBody"]
    del created["properties"]["idle_timeout"]  # `timeout_minutes` in another unit
    created["allOf"] = [rule for rule in created["allOf"] if "idle_timeout" not in str(rule)]
    for path in document["paths"].values():
        for node in path.values():
            if node["operationId"] not in NAMING_CALLERS:
                node["parameters"] = [
                    item for item in node["parameters"] if item.get("$ref") not in CALLER_HEADERS
                ]
    return without_longest_bounds(document)


def without_longest_bounds(document: Any) -> Any:
    """Also without the examples, which name files of other machines."""
    if isinstance(document, list):
        return [without_longest_bounds(item) for item in document]
    if not isinstance(document, dict):
        return document
    return {
        key: without_longest_bounds(value)
        for key, value in document.items()
        if not (key == "maxLength" and isinstance(value, int) and value > LONGEST_BOUND)
        and key not in ("example", "examples")
    }


@cache
def nodes() -> dict[str, APIOperation]:
    """What schemathesis makes of each operation, by its id."""
    import schemathesis

    document = simplified(openapi(VERSION, "http://127.0.0.1:1/api/v1"))
    schema = schemathesis.openapi.from_dict(document)
    schema.config.checks.positive_data_acceptance.expected_statuses = ACCEPTED
    found = (result.ok() for result in schema.get_all_operations())
    return {one.definition.raw["operationId"]: one for one in found}


def modes(node: APIOperation) -> tuple[str, ...]:
    """No request breaks a schema that asks for nothing but text in its path."""
    schemas = [parameter.definition["schema"] for parameter in node.iter_parameters()]
    asks = node.body or any(schema.keys() - {"type", "examples"} for schema in schemas)
    asks = asks or any(schema["type"] != "string" for schema in schemas)
    return ("positive", "negative") if asks else ("positive",)


class Target:
    """A relay with a program that stops at a breakpoint again whenever it is let go."""

    def __init__(self, relay: Relay, program: Source) -> None:
        self.relay = relay
        self.program = program
        self.client = Client(relay.url)
        self.paused = self._paused()

    def _paused(self) -> Session:
        # With a project a relative path is as good as an absolute one.
        session = self.client.session(name="paused", project_root=str(self.program.path.parent))
        session.break_at(self.program, self.program["inside"])
        assert session.launch(self.program)["status"] == "paused"
        return session

    def for_row(self, row: Operation) -> Session:
        if row.name in ALONE:
            return self.client.session(name="alone", project_root=str(self.program.path.parent))
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


def cursor_of(row: Operation, session: Session) -> str | None:
    """A cursor that this operation returns, if it takes one."""
    if "cursor" not in row.params.__struct_fields__:
        return None
    found = session.client.get(row.path.format(session_id=session.id))
    cursor = found.body["data"].get("next_cursor") if found.status == 200 else None
    return cursor if isinstance(cursor, str) else None


def give_values(program: Path) -> None:
    """For each format of the document texts that are what it says."""
    import schemathesis
    from hypothesis.strategies import sampled_from

    folder = program.parent
    (folder / "names.env").write_text("NAME=value\n")
    for name, values in {
        "directory": [str(folder)],
        "env-file": [str(folder / "names.env")],
        "executable": ["/bin/true"],
        "python-expression": ["n", "n > 3", "len('x') + 1", "[n, None]"],
        "python-file": [str(program)],
        "python-format-string": ["n is {n!r:>3}", "{{}}"],
        "python-interpreter": [sys.executable],
        "python-module": ["platform"],
        "python-name": ["work"],
        "python-option": ["-O", "-B"],
        "python-script": [str(program)],
        "python-source": ["n", "(1, 2)"],
        "python-regex": ["no process has this[ ]name"],
        "relay-version": [VERSION],
        "text-of-line": ["n"],
        "text-of-one-line": ["return n"],
        "virtual-environment": [sys.prefix],
    }.items():
        schemathesis.openapi.format(name, sampled_from(values))


def a_line(number: float) -> int:
    return 1 + int(number) % LINES


def with_lines(body: Any) -> Any:
    """Line numbers have no format: the program has few."""
    if isinstance(body, list):
        return [with_lines(item) for item in body]
    if not isinstance(body, dict):
        return body
    return {
        key: a_line(value) if key == "line" and value is not None else with_lines(value)
        for key, value in body.items()
    }


def as_the_relay_is(row: Operation, case: Case, session: Session, cursor: str | None) -> None:
    """Into a valid request comes what the relay alone knows, and the fields of a query that go
    together: OpenAPI has no rule for these.
    """
    for name in ("cursor", "since"):
        if cursor is not None and name in case.query:
            case.query[name] = cursor
        else:
            case.query.pop(name, None)
    if isinstance(case.body, dict):
        case.body = with_lines(case.body)
    if row.name == "variables":
        for name, other in (("start", "offset"), ("count", "limit")):
            if name in case.query:
                case.query.pop(other, None)
    elif row.name == "source":
        if "path" in case.query:
            case.query.pop("frame_id", None)
        else:
            case.query.setdefault("frame_id", 0)
        for name, line in (("start", a_line), ("end", lambda _: LINES)):
            if name in case.query:
                case.query[name] = line(case.query[name])
    elif row.name == "patch-config" and isinstance(case.body, dict):
        shown = session.client.get("/config").ok()
        settings = [name.split(".") for name in shown["changeable"] if is_free(shown, name)]
        case.body = {
            section: {key: shown["config"][section][key] for of, key in settings if of == section}
            for section in case.body
        }


def is_free(shown: Any, name: str) -> bool:
    """Whether no environment or flag fixes the setting."""
    return not shown["origins"].get(name, "").startswith(("environment", "flag"))


def shortened(row: Operation, case: Case, session: Session) -> None:
    """Into the session, to no process of others, and no longer than it takes to be answered."""
    if "session_id" in (case.path_parameters or {}):
        case.path_parameters["session_id"] = session.id
    if row.name == "run" and isinstance(case.body, dict):
        case.body.setdefault("timeout", 0.2)
    for place in (case.path_parameters, case.query, case.body):
        if isinstance(place, dict):
            for name, most in (("pid", NO_PROCESS), ("port", 65535), ("listening_on", 65535)):
                if type(place.get(name)) is int and 0 < place[name] <= most:
                    place[name] = most
            for name in ("wait", "timeout", "connect_timeout", "wait_seconds"):
                value = place.get(name)
                if isinstance(value, int | float) and not isinstance(value, bool) and value > 0.2:
                    place[name] = 0.2 if value <= 300 else value


def checks_of(row: Operation) -> list[Any]:
    """All of them. Each decides by itself which requests are for it."""
    from schemathesis.checks import CHECKS, load_all_checks

    load_all_checks()
    # `check_reply` looks closer at what a 5xx says.
    return [check for check in CHECKS.get_all() if check.__name__ != "not_a_server_error"]


def check_reply(
    row: Operation, case: Case, session: Session, url: str, checks: list[Any], cursor: str | None
) -> None:
    shortened(row, case, session)
    if case.meta is not None and case.meta.generation.mode.is_positive:
        as_the_relay_is(row, case, session, cursor)
    # Longer than a step waits by itself.
    response = case.call(base_url=url, timeout=40)
    sent = response.request.body
    if isinstance(sent, bytes) and sent and not sent.strip():
        return  # The relay takes a body of blanks for none.
    if "violates `format`" in str(case.meta):
        checks = [check for check in checks if check.__name__ != "negative_data_rejection"]
    case.validate_response(response, checks=checks)
    if response.status_code >= 500:
        # Only what the operation's row names; a mistake of the relay is never right.
        code = Code(response.json()["error"]["code"])
        assert code is not Code.INTERNAL_ERROR, response.text
        assert code in row.all_errors, response.text


@pytest.mark.long
def test_generated_requests(target: Target) -> None:
    """One test: each process that imports schemathesis and the document needs seconds for that."""
    give_values(target.program.path)
    for row in ROWS:
        for mode in modes(nodes()[row.name]):
            try:
                check_requests(row, mode, target)
            except (Exception, BaseExceptionGroup) as error:  # failures of checks are a group
                error.add_note(f"It is a {mode} request of {row.name}")
                raise


def check_requests(row: Operation, mode: str, target: Target) -> None:
    from schemathesis import GenerationMode

    node = nodes()[row.name]
    session = target.for_row(row)
    checks = checks_of(row)
    cursor = cursor_of(row, session)

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
        check_reply(row, case, session, target.relay.url, checks, cursor)

    try:
        generated()
    finally:
        target.tidy()
