"""The OpenAPI document says exactly what the operations table says, and its examples are true."""

from __future__ import annotations

import json
import time
from collections import Counter

import msgspec
from jsonschema import Draft202012Validator

from debug_relay.protocol.docs import openapi as schema
from debug_relay.protocol.docs.examples import EXAMPLES, GROUPS, MEDIA, PATH_VALUES
from debug_relay.protocol.errors import ERRORS, Code
from debug_relay.protocol.models import relay as server
from debug_relay.protocol.models.fields import Result
from debug_relay.protocol.operation_row import Operation, path_variables
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.validation.cross_field_rules import violations
from debug_relay.protocol.validation.params import convert
from tests.kit.cases import in_one_test
from tests.kit.typed import decoded

URL = "http://127.0.0.1:5679/api/v1"
DOCUMENT = schema.openapi("1.2.3", URL)
COMPONENTS = DOCUMENT["components"]
ROUTES = [(row, path) for row in OPERATIONS.values() for path in row.paths]
EXAMPLED = [row for row in OPERATIONS.values() if row.kind != "document"]

each_route = in_one_test(ROUTES)
each_exampled = in_one_test(EXAMPLED)


def node_of(row: Operation, path: str) -> dict:
    return DOCUMENT["paths"][path][row.verb.lower()]


def resolved(node: dict) -> dict:
    while "$ref" in node:
        found = DOCUMENT
        for part in node["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        node = found
    return node


def parameters(row: Operation, path: str, place: str) -> dict[str, dict]:
    found = [resolved(item) for item in node_of(row, path)["parameters"]]
    return {item["name"]: item for item in found if item["in"] == place}


def body_schema(row: Operation, path: str) -> dict:
    body = node_of(row, path).get("requestBody")
    return resolved(body["content"]["application/json"]["schema"]) if body else {}


def misfits(value: object, fragment: dict) -> list[str]:
    validator = Draft202012Validator({**fragment, "components": COMPONENTS})
    return [error.message for error in validator.iter_errors(value)]


def invalid(document: dict) -> list[str]:
    # Imported here: each process of a run collects all tests.
    from openapi_spec_validator import OpenAPIV31SpecValidator

    return [str(error) for error in OpenAPIV31SpecValidator(document).iter_errors()]


def test_is_valid_openapi():
    assert DOCUMENT["openapi"].startswith("3.1.")
    assert invalid(DOCUMENT) == []


def test_says_version_and_address_as_given():
    assert DOCUMENT["info"]["version"] == "1.2.3"
    assert DOCUMENT["servers"] == [{"url": URL}]


def test_is_json_and_the_same_every_time():
    assert json.loads(json.dumps(DOCUMENT)) == DOCUMENT
    assert json.dumps(schema.openapi("1.2.3", URL)) == json.dumps(DOCUMENT)


def test_has_every_path_of_every_row_and_no_other():
    documented = {(verb, path) for path, item in DOCUMENT["paths"].items() for verb in item}
    assert documented == {(row.verb.lower(), path) for row, path in ROUTES}


def test_operation_ids_are_names_and_aliases_add_to_them():
    ids = [node_of(row, path)["operationId"] for row, path in ROUTES]
    assert len(set(ids)) == len(ids)
    for (row, path), operation_id in zip(ROUTES, ids, strict=True):
        if path == row.path:
            assert operation_id == row.name
        else:
            assert operation_id.startswith(row.name + "-")


@each_route
def test_says_what_the_row_says(row, path):
    node = node_of(row, path)
    assert node["tags"] == [row.group]
    assert node["summary"] == (row.words or row.params.__doc__).strip().splitlines()[0]
    assert node["x-scope"] == row.scope
    assert set(node.get("x-states", ())) == (set(row.states) if row.on_session else set())
    assert node["security"] == ([{"bearer": list(row.scopes)}, {}] if row.scope else [])


@each_route
def test_every_field_of_the_params_stands_in_one_place(row, path):
    fields = {field.encode_name: field for field in msgspec.structs.fields(row.params)}
    variables = path_variables(path)
    in_path, in_query = parameters(row, path, "path"), parameters(row, path, "query")
    in_body = body_schema(row, path).get("properties", {})
    assert sorted(in_path) == sorted(variables)
    assert sorted([*in_path, *in_query, *in_body]) == sorted(fields)
    assert not (in_query if row.verb in ("POST", "PUT", "PATCH") else in_body)
    assert all(item["required"] for item in in_path.values())
    assert all(item["required"] is fields[name].required for name, item in in_query.items())


@each_route
def test_a_body_is_required_only_where_a_field_is(row, path):
    node, fields = node_of(row, path), body_schema(row, path)
    if not fields:
        assert "requestBody" not in node
        return
    missing = {
        field.encode_name
        for field in msgspec.structs.fields(row.params)
        if field.required and field.encode_name not in path_variables(path)
    }
    assert set(fields.get("required", ())) == missing
    refused = violations(row.params, {}, msgspec.UNSET)
    assert node["requestBody"]["required"] is bool(missing or refused)
    assert fields["additionalProperties"] is False


@each_route
def test_path_and_query_values_are_texts_that_can_be_written(row, path):
    for place in ("path", "query"):
        for item in parameters(row, path, place).values():
            kinds = item["schema"].get("anyOf", [item["schema"]])
            types = {resolved(kind).get("type", "string") for kind in kinds}
            assert types <= {"string", "integer", "number", "boolean"}
            assert item["schema"].get("default", "") is not None


@each_route
def test_headers_stand_where_they_work(row, path):
    expected = {"X-Request-ID", "X-Agent", "X-Human-Front", "X-Lease-Key"}
    expected |= {"Last-Event-ID"} if row.kind == "sse" else set()
    expected |= {"If-Stop"} if row.side == "worker" else set()
    expected |= {"Idempotency-Key"} if Code.IDEMPOTENCY_CONFLICT in row.errors else set()
    assert set(parameters(row, path, "header")) == expected


@each_route
def test_every_error_stands_under_its_status(row, path):
    documented = set()
    for status, response in node_of(row, path)["responses"].items():
        if int(status) < 400:
            continue
        content = resolved(response)["content"]["application/json"]
        # Where data may come under the same status, the refusal is the other of the two.
        refusal = content["schema"].get("oneOf", [content["schema"]])[-1]
        only = refusal["properties"]["error"]["properties"]["code"]["enum"]
        assert sorted(only) == sorted(content["examples"])
        assert {ERRORS[Code(code)].status for code in only} == {int(status)}
        documented |= set(only)
        for code, example in content["examples"].items():
            reply = resolved(example)["value"]
            assert reply["error"]["code"] == code
            assert misfits(reply, content["schema"]) == []
    assert documented == {code.value for code in row.all_errors}


def test_every_code_has_an_example_from_the_catalogue():
    for code in Code:
        error = COMPONENTS["examples"][code.value]["value"]["error"]
        assert error["message"] == ERRORS[code].meaning
        assert error["details"]["suggestion"] == ERRORS[code].suggestion


@each_route
def test_success_is_the_rows_status_and_format(row, path):
    responses = node_of(row, path)["responses"]
    good = [status for status in responses if int(status) < 400]
    if row.kind == "websocket":
        assert good == ["101"]
        return
    assert good == [str(row.status)]
    content = responses[good[0]]["content"]
    text = ["text/plain", "text/markdown"] if row.kind == "json" else []
    assert list(content) == [MEDIA.get(row.name, "application/json"), *text]
    if row.kind == "json":
        envelope = content["application/json"]["schema"]
        assert envelope["required"] == ["success", "data", "error", "meta"]
        data = resolved(envelope["properties"]["data"])
        assert set(data["properties"]) == set(row.result.__struct_encode_fields__)


@each_exampled
def test_the_request_example_converts_to_the_params(row):
    request = EXAMPLES[row.name].request
    for path in row.paths:
        values = {name: str(PATH_VALUES[name]) for name in path_variables(path)}
        rest = {name: value for name, value in request.items() if name not in values}
        if row.verb in ("GET", "DELETE"):
            texts = {
                name: json.dumps(value) if isinstance(value, bool) else str(value)
                for name, value in rest.items()
            }
            convert(row.params, values, texts, {})
        else:
            convert(row.params, values, {}, rest)


@each_exampled
def test_the_reply_example_converts_to_the_result(row):
    data = EXAMPLES[row.name].data
    decoded(row, data)  # it fails for names that the Struct does not know


@each_route
def test_examples_fit_the_schemas_beside_them(row, path):
    node = node_of(row, path)
    for place in ("path", "query", "header"):
        for item in parameters(row, path, place).values():
            if "example" in item:
                assert misfits(item["example"], item["schema"]) == []
    contents = [node.get("requestBody", {}).get("content", {})]
    contents += [resolved(response).get("content", {}) for response in node["responses"].values()]
    for media in (media for content in contents for media in content.values()):
        if "example" in media:
            assert misfits(media["example"], media["schema"]) == []


def test_a_body_that_breaks_a_rule_between_fields_does_not_fit_the_schema():
    for name, body in (
        ("attach", {"pid": 1, "port": 2}),
        ("attach", {"pid": 1, "host": "h"}),
        ("attach", {"port": 1, "wait_seconds": 2}),
        ("create-session", {"script": "/a.py"}),
        ("create-session", {"mode": "launch", "script": "/a.py", "pid": 1}),
        ("create-session", {"mode": "launch", "adapter": "gdbserver", "script": "/a.py"}),
        ("create-session", {"mode": "attach", "pid": 1, "port": 2}),
        ("create-session", {"timeout_minutes": 1, "idle_timeout": 60}),
        ("import-session", {"watches": []}),
        ("import-session", {"config": {"project_root": "relative"}}),
        ("import-session", {"breakpoints": [{"line": 1}]}),
        ("input", {"eof": False}),
        ("launch", {"script": "/a.py", "module": "m"}),
        ("launch", {"script": "/a.py", "program": "/bin/true"}),
        ("launch", {"script": "/a.py", "console": "externalTerminal"}),
        ("patch-session", {"project_root": "relative"}),
        ("put-profile", {"breakpoints": [{"file": "/a.py", "line": 1, "text": "x"}]}),
        ("run", {}),
        ("run", {"code": "1", "trace": {"at": [{"line": 1}]}}),
        ("set-breakpoints", {"line": 1}),
        ("set-breakpoints", {"file": "/a.py", "line": 1, "breakpoints": [{"function": "f"}]}),
        ("set-breakpoints", {"file": "/a.py", "text": "x", "expected_text": "x"}),
        ("set-breakpoints", {"file": "/a.py", "line": 1, "in": {"function": "f"}}),
        ("set-breakpoints", {"watch": "x"}),
        ("set-breakpoints", {"watch": "x", "in": {"function": "f", "files": ["/a.py"]}}),
        ("trace", {"at": [], "step": None}),
    ):
        row = OPERATIONS[name]
        assert violations(row.params, body, None), name
        assert misfits(body, body_schema(row, row.path)), name


def test_examples_belong_to_rows():
    assert set(EXAMPLES) == {row.name for row in EXAMPLED}
    assert set(GROUPS) == {row.group for row in OPERATIONS.values()}
    assert set(MEDIA) == {
        row.name for row in OPERATIONS.values() if row.kind in ("document", "sse", "mcp")
    }


def test_rows_that_share_a_params_have_words_of_their_own():
    shared = Counter(row.params for row in OPERATIONS.values())
    wordless = [row.name for row in OPERATIONS.values() if shared[row.params] > 1]
    assert [name for name in wordless if not OPERATIONS[name].words] == []


def test_every_parameter_has_words():
    for row in OPERATIONS.values():
        _, found = msgspec.json.schema_components([row.params], ref_template="{name}")
        for name, struct in found.items():
            bare = [field for field, of in struct.get("properties", {}).items() if not worded(of)]
            assert bare == [], f"{name} of {row.name}"


def worded(field: dict) -> bool:
    return any(kind.get("description") for kind in (field, *field.get("anyOf", ())))


def test_no_path_is_elsewhere_than_the_document_says():
    assert not any("servers" in node_of(row, path) for row, path in ROUTES)


def test_the_health_that_is_not_well_is_documented():
    reply = resolved(node_of(OPERATIONS["health"], "/health")["responses"]["503"])
    fragment = reply["content"]["application/json"]["schema"]
    data = {**EXAMPLES["health"].data, "status": "unhealthy"}
    meta = {"request_id": "r", "timestamp": "2026-01-13T10:30:00.123Z"}
    envelope = {"success": True, "data": data, "error": None, "meta": meta}
    assert misfits(envelope, fragment) == []
    assert misfits({**envelope, "data": None}, fragment)


def test_structs_of_one_name_do_not_collide(monkeypatch):
    class Health(Result, kw_only=True):
        pulse: int

    row = msgspec.structs.replace(OPERATIONS["info"], name="pulse", result=Health)
    monkeypatch.setattr(schema, "OPERATIONS", {"health": OPERATIONS["health"], "info": row})
    document = schema.openapi("1.2.3", URL)

    def fields(path: str) -> set[str]:
        reply = document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]
        name = reply["schema"]["properties"]["data"]["$ref"].rpartition("/")[2]
        return set(document["components"]["schemas"][name]["properties"])

    assert fields("/info") == {"pulse"}
    assert fields("/health") == set(server.Health.__struct_fields__)
    assert invalid(document) == []


def test_is_built_while_a_caller_waits():
    # Time of the processor, the best of a few: what else the machine does is not the builder's.
    def once() -> float:
        begin = time.process_time()
        schema.openapi("1.2.3", URL)
        return time.process_time() - begin

    assert min(once() for _ in range(5)) < 0.2
