"""Breakpoints of every kind."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from debug_relay.protocol.models.fields import (
    BreakpointId,
    Count,
    Deleted,
    Json,
    Limit,
    Line,
    Name,
    Offset,
    Params,
    Path,
    Result,
    SessionParams,
)

MOST_IN_A_BATCH = 10_000
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
FoundText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=4096,
        description="Instead of a line: the one line that contains this.",
    ),
]
ExpectedText = Annotated[
    str,
    Meta(min_length=1, max_length=4096, description="Refuse unless the line contains this."),
]
Function = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=512,
        description="Instead of a line: stop where a call of this function begins, such as `f`,"
        " `K.m`, `f.g` (nested) or `package.module.f`; with a file, only that file's.",
    ),
]
Enabled = Annotated[bool, Meta(description="False keeps the breakpoint and does not stop at it.")]
MustExist = Annotated[
    bool, Meta(description="Refuse a file that does not exist instead of waiting for it.")
]


class Source(Params, kw_only=True):
    path: Path


class BreakpointSpec(Params, kw_only=True):
    """One breakpoint as it is asked for."""

    source: Annotated[Source | None, Meta(description="The file; or give `file`.")] = None
    file: Path | None = None
    line: Line | None = None
    text: FoundText | None = None
    expected_text: ExpectedText | None = None
    function: Function | None = None
    condition: Condition | None = None
    hit_condition: HitCondition | None = None
    log_message: LogMessage | None = None
    enabled: Enabled = True
    must_exist: MustExist = False


class SetBreakpoints(SessionParams, kw_only=True):
    """Add breakpoints, a batch or one; none is removed. A batch is set whole or not at all."""

    breakpoints: (
        Annotated[
            list[BreakpointSpec],
            Meta(min_length=1, max_length=MOST_IN_A_BATCH, description="The batch."),
        ]
        | None
    ) = None
    source: Annotated[Source | None, Meta(description="The file; or give `file`.")] = None
    file: Path | None = None
    line: Line | None = None
    text: FoundText | None = None
    expected_text: ExpectedText | None = None
    function: Function | None = None
    condition: Condition | None = None
    hit_condition: HitCondition | None = None
    log_message: LogMessage | None = None
    enabled: Enabled = True
    must_exist: MustExist = False


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


# `persisted` is told after the disk has it; without a project root the session's own record has.


class BreakpointsSet(Result, kw_only=True):
    breakpoints: list[Breakpoint]
    persisted: bool = True


class BreakpointChanged(Breakpoint, kw_only=True):
    """As it stands now, and whether that is on disk."""

    persisted: bool = True


class BreakpointRemoved(Deleted, kw_only=True):
    """What is gone, and whether it is gone on disk."""

    persisted: bool = True


class BreakpointsCleared(Count, kw_only=True):
    """How many were removed, and whether on disk."""

    persisted: bool = True


class ListBreakpoints(SessionParams, kw_only=True):
    """List the session's breakpoints."""

    file: Path | None = None
    verified: Annotated[
        bool | None, Meta(description="Only those that can be hit, or only the others.")
    ] = None


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
    enabled: Enabled | UnsetType = UNSET


class SetExceptionBreakpoints(SessionParams, kw_only=True):
    """Replace the session's exception filters."""

    filters: Annotated[
        list[Literal["raised", "uncaught", "user_unhandled"]],
        Meta(
            max_length=100,
            description="Stop at exceptions that are raised, or that nobody catches.",
        ),
    ] = []
    types: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=512)]],
        Meta(
            max_length=1000, description="Stop at these exceptions and their subclasses, by name."
        ),
    ] = []
    condition: Condition | None = None
    raised_in: Annotated[
        Literal["user", "all"] | None,
        Meta(
            description="`user` passes over what libraries raise and handle themselves, `all` "
            "counts that too. Left out: `user` for `filters`, `all` for `types`."
        ),
    ] = None


class ExceptionBreakpoints(Result, kw_only=True):
    filters: list[str]
    types: list[str]
    condition: str | None = None
    # As it holds; null where it was left out and is another for `filters` than for `types`.
    raised_in: str | None = None
    # No class has the name so far: it counts as soon as the program defines or imports it.
    unknown_types: list[str] = []
    message: str | None = None


class Profile(Params, kw_only=True):
    """Breakpoints under a name."""

    name: Name


class PutProfile(Profile, kw_only=True):
    """Keep breakpoints under a name."""

    breakpoints: Annotated[
        list[BreakpointSpec],
        Meta(max_length=MOST_IN_A_BATCH, description="The breakpoints to keep."),
    ]


class ApplyProfile(SessionParams, kw_only=True):
    """Set the breakpoints of a profile."""

    name: Name


class ProfileData(Result, kw_only=True):
    name: str
    breakpoints: list[Json]


class ProfileKept(ProfileData, kw_only=True):
    """As it is kept, and whether on disk."""

    persisted: bool = True


class ListProfiles(Params, kw_only=True):
    """List the breakpoint profiles, by name; `get-profile` shows what is in one."""

    offset: Offset = 0
    limit: Limit = 100


class ProfileItem(Result, kw_only=True):
    name: str
    breakpoint_count: int


class ProfileList(Result, kw_only=True):
    items: list[ProfileItem]
    total: int
    offset: int
    limit: int
    has_more: bool
