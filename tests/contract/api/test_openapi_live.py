"""The OpenAPI document that a relay serves is true: of its examples and of every reply."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest
from jsonschema import Draft202012Validator

from debug_relay.protocol.docs.examples import EXAMPLES, PATH_VALUES
from debug_relay.protocol.docs.openapi import openapi
from debug_relay.protocol.operation_row import Operation
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.version import API_PREFIX, VERSION
from debug_relay.supervisor.http.router import Router
from tests.contract.attach.test_attach_port import Listening
from tests.kit.client import Answer, Client, Session
from tests.kit.relay import Relay
from tests.kit.source import Source

# Streams have no reply of their own: tests/contract/streams.
ANSWERED = {name: row for name, row in OPERATIONS.items() if not row.streams}
PROGRAM = """
    def double(n):
        return n * 2  # @inside

    line = input("name? ")
    items = [1, 2, 3]
    total = double(len(items))  # @here
    print(line, total)
    while True:
        total += 1  # @loop
"""
ENDLESS = """
    import time
    while True:
        time.sleep(0.01)
"""


class Checked(Client):
    """Every reply is held against the document that the same relay serves."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.router = Router(OPERATIONS, API_PREFIX)
        self.document = json.loads(Client(url).get("/openapi.json").raw)
        self.seen: set[tuple[str, int]] = set()
        self._validators: dict[tuple[str, str], Draft202012Validator] = {}

    def call(self, verb: str, path: str, *args: Any, **more: Any) -> Answer:
        answer = super().call(verb, path, *args, **more)
        row = self.router.match(verb, self.prefix + path).operation
        self._check(row, answer)
        self.seen.add((row.name, answer.status))
        return answer

    def root(self, verb: str, path: str) -> Answer:
        """Where there is no prefix."""
        prefix, self.prefix = self.prefix, ""
        try:
            return self.call(verb, path)
        finally:
            self.prefix = prefix

    def _check(self, row: Operation, answer: Answer) -> None:
        where = f"{row.name} {answer.status}"
        node = self.document["paths"][row.path][row.verb.lower()]
        reply = self._resolved(node["responses"].get(str(answer.status)))
        assert reply, f"{where} is not in the document: {answer.raw[:500]!r}"
        media = answer.headers["Content-Type"].partition(";")[0]
        assert media in reply["content"], f"{where} is {media}"
        for name in reply.get("headers", ()):
            assert name in answer.headers, f"{where} has no {name}"
        key = (row.name, str(answer.status))
        if key not in self._validators:
            schema = reply["content"][media]["schema"]
            whole = {**schema, "components": self.document["components"]}
            self._validators[key] = Draft202012Validator(whole)
        said = answer.body if media == "application/json" else answer.raw.decode()
        wrong = [
            f"{error.json_path}: {error.message[:300]}"
            for error in self._validators[key].iter_errors(said)
        ]
        assert wrong == [], f"{where}: {wrong}"

    def _resolved(self, node: Any) -> Any:
        while node and "$ref" in node:
            found = self.document
            for part in node["$ref"].removeprefix("#/").split("/"):
                found = found[part]
            node = found
        return node


@pytest.fixture
def checked(own_relay: Callable[..., Relay]) -> Checked:
    return Checked(own_relay().url)


def example(client: Client, row: Operation, path: str, session_id: str) -> Answer:
    target = path.format(**{**PATH_VALUES, "session_id": session_id})
    request = EXAMPLES[row.name].request if row.name in EXAMPLES else {}
    variables = {part[1:-1] for part in path.split("/") if part.startswith("{")}
    request = {name: value for name, value in request.items() if name not in variables}
    if row.verb in ("GET", "DELETE"):
        request.pop("timeout", None)  # a long-poll would wait for what does not come
        texts = {name: json.dumps(v) if isinstance(v, bool) else v for name, v in request.items()}
        return client.call(row.verb, f"{target}?{urlencode(texts)}")
    return client.call(row.verb, target, request)


# Its path is one that the session must know: the examples' files are nobody's.
OF_REAL_FILES = ("source",)


def paused(client: Client, program: Source) -> Session:
    session = client.session(name="examples")
    session.break_at(program, program["here"])
    session.launch(program, stdin_inputs=["Ada\n"])
    assert session.status()["status"] == "paused"
    return session


def test_the_served_document_is_valid(relay: Client) -> None:
    answer = relay.get("/openapi.json")
    assert answer.headers["Content-Type"].startswith("application/json")
    # tests/protocol/test_schema.py checks that this same text is valid.
    assert answer.body == json.loads(json.dumps(openapi(VERSION, relay.url)))
    assert answer.body["servers"] == [{"url": relay.url}]
    paths = answer.body["paths"].values()
    assert set(OPERATIONS) <= {node["operationId"] for path in paths for node in path.values()}


def test_examples_fit(relay: Client, own_relay: Callable[..., Relay]) -> None:
    with relay.session() as looked_at:
        for row in ANSWERED.values():
            # These change the relay for all.
            alone = row.name in ("shutdown", "patch-config")
            client = own_relay(name=row.name).client if alone else relay
            if not row.on_session or row.safe:
                examples_fit(row, client, looked_at.id)
            else:
                with client.session() as session:
                    examples_fit(row, client, session.id)


def examples_fit(row: Operation, client: Client, session_id: str) -> None:
    for path in row.paths:
        answer = example(client, row, path, session_id)
        if not answer.headers["Content-Type"].startswith("application/json"):
            assert answer.status == 200, row
        elif answer.body.get("success") is False:
            code = answer.body["error"]["code"]
            if row.name in OF_REAL_FILES:
                assert code == "INVALID_PARAMETER", row
                continue
            assert not code.startswith(("INVALID_REQUEST", "INVALID_PARAMETER", "MISSING_")), row
            assert code not in ("NOT_FOUND", "METHOD_NOT_ALLOWED", "INTERNAL_ERROR"), row


def test_examples_in_a_stopped_program(checked: Checked, source: Callable[..., Source]) -> None:
    session = paused(checked, source(PROGRAM))
    ends = ("delete-session", "terminate", "continue", "step-over", "step-into", "step-out")
    ends += (*OF_REAL_FILES, "take-lease")  # which would have the others refused
    rows = [row for row in ANSWERED.values() if row.on_session and row.name not in ends]
    for row in rows:
        for path in row.paths:
            answer = example(checked, row, path, session.id)
            if not answer.body["success"]:
                code = answer.body["error"]["code"]
                assert code not in ("INVALID_REQUEST", "INVALID_PARAMETER", "INTERNAL_ERROR"), row


def test_a_tour_of_all_operations(checked: Checked, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    of_the_relay(checked)
    session = paused(checked, program)
    of_a_session(checked, session)
    looks(session)
    looks_closer(session)
    moves(session, program)
    records(session, program)
    copies(checked, session)
    begins_again(session)
    fails(checked)
    joins(checked, Listening(source(ENDLESS, "endless.py").path))
    ends(checked, session)
    refusals(checked)
    checked.post("/shutdown", {"keep_sessions": False}).ok()
    done = {name for name, status in checked.seen if status < 300}
    # It needs py-spy, an optional extra.
    assert done | {"process-stacks"} == set(ANSWERED), "an operation has not been toured"


def of_the_relay(client: Checked) -> None:
    client.root("GET", "/")
    for path in (
        "/health",
        "/info",
        "/config",
        "/openapi.json",
        "/llms.txt",
        "/metrics",
        "/docs",
        "/sessions",
        "/events",
    ):
        client.get(path)
    client.patch("/config", {"sessions": {"max_sessions": 12}}).ok()
    client.get("/processes").ok()
    client.get(f"/processes/{os.getpid()}").ok()
    client.get(f"/processes/{os.getpid()}/stacks")
    client.post("/ticket").ok()
    client.post("/run", {"code": "print(1)"}).ok()
    profile = {"breakpoints": [{"file": "/tmp/none.py", "line": 1}]}
    client.call("PUT", "/breakpoint-profiles/tour", profile).ok()
    client.get("/breakpoint-profiles").ok()
    client.get("/breakpoint-profiles/tour").ok()
    client.get("/breakpoint-profiles/other").refused("PROFILE_NOT_FOUND", 404)


def of_a_session(client: Checked, session: Session) -> None:
    session.post("/lease", {"holder": "agent-7"}).ok()
    session.post("/step-over").refused("SESSION_LEASED", 423)
    session.get().ok()
    session.post("/lease", {"take_over": True}).ok()
    session.delete("/lease").ok()
    session.get().ok()
    session.status()
    session.patch(body={"name": "renamed", "labels": {"team": "search"}}).ok()
    assert client.get("/sessions", label="team=search", status="paused").ok()["total"] == 1
    session.post("/ping").ok()
    session.get("/ping").ok()
    session.get("/resources").ok()
    session.get("/output").ok()
    assert session.events()
    session.get("/output", cursor="nonsense")
    session.get("/events", limit=1001).refused("INVALID_PARAMETER", 400)


def looks(session: Session) -> None:
    thread = session.get("/threads").ok()["stopped_thread_id"]
    session.get("/stacktrace").ok()
    session.get(f"/threads/{thread}/stacktrace").ok()
    for scope in session.get("/scopes").ok()["scopes"]:
        session.get(f"/variables/{scope['variables_reference']}").ok()
    session.get("/frames/0/variables").ok()
    session.value("items")
    session.post("/evaluate", {"expression": "1 / 0"}).ok()
    session.post("/evaluate", {"expression": "1 +"}).refused("EVALUATE_ERROR", 400)
    session.get("/frames/99/variables").refused("FRAME_NOT_FOUND", 404)
    session.get("/variables/99999").refused("VARIABLE_NOT_FOUND", 404)
    session.get("/stacktrace", thread_id=99999).refused("THREAD_NOT_FOUND", 404)


def looks_closer(session: Session) -> None:
    session.get("/snapshot").ok()
    session.get("/history").ok()
    session.get("/modules", limit=3).ok()
    session.get("/source", frame_id=0).ok()
    session.get("/tasks").ok()
    session.post("/hover", {"expression": "items"}).ok()
    session.post("/completions", {"text": "ite"}).ok()
    session.post("/watch", {"expression": "len(items)"}).ok()
    session.get("/watch").ok()
    session.delete("/watch").ok()
    (scope, *_) = session.get("/scopes").ok()["scopes"]
    change = {"name": "line", "value": "'Bo'"}
    session.post(f"/variables/{scope['variables_reference']}/set", change).ok()
    session.get("/exception").refused("INVALID_SESSION_STATE", 409)


def records(session: Session, program: Source) -> None:
    session.post("/exception-breakpoints", {"types": ["KeyError"]}).ok()
    session.get("/exception-breakpoints").ok()
    session.delete("/exception-breakpoints").ok()
    session.post("/breakpoint-profiles/tour/apply").ok()
    session.client.delete("/breakpoint-profiles/tour").ok()
    row = {"file": str(program), "line": program["loop"], "capture": ["total"]}
    session.post("/trace", {"at": [row], "max_rows": 3}).ok()
    session.get("/trace").ok()
    session.delete("/trace").ok()
    session.post("/run-to", {"file": str(program), "line": program["loop"]}).ok()
    session.post("/evaluate", {"expression": "print(1)"}).ok()
    session.delete("/output").ok()


def copies(client: Checked, session: Session) -> None:
    exported = session.get("/export").ok()
    for answer in (client.post("/sessions/import", exported), session.post("/clone")):
        client.delete(f"/sessions/{answer.ok(201)['session_id']}").ok()


def fails(client: Checked) -> None:
    with client.session() as session:
        session.try_launch(code="1 / 0").ok()
        session.get("/exception").ok()


def begins_again(session: Session) -> None:
    session.post("/exception-breakpoints", {"filters": ["raised"]}).ok()
    restarted = session.post("/restart", {"wait": 0}).ok()
    assert restarted["status"] in ("running", "paused")
    session.post("/input", {"input": "Cy\n", "eof": True}).ok()
    session.post("/pause", {"wait": 20}).ok()


def moves(session: Session, program: Source) -> None:
    session.step("into")
    session.step("out")
    session.step("over")
    extra = session.break_at(program, program["inside"], condition="n > 100")
    session.get("/breakpoints").ok()
    session.get(f"/breakpoints/{extra['id']}").ok()
    session.patch(f"/breakpoints/{extra['id']}", {"enabled": False}).ok()
    session.delete(f"/breakpoints/{extra['id']}").ok()
    session.get(f"/breakpoints/{extra['id']}").refused("BREAKPOINT_NOT_FOUND", 404)
    far = {"file": str(program), "line": 9999}
    session.post("/breakpoints", far).refused("BREAKPOINT_INVALID_LINE", 400)
    session.delete("/breakpoints").ok()
    session.post("/continue", headers={"If-Stop": "1"}).refused("STOP_CHANGED", 409)
    session.resume(wait=0)
    session.post("/input", {"input": "more\n"}).ok()
    session.post("/pause", {"wait": 20}).ok()


def joins(client: Checked, listening: Listening) -> None:
    try:
        with client.session() as other:
            other.post("/attach", {"port": 1}).refused("ATTACH_REFUSED", 502)
            other.post("/attach", {"port": listening.port, "wait": 0}).ok()
            other.get("/threads").ok()
            other.post("/detach").ok()
    finally:
        listening.end()


def ends(client: Checked, session: Session) -> None:
    session.post("/terminate", {"grace": 0}).ok()
    session.post("/continue").refused("INVALID_SESSION_STATE", 409)
    session.get("/output").ok()
    session.delete().ok()
    session.get().refused("SESSION_NOT_FOUND", 404)


def refusals(client: Checked) -> None:
    client.post("/sessions", b"{").refused("INVALID_REQUEST", 400)
    client.post("/sessions", b"{}", headers={"Content-Type": "text/plain"}).refused(
        "UNSUPPORTED_MEDIA_TYPE", 415
    )
    client.get("/health", headers={"Host": "evil.example"}).refused("FORBIDDEN_HOST", 403)
    client.get("/health", headers={"Origin": "null"}).refused("FORBIDDEN_ORIGIN", 403)
    client.get("/sessions", limit=0).refused("INVALID_PARAMETER", 400)
    with client.session() as session:
        session.try_launch("/none.py").refused("LAUNCH_SCRIPT_NOT_FOUND", 400)
        session.post("/launch", {}).refused("INVALID_REQUEST", 400)
