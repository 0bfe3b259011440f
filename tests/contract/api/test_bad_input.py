"""Whatever does not fit is refused with what is wrong, where, and what to do; nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.source import Source
from tests.kit.wire import Wire

JSON = "application/json"
PROGRAM = """
    x = [1]
    y = x  # @here
    z = y  # @next
"""


@pytest.fixture
def wire(relay: Client) -> Wire:
    return Wire(relay)


def create(relay: Client, body: bytes, content_type: str = JSON, **headers: str) -> Any:
    return relay.post("/sessions", body, headers={"Content-Type": content_type, **headers})


def fields_of(error: Any) -> dict[str, str]:
    return {one["field"]: one["message"] for one in error["details"]["errors"]}


# -- bodies


@pytest.mark.parametrize(
    ("body", "line", "column"),
    [
        (b'{"name": NaN}', 1, 10),
        (b'{"idle_timeout": -Infinity}', 1, 19),
        (b'{"name": "a",\n "labels": {]}', 2, 13),
        (b'{\n "name": 1,\n}', 3, 1),
        (b"{}x", 1, 3),
        (b"{'name': 1}", 1, 2),
        (b"\xef\xbb\xbf{}", 1, 1),
        (b'{"name": "a', 1, 12),
        (b'{"\xc3\xa9": x}', 1, 7),
        (b"\x00", 1, 1),
        (b"<html>", 1, 1),
    ],
    ids=ascii,
)
def test_malformed_json(relay: Client, body: bytes, line: int, column: int) -> None:
    error = create(relay, body).refused("INVALID_REQUEST", 400)
    assert f"line {line}, column {column}" in error["message"]
    assert (error["details"]["line"], error["details"]["column"]) == (line, column)


@pytest.mark.parametrize(
    "body",
    [b"[" * 100_000, b'{"labels":' * 100_000, b"[" * 100_000 + b"]" * 100_000],
    ids=["open", "objects", "closed"],
)
def test_deep_nesting(relay: Client, body: bytes) -> None:
    assert "depth" in create(relay, body).refused("INVALID_REQUEST", 400)["message"]


@pytest.mark.parametrize("number", [b"1e999", b"-1e999", b"9" * 5000], ids=["inf", "-inf", "long"])
def test_numbers_beyond_what_json_readers_take(relay: Client, number: bytes) -> None:
    error = create(relay, b'{"idle_timeout": %b}' % number).refused("INVALID_REQUEST", 400)
    assert "out of range" in error["message"]
    assert "$" not in error["message"]


@pytest.mark.parametrize(
    ("body", "kind"),
    [(b"[]", "array"), (b"null", "null"), (b'"x"', "string"), (b"1", "number"), (b"true", "bool")],
)
def test_a_body_that_is_no_object(relay: Client, body: bytes, kind: str) -> None:
    assert f"JSON {kind}" in create(relay, body).refused("INVALID_REQUEST", 400)["message"]


def test_a_body_that_is_not_utf_8(relay: Client) -> None:
    error = create(relay, b'{"name": "\xff"}').refused("INVALID_REQUEST", 400)
    assert "byte 10 is 0xff" in error["message"]


@pytest.mark.parametrize("body", [b"", b" \r\n\t ", b"{}"], ids=["none", "blank", "object"])
def test_an_empty_body_is_as_good_as_an_object(relay: Client, body: bytes) -> None:
    assert create(relay, body).ok(201)["status"] == "created"


def test_an_empty_body_needs_no_content_type(relay: Client, wire: Wire) -> None:
    answer = wire.ask(f"POST {wire.prefix}/sessions", "Content-Length: 0")
    assert answer.ok(201)["status"] == "created"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("timeout_minutes", True),
        ("timeout_minutes", 5.5),
        ("timeout_minutes", "5"),
        ("timeout_minutes", 0),
        ("timeout_minutes", 1441),
        ("timeout_minutes", 2**70),
        ("idle_timeout", True),
        ("idle_timeout", -0.1),
        ("idle_timeout", 1e300),
        ("stop_on_entry", 1),
        ("stop_on_entry", "true"),
        ("name", 5),
        ("name", "x" * 256),
        ("labels", None),
        ("project_root", ""),
        ("project_root", "a\0b"),
        ("python_path", "x" * 4097),
        ("venv", "\0"),
        ("mode", "Launch"),
        ("port", 65536),
        ("env", {"A": 1}),
        ("args", "a"),
    ],
    ids=lambda value: ascii(value)[:20],
)
def test_a_value_that_does_not_fit(relay: Client, field: str, value: Any) -> None:
    error = relay.post("/sessions", {field: value}).refused("INVALID_REQUEST", 400)
    (problem,) = error["details"]["errors"]
    assert problem["field"].startswith(field)
    assert problem["message"]


def test_all_wrong_fields_at_once_each_with_its_path(relay: Client) -> None:
    body = {
        "nme": "x",
        "timeout_minutes": "ten",
        "labels": {"ok": "a", "bad": 1},
        "limits": {"memory": 1, "processes": -1},
        "args": ["a", 2, "b", None],
        "env": {"A=B": "1", "C": "\0", "": None},
    }
    told = fields_of(relay.post("/sessions", body).refused("INVALID_REQUEST", 400))
    assert told.keys() == {
        *("nme", "timeout_minutes", "labels.bad", "limits.memory", "limits.processes"),
        *("args[1]", "args[3]", "env.A=B", "env.C", "env."),
    }
    assert told["nme"] == "unknown field; did you mean name?"
    assert told["limits.memory"] == "unknown field; did you mean memory_bytes?"
    with relay.session() as session:
        body = {"breakpoints": [{"line": 0}, {"file": "/a", "lin": 3}, 5], "linee": 1}
        told = fields_of(session.post("/breakpoints", body).refused("INVALID_REQUEST", 400))
        assert told.keys() == {
            *("breakpoints[0].source.path", "breakpoints[0].line", "breakpoints[1].lin"),
            *("breakpoints[1].line", "breakpoints[2]", "linee"),
        }
        assert "did you mean line?" in told["breakpoints[1].lin"]


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "json", "*/*", ""],
)
def test_another_content_type(relay: Client, content_type: str) -> None:
    error = create(relay, b"{}", content_type).refused("UNSUPPORTED_MEDIA_TYPE", 415)
    assert "application/json" in error["details"]["suggestion"]


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate, gzip"])
def test_a_compressed_body(relay: Client, encoding: str) -> None:
    answer = create(relay, b"{}", **{"Content-Encoding": encoding})
    answer.refused("UNSUPPORTED_MEDIA_TYPE", 415)


@pytest.mark.parametrize(
    "content_type",
    ["application/json; charset=utf-8", "APPLICATION/JSON", "application/merge-patch+json"],
)
def test_every_spelling_of_json(relay: Client, content_type: str) -> None:
    create(relay, b"{}", content_type).ok(201)


# -- what a program could not be given


@pytest.mark.parametrize(
    "body",
    [
        {"script": "/a\0b"},
        {"module": "\0"},
        {"code": "\0"},
        {"script": "/a", "cwd": "\0"},
        {"code": "1", "args": ["\0"]},
        {"code": "1", "python_args": ["\0"]},
        {"code": "1", "python_path": "\0"},
        {"code": "1", "venv": "/a\0"},
        {"code": "1", "pythonpath": ["/a", "\0"]},
        {"code": "1", "env": {"\0": "a"}},
        {"code": "1", "env": {"a=b": "a"}},
        {"code": "1", "env": {"": "a"}},
        {"code": "1", "env": {"A": "\0"}},
    ],
    ids=ascii,
)
def test_no_process_can_be_started_so(relay: Client, body: dict[str, Any]) -> None:
    with relay.session() as session:
        error = session.post("/launch", body).refused("INVALID_REQUEST", 400)
    assert "without NUL" in error["message"]


@pytest.mark.parametrize("host", ["\0", "a" * 100, "a..b", " "], ids=ascii)
def test_no_host_is_called_so(relay: Client, host: str) -> None:
    with relay.session() as session:
        answer = session.post("/attach", {"host": host, "port": 1})
        answer.refused("INVALID_REQUEST" if "\0" in host else "ATTACH_REFUSED")
        assert session.status()["status"] == "created"


def test_no_file_is_called_so(relay: Client) -> None:
    with relay.session() as session:
        body = {"file": "/a\0", "line": 1, "must_exist": True}
        error = session.post("/breakpoints", body).refused("INVALID_REQUEST", 400)
        assert fields_of(error) == {"file": "expected `str` without NUL"}


# -- states and references


def test_wrong_states(relay: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    with relay.session() as session:
        for path in ("/continue", "/step-over", "/terminate", "/detach", "/pause"):
            error = session.post(path).refused("INVALID_SESSION_STATE", 409)
            assert error["details"]["current_state"] == "created"
            assert f"/sessions/{session.id}/launch" in error["details"]["suggestion"]
        session.break_at(program, program["here"])
        session.launch(program)
        session.try_launch(program).refused("INVALID_SESSION_STATE", 409)
        session.resume()
        error = session.post("/evaluate", {"expression": "1"}).refused("INVALID_SESSION_STATE", 409)
        assert error["details"]["current_state"] == "terminated"


def test_stale_and_unknown_references(relay: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    with relay.session() as session:
        session.break_at(program, program["here"])
        session.launch(program)
        listed = session.get("/frames/0/variables").ok()
        (x,) = [one for one in listed["variables"] if one["name"] == "x"]
        session.get(f"/variables/{x['variables_reference']}").ok()
        session.step()
        for reference in (x["variables_reference"], 2**31, 2**70):
            session.get(f"/variables/{reference}").refused("VARIABLE_NOT_FOUND", 404)
        for thread in (2**31, 2**70):
            session.get("/stacktrace", thread_id=thread).refused("THREAD_NOT_FOUND", 404)
        session.get("/frames/999999/variables").refused("FRAME_NOT_FOUND", 404)
        session.get("/frames/1000001/variables").refused("INVALID_PARAMETER", 400)
        session.get("/variables/0").refused("INVALID_PARAMETER", 400)
        session.get("/variables/x").refused("INVALID_PARAMETER", 400)
        session.post("/continue", headers={"If-Stop": "1"}).refused("STOP_CHANGED", 409)
        assert session.line() == program["next"]
        session.get("/breakpoints/bp_999").refused("BREAKPOINT_NOT_FOUND", 404)
        session.delete("/breakpoints/..%2f..").refused("BREAKPOINT_NOT_FOUND", 404)
