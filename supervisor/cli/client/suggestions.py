"""Says in commands what the relay suggests as calls: its answers are written for `curl`.

A call that has a command of its own is that command; any other is `debug-relay call OPERATION`.
"""

from __future__ import annotations

import json
import re
import shlex
from functools import cache
from typing import Any
from urllib.parse import parse_qsl

from debug_relay.protocol.version import API_PREFIX
from debug_relay.supervisor.cli.client.calls import callable_operations

_CALL = re.compile(
    rf"\b(GET|POST|PUT|PATCH|DELETE) {API_PREFIX}(/[^\s;,?]*[\w}}])(?:\?([^\s;,]*(?:,[^\s;,]+)*))?"
    r"(?: with cursor= set to [^.]*?\))?"  # `wait` keeps no cursor: it looks where the program is
)
_ONWARDS = re.compile(r"(?<=: )\?(\w+=[\w=&.-]*\w=*)")  # the same call, with another field
_HEADER = "Send the header Authorization: Bearer TOKEN"
_WITH_TOKEN = "Set OPENCODE_DEBUG_TOKEN, or give --token-file FILE"
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
# The command of an operation, and the option or place of each field that the command takes.
_COMMANDS: dict[str, tuple[str, dict[str, str]]] = {
    "list-processes": ("ps", {"match": ""}),
    "list-sessions": ("sessions", {"status": "--status", "label": "--label"}),
    "create-session": ("launch SCRIPT", {}),
    "get-session": ("status", {}),
    "session-status": ("status", {}),
    "delete-session": ("rm", {"force": "--force"}),
    "launch": ("launch --session", {}),
    "attach": ("attach --session", {}),
    "continue": ("continue", {"thread_id": "--thread"}),
    "pause": ("pause", {"thread_id": "--thread"}),
    "step-over": ("next", {"thread_id": "--thread"}),
    "step-into": ("step", {"thread_id": "--thread"}),
    "step-out": ("out", {"thread_id": "--thread"}),
    "list-breakpoints": ("break", {}),
    "delete-breakpoint": ("break", {"breakpoint_id": "--delete"}),
    "stacktrace": ("where", {"thread_id": "--thread", "levels": "--frames"}),
    "snapshot": ("where", {}),
    "frame-variables": ("locals", {"frame_id": "--frame", "thread_id": "--thread"}),
    "evaluate": ("eval", {"frame_id": "--frame", "thread_id": "--thread", "expression": ""}),
    "output": ("logs", {"tail": "--tail", "category": "--category"}),
    "events": ("wait", {}),  # suggestions mean the next event
}


def in_commands(text: str, asked: tuple[str, dict[str, Any]] | None = None) -> str:
    """The text with each call replaced by a command; a call that only clients can make stays.

    `asked` is the call that the text answers: operation and fields. Its text may name the same call
    with another field. Lines behind a bar are the program's.
    """
    return "\n".join(
        line if line.startswith("| ") else _line(line, asked) for line in text.split("\n")
    )


def _line(line: str, asked: tuple[str, dict[str, Any]] | None) -> str:
    if asked is not None:
        name, fields = asked

        def further(found: re.Match[str]) -> str:
            kept = {key: value for key, value in fields.items() if value is not None}
            return _generic(name, {**kept, **dict(parse_qsl(found[1]))})

        line = _ONWARDS.sub(further, line)
    done, rest = "", line.replace(_HEADER, _WITH_TOKEN)
    while call := _CALL.search(rest):
        body, end = _body(rest, call.end())
        done += rest[: call.start()] + (_command(call, body) or rest[call.start() : end])
        rest = rest[end:]
    return done + rest


def _body(text: str, end: int) -> tuple[dict[str, Any], int]:
    """The fields of a call's JSON body, which stands behind it, and where that ends."""
    if text[end : end + 2] == " {":
        try:
            body, after = json.JSONDecoder().raw_decode(text, end + 1)
        except ValueError:
            return {}, end
        return body, after
    return {}, end


def _command(call: re.Match[str], body: dict[str, Any]) -> str | None:
    found = _operation(call[1], call[2])
    if found is None:
        return None
    name, fields = found
    fields |= dict(parse_qsl(call[3] or "", keep_blank_values=True)) | body
    fields = {key: value if value != "" else key.upper() for key, value in fields.items()}
    return command_of(name, fields)


def command_of(name: str, fields: dict[str, Any]) -> str:
    """The command that makes this call."""
    if name == "create-session" and fields.get("mode") == "attach" and "pid" in fields:
        return f"debug-relay attach {fields['pid']}"
    if name == "set-breakpoints" and fields.keys() == {"session_id"}:
        return f"debug-relay break {_session(fields)} PLACE"
    if name == "snapshot" and "wait" in fields:
        return f"debug-relay wait {_session(fields)}"
    word, options = _COMMANDS.get(name, ("", {}))
    others = {key: value for key, value in fields.items() if key != "session_id"}
    others = {key: value for key, value in others.items() if _DEFAULTS.get((name, key)) != value}
    if not word or not others.keys() <= options.keys():
        return _generic(name, fields)
    words = [f"debug-relay {word}"]
    words += [_session(fields)] if "session_id" in fields else []
    for key, value in others.items():
        words += [options[key]] if options[key] else []
        words += [] if value in (True, "true") else [_word(value)]
    return " ".join(words)


_DEFAULTS = {("frame-variables", "frame_id"): "0"}  # the command has them too


def _generic(name: str, fields: dict[str, Any]) -> str:
    words = ["debug-relay call", name]
    words += [_session(fields)] if "session_id" in fields else []
    words += [f"{key}={_word(value)}" for key, value in fields.items() if key != "session_id"]
    return " ".join(words)


def _session(fields: dict[str, Any]) -> str:
    id = str(fields["session_id"])
    return "SESSION" if id in ("SESSION_ID", "{session_id}") else id


def _word(value: Any) -> str:
    if isinstance(value, str):
        return shlex.quote(_PLACEHOLDER.sub(lambda name: name[1].upper(), value))
    return shlex.quote(json.dumps(value, ensure_ascii=False))


def _operation(verb: str, path: str) -> tuple[str, dict[str, Any]] | None:
    """The operation with this path, and the fields in the path."""
    for name, row_verb, pattern in _paths():
        if row_verb == verb and (found := pattern.fullmatch(path)):
            return name, dict(found.groupdict())
    return None


@cache
def _paths() -> list[tuple[str, str, re.Pattern[str]]]:
    return [
        (name, row["verb"], re.compile(_PLACEHOLDER.sub(r"(?P<\1>[^/]+)", path)))
        for name, row in callable_operations().items()
        for path in row["paths"]
    ]
