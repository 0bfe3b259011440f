"""How tools call operations: one interface, over dispatch in a relay and over HTTP outside."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, Protocol

import msgspec
from msgspec import Struct

from debug_relay.protocol.errors import RelayError
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.version import API_PREFIX
from debug_relay.supervisor.http.router import Router

# The longest text of one answer: clients cut longer ones, or refuse them.
LONGEST_CHARACTERS: Final = 8000
_CUT_NOTE: Final = "\n… {left} more characters were cut; ask for less, or for a later part"

Form = Literal["json", "text"]
Progress = Callable[[float, str], Awaitable[None]]


class Calls(Protocol):
    async def reply(
        self, operation: str, fields: Mapping[str, Any], form: Form
    ) -> tuple[int, bytes]:
        """The status and the body."""


class ToolError(Exception):
    """The call cannot be done; the text says why, and what to call next."""


class Relay:
    """The relay as a tool sees it: text answers, JSON data, and refusals as ToolError."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def text(self, operation: str, **fields: Any) -> str:
        status, body = await self._calls.reply(operation, _given(fields), "text")
        words = in_tools(body.decode("utf-8", "backslashreplace").rstrip("\n"))
        if status >= 400:
            raise ToolError(words)
        return words

    async def data(self, operation: str, **fields: Any) -> dict[str, Any]:
        status, body = await self._calls.reply(operation, _given(fields), "json")
        reply = msgspec.json.decode(body)
        if status >= 400:
            error = reply["error"]
            details = error.get("details") or {}
            raise ToolError(
                in_tools(
                    f"error {error['code']}: {error['message']}\nnext: {details.get('suggestion')}"
                )
            )
        found: dict[str, Any] = reply["data"]
        return found


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


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
    "get-trace": "debug_trace",
    "run": "debug_run",
    "list-sessions": "debug_list what=sessions",
    "list-processes": "debug_list what=processes",
    "get-process": "debug_list what=processes",
    "process-stacks": "debug_list what=stacks",
}  # fmt: skip
_CALL: Final = re.compile(
    r"\b(GET|POST|PUT|PATCH|DELETE) ((?:" + re.escape(API_PREFIX) + r"|…)/[^\s;,?]*[\w}])"
    r"(\?\S*[\w=-])?(?: with cursor= [^.]*)?"
)
_SHORT: Final = API_PREFIX + "/sessions/{session_id}"  # the relay's texts shorten it to …
_ROUTER: Final = Router(OPERATIONS, API_PREFIX)
# How a text of the relay says with which parameter it goes on, and the tools' name for that.
_GOES_ON: Final = re.compile(r"^(… .*|next): \?(\w+)=(\S+)")
# The filters of exceptions, which are one list for the tools.
_FILTERS: Final = re.compile(r'\{"(?:filters|types)": (\[[^\]]*\])\}')
_PARAMETERS: Final = {"start_frame": "start", "start": "start", "cursor": "cursor"}
_PROGRAM_BAR: Final = "| "  # before lines that the program wrote, which stay as they are


def in_tools(text: str) -> str:
    """The relay's text, with its HTTP calls as calls of the tools."""
    return "\n".join(
        line if line.startswith(_PROGRAM_BAR) else _line_in_tools(line) for line in text.split("\n")
    )


def _line_in_tools(line: str) -> str:
    line = _GOES_ON.sub(_going_on, _CALL.sub(_tool, line))
    if not line.startswith("next: "):
        return line
    return _FILTERS.sub(r"exceptions=\1", line).replace("frame_id", "frame")


def _going_on(hint: re.Match[str]) -> str:
    name = _PARAMETERS.get(hint[2])
    return f"{hint[1]}: {name}={hint[3]}" if name else hint[1]


def _tool(call: re.Match[str]) -> str:
    try:
        found = _ROUTER.match(call[1], call[2].replace("…", _SHORT))
    except RelayError:
        return call[0]
    waits = found.operation.name == "snapshot" and "wait=" in (call[3] or "")
    tool = "debug_wait" if waits else _TOOL_OF.get(found.operation.name)
    if tool is None:
        return call[0]
    session = found.path_values.get("session_id", "")
    return f"{tool} session={session}" if session and "{" not in session else tool


def bounded(text: str) -> str:
    """At most as long as an answer may be; the cut is said."""
    if len(text) <= LONGEST_CHARACTERS:
        return text
    room = LONGEST_CHARACTERS - len(_CUT_NOTE) - 10
    cut = text[:room].rpartition("\n")[0] or text[:room]
    return cut + _CUT_NOTE.format(left=len(text) - len(cut))


class Answer(Struct):
    text: str
    failed: bool = False
