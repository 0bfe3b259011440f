"""The operations table for readers: OpenAPI 3.1 for machines, a Markdown page for people.

Everything is derived from the table, its Structs and the error catalogue; nothing about an
operation is decided here. Knows no server: who serves the document says version and address.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from debug_relay.protocol.errors import COMMON, COMMON_SESSION, ERRORS, Code
from debug_relay.protocol.examples import (
    EXAMPLES,
    GROUPS,
    HEADERS,
    MEDIA,
    MOMENT,
    PATH_VALUES,
    REPLY_HEADERS,
    REQUEST_ID,
    WORDS,
    Example,
)
from debug_relay.protocol.fields import Time
from debug_relay.protocol.operations import OPERATIONS, Operation, path_variables
from debug_relay.protocol.state import ANY, State
from debug_relay.protocol.version import API_PREFIX, VERSION

_Node = dict[str, Any]
_JSON: Final = "application/json"
_SCHEMAS: Final = "#/components/schemas/"
_NULL: Final = {"type": "null"}
_META: Final = {"request_id": REQUEST_ID, "timestamp": MOMENT}


class ReplyMeta(Struct, kw_only=True):
    """What every reply says about itself."""

    request_id: Annotated[str, Meta(description="As sent in X-Request-ID, or made.")]
    timestamp: Time


class Failure(Struct, kw_only=True):
    """Why a call was refused, and what to do next."""

    code: Code
    message: str
    details: Annotated[
        dict[str, Any],
        Meta(description="`suggestion` says what to call or change next, with real values."),
    ]


class _Components:
    """What the operations share, by name."""

    def __init__(self) -> None:
        kinds: dict[Any, None] = {ReplyMeta: None, Failure: None}
        for row in OPERATIONS.values():
            kinds |= {row.params: None, row.result: None}
        # Structs of one name in two modules are told apart there: both get their full names.
        refs, self.schemas = msgspec.json.schema_components(kinds, ref_template=_SCHEMAS + "{name}")
        self.refs: dict[type, _Node] = dict(zip(kinds, refs, strict=True))
        reply = self.envelope(False, _NULL, self.refs[Failure])
        self._refusal = self.shared("ErrorReply", reply)
        self._names = {key: f"Common{key[0]}" for key in _by_status(COMMON)}
        for key in _by_status(COMMON | COMMON_SESSION):
            self._names.setdefault(key, f"Session{key[0]}")
        self.responses = {name: self._refuse(*key) for key, name in self._names.items()}

    def name(self, kind: type) -> str:
        return str(self.refs[kind]["$ref"]).removeprefix(_SCHEMAS)

    def fields(self, kind: type) -> _Node:
        return dict(self.schemas[self.name(kind)])

    def shared(self, name: str, schema: _Node) -> _Node:
        """A reference to `schema` under `name`; where the name is another's, `schema` itself."""
        kept = self.schemas.setdefault(name, schema)
        return {"$ref": _SCHEMAS + name} if kept == schema else schema

    def used_by(self, node: Any) -> dict[str, _Node]:
        found: set[str] = set()
        waiting = list(_references(node))
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += _references(self.schemas[name])
        return {name: schema for name, schema in self.schemas.items() if name in found}

    def envelope(self, success: bool, data: _Node, error: _Node) -> _Node:
        meta = self.refs[ReplyMeta]
        fields = {"success": {"const": success}, "data": data, "error": error, "meta": meta}
        return {"type": "object", "required": list(fields), "properties": fields}

    def refusal(self, status: int, codes: frozenset[Code]) -> _Node:
        name = self._names.get((status, codes))
        return {"$ref": f"#/components/responses/{name}"} if name else self._refuse(status, codes)

    def _refuse(self, status: int, codes: frozenset[Code]) -> _Node:
        ordered = [code for code in Code if code in codes]
        only = {"error": {"properties": {"code": {"enum": [code.value for code in ordered]}}}}
        retry = ["Retry-After"] if Code.SHUTTING_DOWN in codes else []
        examples = {code.value: {"$ref": f"#/components/examples/{code}"} for code in ordered}
        return {
            "description": "\n".join(f"- `{code}`: {ERRORS[code].meaning}" for code in ordered),
            "headers": _reply_headers("X-Request-ID", *retry),
            "content": {
                _JSON: {
                    "schema": {"allOf": [self._refusal], "properties": only},
                    "examples": examples,
                }
            },
        }


def _by_status(codes: Iterable[Code]) -> list[tuple[int, frozenset[Code]]]:
    groups: dict[int, set[Code]] = {}
    for code in codes:
        groups.setdefault(ERRORS[code].status, set()).add(code)
    return [(status, frozenset(groups[status])) for status in sorted(groups)]


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        ref = node.get("$ref")
        if isinstance(ref, str) and ref.startswith(_SCHEMAS):
            yield ref.removeprefix(_SCHEMAS)
        node = list(node.values())
    if isinstance(node, list):
        for value in node:
            yield from _references(value)


def _reply_headers(*names: str) -> _Node:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def openapi(version: str, url: str) -> dict[str, Any]:
    """The OpenAPI document; `url` is the base address, such as http://127.0.0.1:5679/api/v1."""
    parts = _Components()
    paths: _Node = {}
    for row in OPERATIONS.values():
        for path in row.paths:
            paths.setdefault(path, {})[row.verb.lower()] = _operation(row, path, parts)
    groups = dict.fromkeys(row.group for row in OPERATIONS.values())
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "OpenCode Debug Relay",
            "version": version,
            "description": "Drive interactive debuggers over HTTP. What is marked "
            "`x-implemented: false` answers 501 NOT_IMPLEMENTED.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": url}],
        "tags": [{"name": group, "description": GROUPS[group]} for group in groups],
        "paths": paths,
        "components": {
            "schemas": parts.used_by([paths, parts.responses]),
            "responses": parts.responses,
            "examples": {code.value: _error_example(code) for code in Code},
            "parameters": {name: _header(name) for name in HEADERS},
            "headers": REPLY_HEADERS,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _header(name: str) -> _Node:
    description, schema = HEADERS[name]
    return {"name": name, "in": "header", "description": description, "schema": schema}


def _error_example(code: Code) -> _Node:
    row = ERRORS[code]
    details = {"suggestion": row.suggestion}
    error = {"code": code.value, "message": row.meaning, "details": details}
    reply = {"success": False, "data": None, "error": error, "meta": _META}
    return {"summary": row.meaning, "value": reply}


def _operation(row: Operation, path: str, parts: _Components) -> _Node:
    node: _Node = {
        "operationId": _operation_id(row, path),
        "summary": _doc(row).splitlines()[0],
        "description": _description(row),
        "tags": [row.group],
        # Tokens are needed only where some are configured, hence the empty alternative.
        "security": [{"bearer": [row.scope]}, {}] if row.scope else [],
        "parameters": list(_parameters(row, path, parts)),
        "responses": dict([_success(row, parts)])
        | {str(key[0]): parts.refusal(*key) for key in _by_status(row.all_errors)},
        "x-implemented": row.implemented,
        "x-scope": row.scope,
    }
    if row.on_session:
        node["x-states"] = [state.value for state in State if state in row.states]
    body = _body(row, path, parts)
    return {**node, "requestBody": body} if body else node


def _operation_id(row: Operation, path: str) -> str:
    """The name; an alias adds the parts of its path that the row's own path has not."""
    if path == row.path:
        return row.name
    own = row.path.split("/")
    new = [part for part in path.split("/") if part not in own]
    words = [part for part in new if not part.startswith("{")] or path_variables(path)[-1:]
    return "-".join([row.name, *words]).replace("_", "-")


def _doc(row: Operation) -> str:
    return inspect.cleandoc(row.params.__doc__ or row.name)


def _description(row: Operation) -> str:
    parts = [WORDS.get(row.name) or _doc(row)]
    if row.on_session and row.states != ANY:
        states = " or ".join(f"`{state.value}`" for state in State if state in row.states)
        parts.append(f"Legal while the session is {states}.")
    if not row.implemented:
        parts.append("Not implemented yet: answers 501 NOT_IMPLEMENTED.")
    return "\n\n".join(parts)


def _parameters(row: Operation, path: str, parts: _Components) -> Iterator[_Node]:
    variables = path_variables(path)
    fields = parts.fields(row.params)
    values = _example(row).request
    for name in variables:
        yield _parameter(name, "path", fields["properties"][name], True, PATH_VALUES.get(name))
    if row.verb in ("GET", "DELETE"):
        for name in (name for name in fields["properties"] if name not in variables):
            required = name in fields.get("required", ())
            yield _parameter(name, "query", fields["properties"][name], required, values.get(name))
    headers = ["X-Request-ID", "X-Agent"]
    headers += ["If-Stop"] if row.drives else []
    headers += ["Idempotency-Key"] if Code.IDEMPOTENCY_CONFLICT in row.errors else []
    yield from ({"$ref": f"#/components/parameters/{name}"} for name in headers)


def _parameter(name: str, place: str, field: _Node, required: bool, example: Any) -> _Node:
    """A field as text: it cannot say null, and what is required has no default."""
    kinds = [kind for kind in field.get("anyOf", ()) if kind != _NULL]
    schema = {key: value for key, value in field.items() if key != "anyOf"}
    if len(kinds) == 1:
        schema = {**kinds[0], **schema}
    elif kinds:
        schema["anyOf"] = kinds
    if required or schema.get("default") is None:
        schema.pop("default", None)
    node = {"name": name, "in": place, "required": required, "schema": schema}
    if "description" in schema:
        node["description"] = schema.pop("description")
    return node if example is None else {**node, "example": example}


def _body(row: Operation, path: str, parts: _Components) -> _Node | None:
    variables = path_variables(path)
    fields = parts.fields(row.params)
    properties = {k: v for k, v in fields["properties"].items() if k not in variables}
    if row.verb in ("GET", "DELETE") or not properties:
        return None
    required = [name for name in fields.get("required", ()) if name not in variables]
    name = parts.name(row.params) + "Body"
    schema = {**fields, "title": name, "properties": properties, "required": required}
    if not required:
        del schema["required"]
    example = {k: v for k, v in _example(row).request.items() if k not in variables}
    media = {"schema": parts.shared(name, schema), "example": example}
    return {"required": bool(required), "content": {_JSON: media}}


def _example(row: Operation) -> Example:
    return EXAMPLES.get(row.name) or Example()


def _success(row: Operation, parts: _Components) -> tuple[str, _Node]:
    node: _Node = {"description": "Success.", "headers": _reply_headers("X-Request-ID")}
    if row.kind == "websocket":
        # The row's status is that of a reply; an upgrade answers 101.
        return "101", {**node, "description": "From here on the connection speaks WebSocket."}
    media, schema = MEDIA.get(row.name, _JSON), {"type": "string"}
    content: _Node = {"schema": {"type": "object"} if media == _JSON else schema}
    if row.kind == "json":
        data = _example(row).data
        content["schema"] = parts.envelope(True, parts.refs[row.result], _NULL)
        content["example"] = {"success": True, "data": data, "error": None, "meta": _META}
    return str(row.status), {**node, "content": {media: content}}


_HEAD: Final = """# Reference

Every operation of the relay. Paths stand under `{prefix}`. JSON replies are the envelope
`success`, `data`, `error`, `meta`; "Reply" names what stands in `data`, and its fields are listed
under [Types](#types). Any call may carry `X-Request-ID` and `X-Agent`.

Made from the operations table by `python -m debug_relay.protocol.schema > docs/reference.md`:
change the table, not this page."""


def reference() -> str:
    """The reference page: every operation by group, the errors, the types."""
    document = openapi(VERSION, f"http://127.0.0.1:5679{API_PREFIX}")
    blocks = [_HEAD.format(prefix=API_PREFIX)]
    for tag in document["tags"]:
        blocks.append(f"## {tag['name'].capitalize()}\n\n{tag['description']}")
        rows = [row for row in OPERATIONS.values() if row.group == tag["name"]]
        blocks += [_entry(row, document) for row in rows]
    blocks += ["## Errors", _errors(), "## Types", *_types(document["components"]["schemas"])]
    return "\n\n".join(blocks) + "\n"


def _entry(row: Operation, document: _Node) -> str:
    node = document["paths"][row.path][row.verb.lower()]
    mark = "" if row.implemented else " (not implemented yet)"
    lines = [f"### {row.name}{mark}", f"`{row.verb} {row.path}`"]
    if row.aliases:
        lines.append("Also " + _codes(f"{row.verb} {path}" for path in row.aliases) + ".")
    lines += [node["description"], f"Scope: {f'`{row.scope}`' if row.scope else 'none'}."]
    table = list(_sent(node, document["components"]))
    if table:
        lines.append(_table("Parameter | In | Type | Default | Meaning", table))
    lines.append(_reply(row, node, document["components"]["schemas"]))
    own = _codes(code.value for code in Code if code in row.errors)
    usual = "those of any call on a session" if row.on_session else "those of any call"
    lines.append(f"[Errors](#errors): {own + ', and ' if own else ''}{usual}.")
    return "\n\n".join(lines)


def _sent(node: _Node, known: _Node) -> Iterator[list[str]]:
    for given in node["parameters"]:
        item = _resolved(given, known["parameters"])
        if item["name"] not in ("X-Request-ID", "X-Agent"):
            field = {**item["schema"], "description": item.get("description", "")}
            yield _field(item["name"], field, item.get("required", False), item["in"])
    if "requestBody" in node:
        body = _resolved(node["requestBody"]["content"][_JSON]["schema"], known["schemas"])
        for name, field in body["properties"].items():
            yield _field(name, field, name in body.get("required", ()), "body")


def _reply(row: Operation, node: _Node, schemas: _Node) -> str:
    if row.kind != "json":
        return f"Reply: `{MEDIA[row.name]}`." if row.name in MEDIA else "Reply: 101, a WebSocket."
    data = node["responses"][str(row.status)]["content"][_JSON]["schema"]["properties"]["data"]
    return f"Reply: {row.status}, {_type(data)}: {_codes(_resolved(data, schemas)['properties'])}."


def _errors() -> str:
    table = []
    for code, row in ERRORS.items():
        by = "any call" if code in COMMON else "any session call" if code in COMMON_SESSION else ""
        again = "yes" if row.retry else ""
        table.append([f"`{code}`", str(row.status), by, again, row.meaning, row.suggestion])
    return _table("Code | Status | May come from | Retry | Meaning | What to do", table)


def _types(schemas: _Node) -> Iterator[str]:
    bodies = {f"{row.params.__name__}Body" for row in OPERATIONS.values()}
    for name, schema in sorted(schemas.items()):
        if "enum" in schema and name != Code.__name__:
            yield f"### `{name}`\n\nOne of {_type(schema)}."
        elif schema.get("properties") and name.rpartition(".")[2] not in bodies:
            words = [schema["description"]] if "description" in schema else []
            fields = [
                _field(key, field, key in schema.get("required", ()))
                for key, field in schema["properties"].items()
            ]
            table = _table("Field | Type | Default | Meaning", fields)
            yield "\n\n".join([f"### `{name}`", *words, table])


def _field(name: str, schema: _Node, required: bool, *place: str) -> list[str]:
    inner = [schema, *schema.get("anyOf", ())]
    words = next((kind["description"] for kind in inner if kind.get("description")), "")
    default = schema.get("default")
    shown = "required" if required else "" if default is None else f"`{json.dumps(default)}`"
    return [f"`{name}`", *place, _type(schema), shown, words]


def _type(schema: _Node) -> str:
    """A schema in a few words, such as `integer (1 to 1000) or null`."""
    if "$ref" in schema:
        return f"`{_last(schema)}`"
    if "enum" in schema or "const" in schema:
        return _codes(json.dumps(value) for value in schema.get("enum", [schema.get("const")]))
    if "anyOf" in schema:
        return " or ".join(_type(kind) for kind in schema["anyOf"])
    text = str(schema.get("type", "any"))
    if text == "array":
        text = "list of " + _type(schema.get("items", {}))
    elif isinstance(schema.get("additionalProperties"), dict):
        text = "object of " + _type(schema["additionalProperties"])
    return text + _bounds(schema)


def _bounds(schema: _Node) -> str:
    low = [schema[key] for key in ("minimum", "minLength", "minItems") if key in schema]
    high = [schema[key] for key in ("maximum", "maxLength", "maxItems") if key in schema]
    unit = {"string": " characters", "array": " entries"}.get(schema.get("type", ""), "")
    words = [f"{low[0]} to {high[0]}{unit}"] if low and high else []
    if not words:
        words += [f"at least {value}{unit}" for value in low]
        words += [f"at most {value}{unit}" for value in high]
    if "exclusiveMinimum" in schema:
        words.insert(0, f"over {schema['exclusiveMinimum']}")
    if "pattern" in schema:
        words.append(f"`{schema['pattern']}`")
    return f" ({', '.join(words)})" if words else ""


def _resolved(node: _Node, known: _Node) -> _Node:
    return dict(known[_last(node)]) if "$ref" in node else node


def _last(node: _Node) -> str:
    return str(node["$ref"]).rpartition("/")[2]


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _table(head: str, rows: list[list[str]]) -> str:
    lines = [f"| {head} |", "| " + " | ".join("---" for _ in head.split(" | ")) + " |"]
    escaped = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in escaped])


if __name__ == "__main__":
    # Bytes: the page is UTF-8 whatever the terminal's locale says.
    sys.stdout.buffer.write(reference().encode())
