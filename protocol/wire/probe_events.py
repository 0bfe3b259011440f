"""The events that the probe sends by itself, and their bodies."""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import Struct

from debug_relay.protocol.wire import probe_answers as answers
from debug_relay.protocol.wire.breakpoint_requests import FoundFunction


class LogLine(Struct):
    """A line that a log point has written."""

    id: str
    text: str
    skipped: int
    path: str
    line: int


class BreakpointError(Struct):
    """The condition or message of a breakpoint has raised; the id of exception breakpoints is
    `exceptions`.
    """

    id: str
    error: str
    line: int | None = None


class HotBreakpoint(Struct):
    """A breakpoint whose condition slows the program."""

    id: str


class FunctionAppeared(FoundFunction, kw_only=True):
    """A function that a breakpoint names was loaded."""

    id: str


class ChildStarted(Struct):
    pid: int
    command: list[str]
    debugged: bool


class Greenlets(Struct):
    """gevent has replaced the program's threads, and the probe had not predicted that."""


class Place(Struct):
    path: str
    line: int


class TraceUpdate(Struct):
    """A thread that the trace records, the error of an expression, or why the trace is over."""

    thread: int | None = None
    problem: str | None = None
    where: Place | None = None
    over: Literal["max_rows", "until"] | None = None
    breakpoint: bool = False  # a breakpoint stops the program there anyway


class Left(Struct):
    """The remains of a detach: everything else was removed."""

    stuck: int = 0
    errors: list[str] = []


class Ending(Struct):
    """The program ends, which may take long."""


# Every event of the probe's and its body.
EVENTS: Final[dict[str, Any]] = {
    "relayAnswer": answers.Answer,
    "relayEnding": Ending,
    "relayError": BreakpointError,
    "relayFunction": FunctionAppeared,
    "relayGreenlets": Greenlets,
    "relayHot": HotBreakpoint,
    "relayLeft": Left,
    "relayLog": LogLine,
    "relayStop": answers.StopReport,
    "relaySubprocess": ChildStarted,
    "relayTrace": TraceUpdate,
}
