"""The messages of the stdio protocol: commands from lines, events to lines.

One JSON object a line in both directions. A line that is no command raises `BadLine`, whose text
the IDE is shown. This module knows nothing of relays.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from debug_relay.protocol.errors import RelayError
from debug_relay.protocol.validation.json_body import parse_json

LONGEST_LINE_BYTES: Final = 1024 * 1024  # One line from the IDE.
_SHOWN_CHARACTERS: Final = 100  # A name that is refused is shown up to this length.


class Initialize(Struct, rename="camel", frozen=True):
    file: str
    working_dir: str | None = None
    args: list[str] = []
    env: dict[str, str] = {}
    python_path: str | None = None


class Nothing(Struct, frozen=True):
    pass


class Breakpoint(Struct, frozen=True):
    file: str
    line: Annotated[int, Meta(ge=1, le=2**31 - 1)]


class OneFrame(Struct, rename="camel", frozen=True):
    frame_index: Annotated[int, Meta(ge=0)] = 0


class Evaluate(Struct, rename="camel", frozen=True):
    expression: str
    frame_index: Annotated[int, Meta(ge=0)] = 0


Params = Initialize | Nothing | Breakpoint | OneFrame | Evaluate
COMMANDS: Final[dict[str, type[Params]]] = {
    "initialize": Initialize,
    "start": Nothing,
    "stepInto": Nothing,
    "stepOver": Nothing,
    "stepOut": Nothing,
    "continue": Nothing,
    "setBreakpoint": Breakpoint,
    "clearBreakpoint": Breakpoint,
    "getVariables": OneFrame,
    "getStackTrace": Nothing,
    "evaluate": Evaluate,
    "terminate": Nothing,
}


class Command(Struct, frozen=True):
    name: str
    params: Params


class BadLine(Exception):
    """A line that is no command. `command` is its name, as far as it has one."""

    def __init__(self, message: str, command: str | None = None) -> None:
        super().__init__(message)
        self.command = command


class Place(Struct, frozen=True):
    file: str
    line: int
    column: int = 1


class _Event(Struct):
    type: str
    event: str
    data: dict[str, Any]


def parse(line: bytes) -> Command:
    """The command that a line holds."""
    try:
        sent = parse_json(line)
    except RelayError as error:
        raise BadLine(error.message.replace("The body", "The line")) from None
    if sent.get("type") != "command":
        raise BadLine(f'"type" is {_shown(sent.get("type"))}; every message has "command"')
    name = sent.get("command")
    if not isinstance(name, str):
        raise BadLine(f'"command" is {_shown(name)}; it is one of {", ".join(COMMANDS)}')
    if name not in COMMANDS:
        near = difflib.get_close_matches(name[:_SHOWN_CHARACTERS], COMMANDS, 1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(COMMANDS)}"
        name = name[:_SHOWN_CHARACTERS]
        raise BadLine(f"Unknown command {name}: {hint}", name)
    try:
        return Command(name, msgspec.convert(sent.get("params") or {}, COMMANDS[name]))
    except msgspec.ValidationError as error:
        raise BadLine(f"The params of {name} are wrong: {error}", name) from None


def _shown(value: Any) -> str:
    return "missing" if value is None else repr(value)[:_SHOWN_CHARACTERS]


def event(name: str, /, **data: Any) -> bytes:
    """An event as a line. Fields that are UNSET are left out."""
    kept = {key: value for key, value in data.items() if value is not UNSET}
    return msgspec.json.encode(_Event("event", name, kept)) + b"\n"


def error_event(
    message: str,
    *,
    command: str | None = None,
    location: Place | None = None,
) -> bytes:
    return event(
        "error",
        message=message,
        location=_or_unset(location),
        command=_or_unset(command),
    )


def _or_unset(value: Any) -> Any | UnsetType:
    return UNSET if value is None else value


class Lines:
    """Cuts bytes as they come into lines. A line that is too long is `None`."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._skipping = False

    def add(self, data: bytes) -> Iterator[bytes | None]:
        """The lines that these bytes complete; blank ones are left out."""
        *whole, rest = data.split(b"\n")
        for piece in whole:
            yield from self._finished(piece)
        self._keep(rest)

    def end(self) -> Iterator[bytes | None]:
        """The line that ends without a newline, if there is one."""
        yield from self._finished(b"")

    def _finished(self, piece: bytes) -> Iterator[bytes | None]:
        self._keep(piece)
        line, skipped = bytes(self._rest), self._skipping
        self._rest.clear()
        self._skipping = False
        if skipped:
            yield None
        elif line.strip():
            yield line

    def _keep(self, piece: bytes) -> None:
        if len(self._rest) + len(piece) > LONGEST_LINE_BYTES:
            self._skipping = True
        if self._skipping:
            self._rest.clear()
        else:
            self._rest += piece
