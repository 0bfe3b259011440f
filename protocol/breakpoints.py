"""Breakpoints of every kind."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from debug_relay.protocol.fields import (
    BreakpointId,
    Json,
    Line,
    Name,
    Params,
    Path,
    Result,
    SessionParams,
)

Condition = Annotated[
    str, Meta(max_length=65536, description="Stop only when this is true.", examples=["x > 10"])
]
HitCondition = Annotated[
    str,
    Meta(max_length=64, description="Stop by count of hits: 5 ==5 !=5 >=5 >5 <=5 <5 %5."),
]
LogMessage = Annotated[
    str,
    Meta(max_length=65536, description="Log this, with {expressions}, instead of stopping."),
]


class Source(Params, kw_only=True):
    path: Path


class BreakpointSpec(Params, kw_only=True):
    """One breakpoint as it is asked for."""

    source: Source | None = None
    file: Path | None = None
    line: Line | None = None
    text: Annotated[str, Meta(min_length=1, max_length=4096)] | None = None
    expected_text: Annotated[str, Meta(min_length=1, max_length=4096)] | None = None
    function: Annotated[str, Meta(min_length=1, max_length=512)] | None = None
    condition: Condition | None = None
    hit_condition: HitCondition | None = None
    log_message: LogMessage | None = None
    enabled: bool = True
    must_exist: bool = False


class SetBreakpoints(SessionParams, kw_only=True):
    """Add breakpoints, a batch or one; none is removed. A batch is set whole or not at all."""

    breakpoints: Annotated[list[BreakpointSpec], Meta(min_length=1, max_length=10_000)] | None = (
        None
    )
    source: Source | None = None
    file: Path | None = None
    line: Line | None = None
    text: Annotated[str, Meta(min_length=1, max_length=4096)] | None = None
    expected_text: Annotated[str, Meta(min_length=1, max_length=4096)] | None = None
    function: Annotated[str, Meta(min_length=1, max_length=512)] | None = None
    condition: Condition | None = None
    hit_condition: HitCondition | None = None
    log_message: LogMessage | None = None
    enabled: bool = True
    must_exist: bool = False


class Breakpoint(Result, kw_only=True):
    """One breakpoint as it stands."""

    id: str
    verified: bool
    source: Json
    line: int | None
    function: str | None = None
    condition: str | None = None
    hit_condition: str | None = None
    log_message: str | None = None
    enabled: bool = True
    hit_count: int = 0
    message: str | None = None
    suggestion: str | None = None
    updated: bool = False


class BreakpointsSet(Result, kw_only=True):
    breakpoints: list[Breakpoint]


class ListBreakpoints(SessionParams, kw_only=True):
    """List the session's breakpoints."""

    file: Path | None = None
    verified: bool | None = None


class BreakpointList(Result, kw_only=True):
    breakpoints: list[Breakpoint]
    total: int


class OneBreakpoint(SessionParams, kw_only=True):
    """One breakpoint of the session."""

    breakpoint_id: BreakpointId


class PatchBreakpoint(OneBreakpoint, kw_only=True):
    """Change a breakpoint; what is left out stays."""

    condition: Condition | None | UnsetType = UNSET
    hit_condition: HitCondition | None | UnsetType = UNSET
    log_message: LogMessage | None | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET


class SetExceptionBreakpoints(SessionParams, kw_only=True):
    """Replace the session's exception filters."""

    filters: list[Literal["raised", "uncaught", "user_unhandled"]] = []
    types: list[Annotated[str, Meta(min_length=1, max_length=512)]] = []
    condition: Condition | None = None
    raised_in: Literal["user", "all"] = "user"


class ExceptionBreakpoints(Result, kw_only=True):
    filters: list[str]
    types: list[str]
    condition: str | None = None
    raised_in: str = "user"


class Profile(Params, kw_only=True):
    """Breakpoints under a name."""

    name: Name


class PutProfile(Profile, kw_only=True):
    """Keep breakpoints under a name."""

    breakpoints: list[BreakpointSpec]


class ApplyProfile(SessionParams, kw_only=True):
    """Set the breakpoints of a profile."""

    name: Name


class ProfileData(Result, kw_only=True):
    name: str
    breakpoints: list[Json]


class ProfileList(Result, kw_only=True):
    items: list[ProfileData]
    total: int
