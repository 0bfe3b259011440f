"""From verb and path to the operation, over the real table."""

from __future__ import annotations

import time
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.operation_row import path_variables
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.version import API_PREFIX
from debug_relay.supervisor.http.router import ROOT_OPERATIONS, Router
from tests.kit.cases import in_one_test

ROUTER = Router(OPERATIONS, API_PREFIX)
ROUTES = [(op, path) for op in OPERATIONS.values() for path in op.paths if path != "/"]


def refusal(method: str, path: str) -> RelayError:
    with pytest.raises(RelayError) as caught:
        ROUTER.match(method, path)
    return caught.value


@in_one_test(ROUTES)
def test_every_route_is_found(operation, path: str) -> None:
    values = {name: f"v-{name}" for name in path_variables(path)}
    filled = API_PREFIX + path.format(**values)
    assert ROUTER.match(operation.verb, filled) == (operation, values)
    assert ROUTER.match(operation.verb, filled + "/") == (operation, values)
    assert ROUTER.match(operation.verb, filled + "?a=/b") == (operation, values)


@pytest.mark.parametrize("name", ROOT_OPERATIONS)
def test_root_operations(name: str) -> None:
    operation = OPERATIONS[name]
    assert ROUTER.match(operation.verb, operation.path).operation is operation


@pytest.mark.parametrize("path", ["/", API_PREFIX, API_PREFIX + "/"])
def test_the_index_is_the_entrance(path: str) -> None:
    assert ROUTER.match("GET", path).operation.name == "index"
    assert ROUTER.match("HEAD", path + "?pretty").operation.name == "index"
    assert refusal("POST", path).details["allow"] == ["GET", "HEAD"]


def test_other_operations_need_the_prefix() -> None:
    error = refusal("GET", "/health")
    assert error.code is Code.NOT_FOUND
    assert error.details["closest"] == "GET /api/v1/health"


def test_head_is_get() -> None:
    assert ROUTER.match("HEAD", "/api/v1/health").operation.name == "health"


def test_literals_come_before_variables() -> None:
    assert ROUTER.match("POST", "/api/v1/sessions/import").operation.name == "import-session"
    assert refusal("GET", "/api/v1/sessions/import").code is Code.METHOD_NOT_ALLOWED


def test_a_literal_that_leads_nowhere_gives_way_to_the_variable() -> None:
    operation, values = ROUTER.match("GET", "/api/v1/sessions/import/status")
    assert (operation.name, values) == ("session-status", {"session_id": "import"})


@pytest.mark.parametrize(
    ("sent", "value"),
    [
        ("a%2Fb", "a/b"), ("a%2fb", "a/b"), ("%2E%2E", ".."), ("..", ".."), ("a%20b", "a b"),
        ("a+b", "a+b"), ("%C3%A4", "ä"), ("ä", "ä"), ("%25", "%"), ("%2525", "%25"), ("%00", "\0"),
        ("%3F", "?"), ("a;b=c", "a;b=c"),
    ],
)  # fmt: skip
def test_percent_decoding_is_per_segment(sent: str, value: str) -> None:
    assert ROUTER.match("GET", f"/api/v1/breakpoint-profiles/{sent}").path_values == {"name": value}


@given(st.text(min_size=1).filter(lambda text: text.strip("/")))
def test_any_quoted_value_comes_back(value: str) -> None:
    path = f"/api/v1/breakpoint-profiles/{quote(value, safe='')}"
    assert ROUTER.match("PUT", path).path_values == {"name": value}


@pytest.mark.parametrize("sent", ["%ff", "%C3", "%C3%28", "%zz", "%", "%2", "a\udcff", "%ED%A0%80"])
def test_broken_encoding(sent: str) -> None:
    error = refusal("GET", f"/api/v1/sessions/{sent}/status")
    assert error.code is Code.INVALID_PARAMETER
    assert error.details["errors"][0].field == "path"


@pytest.mark.parametrize(
    "path",
    [
        "", "//", "///", "*", "api/v1/health", "/api", "/api/v1//", "/api/v1//health",
        "/api/v1/health//", "/api/v1/sessions//status", "/api/v1/./health", "/api/v1/../v1/health",
        "/API/v1/health", "/api/v1/health%2F", "/api/v1/%2Fhealth", "/api%2Fv1/health",
        "/api/v1/health/x", "http://127.0.0.1:5679/api/v1/health", "/" * 8000,
        "/api/v1" + "/a" * 4000,
    ],
)  # fmt: skip
def test_unknown_paths(path: str) -> None:
    error = refusal("GET", path)
    assert error.code is Code.NOT_FOUND
    verb, closest = error.details["closest"].split(" ")
    assert closest in {API_PREFIX, *(API_PREFIX + op_path for _, op_path in ROUTES)}
    assert verb in error.details["suggestion"]
    assert len(error.message) < 300


@pytest.mark.parametrize(
    ("method", "path", "closest", "shown"),
    [
        ("GET", "/api/v1/heatlh", "GET /api/v1/health", "GET /api/v1/health"),
        (
            "GET",
            "/api/v1/sessions/sess_12/stauts",
            "GET /api/v1/sessions/{session_id}/status",
            "GET /api/v1/sessions/sess_12/status",
        ),
        (
            "POST",
            "/api/v1/session/sess_12/continue",
            "POST /api/v1/sessions/{session_id}/continue",
            "POST /api/v1/sessions/sess_12/continue",
        ),
        (
            "DELETE",
            "/sessions/sess_12/breakpoint/bp_1",
            "DELETE /api/v1/sessions/{session_id}/breakpoints/{breakpoint_id}",
            "DELETE /api/v1/sessions/sess_12/breakpoints/bp_1",
        ),
        (
            "POST",
            "/api/v1/sessions/s/stepover",
            "POST /api/v1/sessions/{session_id}/step-over",
            "POST /api/v1/sessions/s/step-over",
        ),
    ],
)
def test_the_closest_route(method: str, path: str, closest: str, shown: str) -> None:
    details = refusal(method, path).details
    assert details["closest"] == closest
    assert shown in details["suggestion"]


@pytest.mark.parametrize(
    ("method", "path", "shown"),
    [
        ("POST", "/api/v1/sessions/s/next", "POST /api/v1/sessions/s/step-over;"),
        ("POST", "/api/v1/sessions/s/step", "POST /api/v1/sessions/s/step-over;"),
        ("POST", "/sessions/s/stepInto", "POST /api/v1/sessions/s/step-into;"),
        ("POST", "/v1/sessions/s/finish", "POST /api/v1/sessions/s/step-out;"),
        ("POST", "/api/v1/sessions/s/resume", "POST /api/v1/sessions/s/continue;"),
        ("POST", "/api/v1/sessions/s/stop", "POST /api/v1/sessions/s/pause;"),
        ("POST", "/api/v1/sessions/s/kill", "POST /api/v1/sessions/s/terminate;"),
        ("POST", "/api/v1/sessions/s/break", "POST /api/v1/sessions/s/breakpoints;"),
        ("GET", "/api/v1/sessions/s/locals", "GET /api/v1/sessions/s/frames/0/variables;"),
        ("GET", "/api/v1/sessions/s/frames/3/vars", "GET /api/v1/sessions/s/frames/3/variables;"),
        ("POST", "/api/v1/sessions/s/eval", "POST /api/v1/sessions/s/evaluate;"),
        ("GET", "/api/v1/sessions/s/bt", "GET /api/v1/sessions/s/stacktrace;"),
        ("GET", "/api/v1/sessions/s/log", "GET /api/v1/sessions/s/output;"),
        (
            "POST",
            "/api/v1/sessions/s/threads/4/next",
            "POST /api/v1/sessions/s/threads/4/step-over;",
        ),
        ("POST", "/attach", 'POST /api/v1/sessions {"mode": "attach", "pid": PID};'),
        ("GET", "/api/v1/sessions/s/wait", "GET /api/v1/sessions/s/snapshot?wait=30;"),
        ("GET", "/api/v1/sessions/s/stacks", "GET /api/v1/sessions/s/stacktrace;"),
        ("GET", "/api/v1/events/stream", "GET /api/v1/sessions/{session_id}/"),
        ("POST", "/api/v1/next", "POST /api/v1/sessions/{session_id}/step-over;"),
        ("GET", "/breakpoints", "GET /api/v1/sessions/{session_id}/breakpoints;"),
        ("GET", "/healthz", "GET /api/v1/health;"),
        ("GET", "/api/v1/ps", "GET /api/v1/processes;"),
    ],
)
def test_a_word_of_another_debugger_names_the_call(method: str, path: str, shown: str) -> None:
    error = refusal(method, path)
    assert error.code is Code.NOT_FOUND
    assert f"Probably meant: {shown}" in error.details["suggestion"]


def closest_to(method: str, path: str) -> str | None:
    try:
        ROUTER.match(method, path)
    except RelayError as error:
        return error.details.get("closest")
    return None


def test_each_suggestion_is_a_route() -> None:
    works = {f"{op.verb} {API_PREFIX}{path}" for op, path in ROUTES}
    for path in {path for _, path in ROUTES}:
        for near in (path + "s", path + "/x", "/v1" + path, path.replace("id}/", "id}/my-")):
            for method in ("GET", "POST"):
                closest = closest_to(method, API_PREFIX + near)
                assert closest is None or closest in works, near


def test_the_closest_route_is_found_in_bounded_time() -> None:
    begun = time.perf_counter()
    for _ in range(10):
        refusal("GET", "/api/v1/sessions/" + "a/b{c}" * 1000)
    assert time.perf_counter() - begun < 1.0


def test_wrong_verb() -> None:
    error = refusal("PUT", "/api/v1/sessions")
    assert error.code is Code.METHOD_NOT_ALLOWED
    assert error.details["allow"] == ["GET", "HEAD", "POST"]
    assert refusal("GET", "/api/v1/shutdown").details["allow"] == ["POST"]


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "CONNECT", "get", "FOO"])
def test_verbs_that_nothing_takes(method: str) -> None:
    assert refusal(method, "/api/v1/health").code is Code.METHOD_NOT_ALLOWED
