"""The operations table as JSON, for clients that must start faster than the table can be imported.

`supervisor/cli/client/operations.json` is its output: paths and fields of each operation. The
command line calls operations by name and takes the help of its options from it. Run it as a module
after a change of the operations table or of a model; a test compares its output with the file.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from debug_relay.protocol.docs.openapi import openapi
from debug_relay.protocol.operation_row import Operation, path_variables
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.version import API_PREFIX, VERSION

_Node = dict[str, Any]


def client_table() -> str:
    """One line for each operation, so that a change of the table is one line of the file."""
    document = openapi(VERSION, f"http://127.0.0.1:5679{API_PREFIX}")
    rows = (
        f"{json.dumps(row.name)}: {json.dumps(_row(row, document), ensure_ascii=False)}"
        for row in OPERATIONS.values()
    )
    return "{\n" + ",\n".join(rows) + "\n}\n"


def _row(row: Operation, document: _Node) -> _Node:
    node = document["paths"][row.path][row.verb.lower()]
    return {
        "verb": row.verb,
        "paths": row.paths,
        "kind": row.kind,
        "words": node["summary"],
        "path_fields": path_variables(row.path),
        "fields": _fields(node, document["components"]),
    }


def _fields(node: _Node, known: _Node) -> _Node:
    """Type, meaning and choices of each field, without those of the headers."""
    found: _Node = {}
    for given in node["parameters"]:
        item = _resolved(given, known["parameters"])
        if item["in"] != "header":
            words = item.get("description", "")
            found[item["name"]] = _field({**item["schema"], "description": words}, known)
    if "requestBody" in node:
        body = _resolved(
            node["requestBody"]["content"]["application/json"]["schema"], known["schemas"]
        )
        for name, field in body["properties"].items():
            found[name] = _field(field, known)
    return found


def _field(schema: _Node, known: _Node) -> _Node:
    kinds = [
        {**_resolved(kind, known["schemas"]), **kind}
        for kind in schema.get("anyOf", [schema])
        if kind.get("type") != "null"
    ]
    words = [kind["description"] for kind in [schema, *kinds] if kind.get("description")]
    field: _Node = {"type": _type(kinds[0], known["schemas"]) if len(kinds) == 1 else "json"}
    if words:
        field["words"] = words[0]
    if len(kinds) == 1 and "enum" in kinds[0]:
        field["choices"] = kinds[0]["enum"]
    if schema.get("default") not in (None, [], {}):
        field["default"] = schema["default"]
    return field


def _type(schema: _Node, schemas: _Node) -> str:
    """One of string, integer, number, boolean, list (of strings) and json (anything else)."""
    schema = _resolved(schema, schemas)
    kind = schema.get("type", "string" if "enum" in schema else "json")
    if kind == "array":
        is_texts = _resolved(schema.get("items", {}), schemas).get("type") == "string"
        return "list" if is_texts else "json"
    return "json" if kind == "object" else str(kind)


def _resolved(node: _Node, known: _Node) -> _Node:
    return dict(known[str(node["$ref"]).rpartition("/")[2]]) if "$ref" in node else node


if __name__ == "__main__":
    sys.stdout.buffer.write(client_table().encode())
