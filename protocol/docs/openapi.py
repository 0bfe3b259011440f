"""The OpenAPI 3.1 document, generated from the operations table.

Everything comes from the table, its Structs and the error catalogue; this module decides nothing
about an operation. The supervisor serves the document and passes its own version and address.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Struct

from debug_relay.protocol.docs.examples import (
    EXAMPLES,
    GROUPS,
    HEADERS,
    MEDIA,
    MOMENT,
    PATH_VALUES,
    REPLY_HEADERS,
    REQUEST_ID,
    Example,
)
from debug_relay.protocol.errors import COMMON, COMMON_SESSION, ERRORS, Code
from debug_relay.protocol.models.fields import Result, Time
from debug_relay.protocol.operation_row import Operation, path_variables
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.state import ANY, State
from debug_relay.protocol.validation.body_schema import body_rules, rules_inside
from debug_relay.protocol.validation.cross_field_rules import violations

_Node = dict[str, Any]
_JSON: Final = "application/json"
# Every JSON reply is also available as text: `?format=text`, or the Accept header.
_TEXT: Final[_Node] = {
    "text/plain": {"schema": {"type": "string"}},
    "text/markdown": {"schema": {"type": "string"}},
}
_SCHEMAS: Final = "#/components/schemas/"
_NULL: Final = {"type": "null"}
_META: Final = {"request_id": REQUEST_ID, "timestamp": MOMENT}


class ReplyMeta(Struct, kw_only=True):
    """Metadata of every reply."""

    request_id: Annotated[str, Meta(description="The id from X-Request-ID, or a generated one.")]
    timestamp: Time


class Failure(Struct, kw_only=True):
    """Why a call was refused, and what to do next."""

    code: Code
    message: str
    details: Annotated[
        dict[str, Any],
        Meta(description="`suggestion` names the call to make or the value to change next."),
    ]


class _Components:
    """The schemas, responses and names that the operations share."""

    def __init__(self) -> None:
        kinds: dict[Any, None] = {ReplyMeta: None, Failure: None}
        for row in OPERATIONS.values():
            kinds |= {row.params: None, row.result: None}
        # If two modules have a Struct of the same name, msgspec gives both their full names.
        refs, self.schemas = msgspec.json.schema_components(kinds, ref_template=_SCHEMAS + "{name}")
        for inner, rules in rules_inside():
            self.schemas.get(inner.__name__, {}).update(rules)
        self.refs: dict[type, _Node] = dict(zip(kinds, refs, strict=True))
        for kind in _subclasses(Result):
            schema = self.schemas.get(kind.__name__, {})
            if schema.get("properties", {}).keys() == set(kind.__struct_fields__):
                schema["required"] = list(always_shown(kind))
        reply = self.envelope(False, _NULL, self.refs[Failure])
        self._refusal = self.shared("ErrorReply", reply)
        self._names = {key: f"Common{key[0]}" for key in _by_status(COMMON)}
        for key in _by_status(COMMON | COMMON_SESSION):
            self._names.setdefault(key, f"Session{key[0]}")
        self.responses = {name: self.refuse(*key) for key, name in self._names.items()}

    def name(self, kind: type) -> str:
        return str(self.refs[kind]["$ref"]).removeprefix(_SCHEMAS)

    def fields(self, kind: type) -> _Node:
        return dict(self.schemas[self.name(kind)])

    def shared(self, name: str, schema: _Node) -> _Node:
        """A reference to `schema` under `name`; if another schema has that name, `schema`
        itself.
        """
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
        return {"$ref": f"#/components/responses/{name}"} if name else self.refuse(status, codes)

    def refuse(self, status: int, codes: frozenset[Code]) -> _Node:
        ordered = [code for code in Code if code in codes]
        only = {"error": {"properties": {"code": {"enum": [code.value for code in ordered]}}}}
        # One status may cover several errors, and a retry helps only for some of them.
        retry = ["Retry-After"] if codes == {Code.SHUTTING_DOWN} else []
        examples = {code.value: {"$ref": f"#/components/examples/{code}"} for code in ordered}
        return {
            "description": "\n".join(f"- `{code}`: {ERRORS[code].meaning}" for code in ordered),
            "headers": _reply_headers("X-Request-ID", *retry),
            "content": {
                _JSON: {
                    "schema": {"allOf": [self._refusal], "properties": only},
                    "examples": examples,
                },
                **_TEXT,
            },
        }


def _subclasses(kind: type[Struct]) -> Iterator[type[Struct]]:
    for subclass in kind.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def always_shown(kind: type[Struct]) -> Iterator[str]:
    """The fields that every reply of this type has: msgspec omits the others at their default."""
    for field in msgspec.structs.fields(kind):
        # It omits an empty list, dict or set, but nothing else that a factory makes.
        factory = field.default_factory not in (msgspec.NODEFAULT, list, dict, set)
        if field.required or factory:
            yield field.encode_name


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
            node = _operation(row, path, parts)
            paths.setdefault(path, {})[row.verb.lower()] = node
    groups = dict.fromkeys(row.group for row in OPERATIONS.values())
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "OpenCode Debug Relay",
            "version": version,
            "description": "Drive interactive debuggers over HTTP. A reply leaves out each field "
            "that is not required and is at its default.",
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
        # The empty alternative: a relay without configured tokens asks for none.
        "security": [{"bearer": list(row.scopes)}, {}] if row.scope else [],
        "parameters": list(_parameters(row, path, parts)),
        "responses": _responses(row, parts),
        "x-scope": row.scope,
    }
    if row.on_session:
        node["x-states"] = [state.value for state in State if state in row.states]
    body = _body(row, path, parts)
    return {**node, "requestBody": body} if body else node


def _operation_id(row: Operation, path: str) -> str:
    """The operation's name; for an alias, plus the path segments that the main path does
    not have.
    """
    if path == row.path:
        return row.name
    own = row.path.split("/")
    new = [part for part in path.split("/") if part not in own]
    words = [part for part in new if not part.startswith("{")] or path_variables(path)[-1:]
    return "-".join([row.name, *words]).replace("_", "-")


def _doc(row: Operation) -> str:
    return row.words or inspect.cleandoc(row.params.__doc__ or row.name)


def _description(row: Operation) -> str:
    parts = [_doc(row)]
    if row.on_session and row.states != ANY:
        states = " or ".join(f"`{state.value}`" for state in State if state in row.states)
        parts.append(f"Allowed while the session is {states}.")
    return "\n\n".join(parts)


def _parameters(row: Operation, path: str, parts: _Components) -> Iterator[_Node]:
    variables = path_variables(path)
    fields = parts.fields(row.params)
    values = _example(row).request
    for name in variables:
        yield _parameter(name, "path", fields["properties"][name], True, PATH_VALUES.get(name))
    if not row.takes_body:
        for name in (name for name in fields["properties"] if name not in variables):
            required = name in fields.get("required", ())
            yield _parameter(name, "query", fields["properties"][name], required, values.get(name))
    headers = ["X-Request-ID", "X-Agent", "X-Human-Front", "X-Lease-Key"]
    headers += ["Last-Event-ID"] if row.kind == "sse" else []
    headers += ["If-Stop"] if row.checks_if_stop else []
    headers += ["Idempotency-Key"] if Code.IDEMPOTENCY_CONFLICT in row.errors else []
    yield from ({"$ref": f"#/components/parameters/{name}"} for name in headers)


def _parameter(name: str, place: str, field: _Node, required: bool, example: Any) -> _Node:
    """A field as text: it cannot be null, and a required one has no default."""
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
    if not row.takes_body or not properties:
        return None
    required = [name for name in fields.get("required", ()) if name not in variables]
    name = parts.name(row.params) + "Body"
    own = {"title": name, "properties": properties, "required": required}
    schema = {**fields, **own, **body_rules(row.params)}
    if not required:
        del schema["required"]
    example = {k: v for k, v in _example(row).request.items() if k not in variables}
    media = {"schema": parts.shared(name, schema), "example": example}
    needed = bool(required or violations(row.params, {}, UNSET))
    return {"required": needed, "content": {_JSON: media}}


def _example(row: Operation) -> Example:
    return EXAMPLES.get(row.name) or Example()


def _responses(row: Operation, parts: _Components) -> _Node:
    status, success = _success(row, parts)
    responses = {status: success}
    for key in _by_status(row.all_errors):
        shared = key[0] in row.also
        refusal = parts.refuse(*key) if shared else parts.refusal(*key)
        responses[str(key[0])] = _either(success, refusal) if shared else refusal
    for further in row.also:
        responses.setdefault(str(further), success)
    return responses


def _either(success: _Node, refusal: _Node) -> _Node:
    """One response for a status that carries either the data or an error."""
    media = refusal["content"][_JSON]
    kinds = [success["content"][_JSON]["schema"], media["schema"]]
    content = {_JSON: {**media, "schema": {"oneOf": kinds}}, **_TEXT}
    text = f"The data as in a success, or\n{refusal['description']}"
    return {**refusal, "description": text, "content": content}


def _success(row: Operation, parts: _Components) -> tuple[str, _Node]:
    node: _Node = {"description": "Success.", "headers": _reply_headers("X-Request-ID")}
    if row.kind == "websocket":
        # The row's status applies to a normal reply; an upgrade answers 101.
        return "101", {**node, "description": "From here on the connection speaks WebSocket."}
    media, schema = MEDIA.get(row.name, _JSON), {"type": "string"}
    content: _Node = {"schema": {"type": "object"} if media == _JSON else schema}
    if row.kind == "json":
        content["schema"] = parts.envelope(True, parts.refs[row.result], _NULL)
        if row.name in EXAMPLES:
            data = msgspec.to_builtins(msgspec.convert(EXAMPLES[row.name].data, row.result))
            content["example"] = {"success": True, "data": data, "error": None, "meta": _META}
    text = _TEXT if row.kind == "json" else {}
    return str(row.status), {**node, "content": {media: content, **text}}
