"""The operations table for people: the reference as a Markdown page.

A rendering of the OpenAPI document and the error catalogue; what those do not say is not here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Final

from debug_relay.protocol.docs.examples import MEDIA
from debug_relay.protocol.docs.openapi import openapi
from debug_relay.protocol.errors import COMMON, COMMON_SESSION, ERRORS, Code
from debug_relay.protocol.operations import OPERATIONS, Operation
from debug_relay.protocol.version import API_PREFIX, VERSION

_Node = dict[str, Any]
_JSON: Final = "application/json"

_HEAD: Final = """# Reference

Every operation of the relay. Paths stand under `{prefix}`; `/`, `/openapi.json` and the other pages
at the root too. JSON replies are the envelope `success`, `data`, `error`, `meta`; "Reply" names
what stands in `data`, and its fields are listed under [Types](#types). Any call may carry
`X-Request-ID` and `X-Agent`, and may ask for `?format=text` or `?format=markdown`.

Change the operations table, not this page; it is made by
`python -m debug_relay.protocol.docs.reference > docs/reference.md`."""


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
    own = _codes(code.value for code in Code if code in row.own_errors)
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
    statuses = " or ".join(str(status) for status in (row.status, *row.also))
    return f"Reply: {statuses}, {_type(data)}: {_codes(_resolved(data, schemas)['properties'])}."


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
