"""How tools call operations: one interface, over dispatch in a relay and over HTTP outside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, Protocol

import msgspec
from msgspec import Struct

from debug_relay.supervisor.mcp.suggestions import in_tools

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
