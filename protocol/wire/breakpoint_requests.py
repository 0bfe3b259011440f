"""The worker's requests to the probe that set breakpoints, and what the probe answers."""

from __future__ import annotations

from msgspec import Struct

from debug_relay.protocol.wire.probe_messages import Request


class FoundPlace(Struct):
    path: str
    line: int
    name: str
    left_out: str | None  # why the program never stops there, a key of `LEFT_OUT`
    inherited: bool = False  # it stops only for calls with the requested class


class FoundFunction(Struct):
    """The places of a function, and the full names of functions that may have been meant."""

    places: list[FoundPlace]
    elsewhere: list[str]


class Point(Struct, kw_only=True):
    """A breakpoint as the probe knows it."""

    id: str
    place: tuple[str, int] | None  # real path and line; None while it is disabled or not verified
    condition: str | None
    hit: tuple[str, int] | None
    log: str | None
    enabled: bool
    fresh: bool  # it counts from zero


class Points(Request[dict[str, str]]):
    """New, changed and removed breakpoints. The answer has, by id, why pydevd passes
    over a file.
    """

    set: list[Point] = []
    remove: list[str] = []


class WatchedValue(Struct, kw_only=True):
    """A watchpoint as the probe knows it."""

    id: str
    expression: str
    lines: dict[str, list[int]]  # real path → lines
    enabled: bool
    condition: str | None = None
    frame: int | None = None  # the stopped frame whose object alone is watched


class Watchpoints(Request[dict[str, tuple[str, str]]]):
    """Watchpoints that are new or changed, or gone; by id why one cannot stop, and what helps."""

    set: list[WatchedValue] = []
    remove: list[str] = []


class Hits(Request[dict[str, int]]):
    """Returns how often each breakpoint was hit."""


class ShareHits(Request[bool]):
    """Count in this file, which the worker maps too; false if the program cannot."""

    path: str
    capacity: int


class Suspend(Request[bool]):
    """Suspend all breakpoints, or end that."""

    on: bool


class Functions(Request[dict[str, FoundFunction]]):
    names: list[tuple[str, str, str | None]]  # id, name, the file it must be in


class Inherited(Request[dict[str, FoundFunction]]):
    """Find methods again that were not found: classes created since may inherit them."""

    ids: list[str]


class Outdated(Request[list[str]]):
    """Returns which of these files differ from the code that runs."""

    paths: list[str]


class Exceptions(Request[list[str]]):
    """Set which exceptions stop; returns those of the types that exist in the program by now."""

    raised: bool
    types: list[str]
    everywhere: bool
    types_everywhere: bool
    condition: str | None = None
    unconditional: list[str] = []  # raised, uncaught, user: these stop whatever the condition says


class KnownTypes(Request[list[str]]):
    types: list[str]


class Goal(Request[str | None]):
    """Run to a line; returns why pydevd passes over that file, if it does."""

    path: str
    line: int
    thread: int | None = None


class NoGoal(Request[bool]):
    pass
