"""`call OPERATION …`: every operation of the relay, by the table; for what has no command."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Any

from debug_relay.supervisor.cli.client.address import Misused
from debug_relay.supervisor.cli.client.calls import callable_operations
from debug_relay.supervisor.cli.client.invocation import Invocation
from debug_relay.supervisor.cli.client.parser import Command, Parser, hint
from debug_relay.supervisor.cli.client.terminal import print_text, table
from debug_relay.supervisor.cli.exit_codes import OK

_SWITCHES = {"true": True, "yes": True, "false": False, "no": False}


def _options(parser: Parser) -> None:
    parser.add_argument("operation", nargs="?", metavar="OPERATION", help="left out: list them all")
    parser.add_argument(
        "words", nargs="*", metavar="[SESSION] [FIELD=VALUE…]", help="lists and objects as JSON"
    )
    parser.add_argument("--fields", action="store_true", help="list what the operation takes")


def _call(invocation: Invocation, given: Namespace) -> int:
    known = callable_operations()
    if given.operation is None:
        for line in table(
            ["OPERATION", "WORDS"], [[name, known[name]["words"]] for name in known], wrap=True
        ):
            print_text(line)
        return OK
    if given.operation not in known:
        near = hint(given.operation, known, "debug-relay call")
        raise Misused(f"there is no operation {given.operation}; {near}")
    row = known[given.operation]
    if given.fields:
        for line in _field_lines(row["fields"]):
            print_text(line)
        return OK
    words = list(given.words)
    fields: dict[str, Any] = {}
    if "session_id" in row["path_fields"]:
        named = words.pop(0) if words and "=" not in words[0] else None
        fields["session_id"] = invocation.session(named)
    for word in words:
        name, value = _field(given.operation, row["fields"], word)
        fields[name] = value
    missing = [name for name in row["path_fields"] if name not in fields]
    if missing:
        raise Misused(f"{given.operation} needs {missing[0]}=…")
    invocation.show(invocation.call(given.operation, **fields))
    return OK


def _field(operation: str, fields: dict[str, Any], word: str) -> tuple[str, Any]:
    name, equals, text = word.partition("=")
    if not equals:
        raise Misused(f"{word} is no FIELD=VALUE")
    if name not in fields:
        near = hint(name, fields, f"debug-relay call {operation} --fields")
        raise Misused(f"{operation} has no field {name}; {near}".removesuffix(" --help"))
    kind = fields[name]["type"]
    try:
        if kind == "integer":
            return name, int(text)
        if kind == "number":
            return name, float(text)
        if kind == "boolean":
            return name, _SWITCHES[text.lower()]
        if kind == "list" and not text.startswith("["):
            return name, [text]
        if kind == "list" or text.startswith(("{", "[", '"')):
            return name, json.loads(text)
        if kind == "json":
            return name, _loose(text)
    except (ValueError, KeyError):
        wanted = {"boolean": "true or false", "json": "JSON", "list": "JSON"}.get(kind, f"a {kind}")
        raise Misused(f"{word}: {name} is {wanted}") from None
    return name, text


def _loose(text: str) -> Any:
    """A field that may be a word, a number or a switch."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _field_lines(fields: dict[str, Any]) -> list[str]:
    rows = [
        [name, field["type"], json.dumps(field["default"]) if "default" in field else "",
         " or ".join(map(str, field["choices"])) if "choices" in field else field.get("words", "")]
        for name, field in fields.items()
    ]  # fmt: skip
    return (
        list(table(["FIELD", "TYPE", "DEFAULT", "MEANING"], rows, wrap=True))
        if rows
        else ["no fields"]
    )


COMMANDS = {
    "call": Command(
        _options,
        _call,
        "debug-relay call threads shop\n"
        "debug-relay call trace --fields\n"
        "debug-relay call add-watch shop expression=amount",
        "Without an operation it lists them all. Text goes as it stands, numbers and true or false "
        "by the field's type, lists and objects as JSON.",
    )
}
