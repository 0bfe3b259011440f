"""Says in tools what the relay suggests as calls: its texts are written for `curl`.

A call that no tool makes is left out of a refusal together with the clause that names it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import parse_qsl

from debug_relay.protocol.errors import RelayError
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.version import API_PREFIX
from debug_relay.supervisor.http.router import Router
from debug_relay.supervisor.mcp import arguments
from debug_relay.supervisor.mcp.arguments import Arguments

# The tool for each operation that a text of the relay may name.
_TOOL_OF: Final[Mapping[str, str]] = {
    **{
        name: f"debug_control action={name.replace('-', '_')}"
        for name in (
            "continue", "pause", "step-over", "step-into", "step-out", "run-to", "restart", "input",
        )
    },
    **dict.fromkeys(("create-session", "launch", "attach"), "debug_start"),
    **dict.fromkeys(("delete-session", "terminate", "detach"), "debug_end"),
    **dict.fromkeys(
        (
            "set-breakpoints", "clear-breakpoints", "delete-breakpoint", "patch-breakpoint",
            "set-exception-breakpoints", "clear-exception-breakpoints",
        ),
        "debug_breakpoints",
    ),
    **dict.fromkeys(
        ("list-breakpoints", "get-breakpoint", "get-exception-breakpoints"),
        "debug_inspect what=breakpoints",
    ),
    **dict.fromkeys(
        ("snapshot", "session-status", "get-session", "ping", "get-ping"), "debug_inspect what=stop"
    ),
    **dict.fromkeys(
        ("frame-variables", "variables", "scopes"), "debug_inspect what=variables"
    ),
    **{
        name: f"debug_inspect what={name}"
        for name in ("threads", "tasks", "output", "source", "exception", "history")
    },
    "stacktrace": "debug_inspect what=stack",
    "stream-output": "debug_inspect what=output",
    "events": "debug_wait",
    "all-events": "debug_wait",
    "evaluate": "debug_evaluate",
    "trace": "debug_trace",
    "run": "debug_run",
    "list-sessions": "debug_list what=sessions",
    "list-processes": "debug_list what=processes",
    "get-process": "debug_list what=processes",
    "process-stacks": "debug_list what=stacks",
}  # fmt: skip
_TAKES: Final[Mapping[str, type[Arguments]]] = {
    "debug_run": arguments.Run,
    "debug_start": arguments.Start,
    "debug_list": arguments.Listing,
    "debug_breakpoints": arguments.SetBreakpoints,
    "debug_control": arguments.Control,
    "debug_wait": arguments.WaitForStop,
    "debug_inspect": arguments.Inspect,
    "debug_evaluate": arguments.Evaluate,
    "debug_trace": arguments.Trace,
    "debug_end": arguments.End,
}
_ARGUMENT_OF: Final = {  # fields that have another name as an argument of tools
    "session_id": "session",
    "frame_id": "frame",
    "variables_reference": "ref",
    "project_root": "cwd",
    "filters": "exceptions",
    "types": "exceptions",
    "count": "limit",
    "levels": "limit",
    "tail": "limit",
}
# The fields whose names the relay's sentences use.
_FIELDS: Final = re.compile(r"\b(session_id|frame_id|variables_reference|project_root)\b")
# A tool that cannot be given these does something else than the call.
_ESSENTIAL: Final = frozenset({"force", "host"})
_LOCAL: Final = ("127.0.0.1", "localhost")
_CALL: Final = re.compile(
    r"\b(GET|POST|PUT|PATCH|DELETE) ((?:" + re.escape(API_PREFIX) + r"|…)/[^\s;,?]*[\w}])"
    r"(?:\?(\S*[\w=-]))?(?: with cursor= [^.]*)?"
)
_SHORT: Final = API_PREFIX + "/sessions/{session_id}"  # the relay's texts shorten it to …
_ROUTER: Final = Router(OPERATIONS, API_PREFIX)
# How a text of the relay says with which parameter it goes on, and the tools' name for that.
_GOES_ON: Final = re.compile(r"^(… .*|next): \?(\w+)=(\S+)")
_PARAMETERS: Final = {"start_frame": "start", "start": "start", "cursor": "cursor"}
# The filters of exceptions, which are one list for the tools.
_FILTERS: Final = re.compile(r'\{"(?:filters|types)": (\[[^\]]*\])\}')
_PROGRAM_BAR: Final = "| "  # before lines that the program wrote, which stay as they are
_NEXT: Final = "next: "

_HEADER: Final = re.compile("Send (?:the header )?Authorization: Bearer TOKEN")
_WITH_TOKEN: Final = "This server needs a token (OPENCODE_DEBUG_TOKEN, or --token-file FILE)"
# In the place of a call that no tool makes, and of a field that no tool has.
_CANNOT: Final = "\0"
_LACKING: Final = re.compile(r"\b(connect_timeout|wait_seconds|timeout_minutes)\b")
_IN_A_LIST: Final = re.compile(f", {_CANNOT}(?=,| and )")
_ALTERNATIVE: Final = re.compile(f",? or [^.;]*{_CANNOT}[^.;]*(?=[.;])")
_CLAUSE: Final = re.compile(r"(?<=[.;]) ")
_PLACEHOLDER: Final = re.compile(r"<([^<>]*)>")
_SHELL: Final = re.compile(
    r"\S*python\S* -m \w+|\b(apt-get|chmod|debug-relay|kill -|ps -p|sysctl)\b"
)
_BY_A_PERSON: Final = "Without a shell on that machine, ask the person who runs it."


def in_tools(text: str) -> str:
    """The relay's text, with its HTTP calls as calls of the tools."""
    return "\n".join(
        line if line.startswith(_PROGRAM_BAR) else _line_in_tools(line) for line in text.split("\n")
    )


def _line_in_tools(line: str) -> str:
    line = _GOES_ON.sub(_going_on, line)
    if not line.startswith(_NEXT):
        return _translated(line, keeps=True)
    said = _HEADER.sub(_WITH_TOKEN, line.removeprefix(_NEXT))
    said = _LACKING.sub(_CANNOT, _translated(said, keeps=False))
    said = _FIELDS.sub(lambda name: _ARGUMENT_OF[name[1]], _FILTERS.sub(r"exceptions=\1", said))
    return _NEXT + _with_shell(_without_clauses(said))


def _going_on(hint: re.Match[str]) -> str:
    name = _PARAMETERS.get(hint[2])
    return f"{hint[1]}: {name}={hint[3]}" if name else hint[1]


def _without_clauses(said: str) -> str:
    """The text without the clauses that name what no tool does."""
    if _CANNOT not in said:
        return said
    said = _ALTERNATIVE.sub("", _IN_A_LIST.sub("", said))
    kept = [clause for clause in _CLAUSE.split(said) if _CANNOT not in clause]
    if not kept:
        return "debug_list what=sessions shows what each session does."
    said = " ".join(kept).removeprefix("Or ").rstrip(";.") + "."
    return said if said.startswith("debug_") else said[0].upper() + said[1:]


def _with_shell(said: str) -> str:
    return f"{said.rstrip('.')}. {_BY_A_PERSON}" if _SHELL.search(said) else said


def _translated(text: str, *, keeps: bool) -> str:
    """Each call as a tool's; one that no tool makes stays with `keeps`, else it is marked."""
    done, rest = "", text
    while call := _CALL.search(rest):
        body, end = _body(rest, call.end())
        tool = _tool(call, body)
        done += rest[: call.start()] + (tool or (rest[call.start() : end] if keeps else _CANNOT))
        rest = rest[end:]
    return done + rest


def _body(text: str, end: int) -> tuple[dict[str, Any], int]:
    """The fields of a call's JSON body, which stands behind it, and where that ends."""
    if text[end : end + 2] == " {":
        # A placeholder, such as <its new pid>, is no JSON; this text is as long.
        plain = _PLACEHOLDER.sub(lambda found: f'"{found[1]}"', text)
        with suppress(ValueError):
            return json.JSONDecoder().raw_decode(plain, end + 1)
    return {}, end


def _tool(call: re.Match[str], body: Mapping[str, Any]) -> str | None:
    try:
        found = _ROUTER.match(call[1], call[2].replace("…", _SHORT))
    except RelayError:
        return None
    fields = {**found.path_values, **dict(parse_qsl(call[3] or "")), **body}
    waits = found.operation.name == "snapshot" and "wait" in fields
    tool = "debug_wait" if waits else _TOOL_OF.get(found.operation.name)
    if tool is None:
        return None
    if found.operation.name == "get-process":
        del fields["pid"]  # among all of them
    takes = _TAKES[tool.split()[0]].__struct_fields__
    given: dict[str, Any] = {}
    for name, value in fields.items():
        argument = _ARGUMENT_OF.get(name, name)
        if argument in takes and not _is_left_out(argument, value):
            given[argument] = value
        elif name in _ESSENTIAL and argument not in takes and value not in _LOCAL:
            return None
    return " ".join([tool, *(f"{name}={_word(value)}" for name, value in given.items())])


def _is_left_out(argument: str, value: Any) -> bool:
    """Whether the value is a placeholder, or what the tool does by itself."""
    return argument == "wait" or value in ("", "0") or (isinstance(value, str) and "{" in value)


def _word(value: Any) -> str:
    if isinstance(value, str) and " " not in value:
        return value
    return json.dumps(value, ensure_ascii=False)
