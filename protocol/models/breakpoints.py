"""Breakpoints of every kind: parameters and results."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, UnsetType, field

from debug_relay.protocol.models.fields import (
    PYTHON_EXPRESSION,
    PYTHON_NAME,
    BreakpointId,
    Count,
    Deleted,
    Json,
    Limit,
    Line,
    Location,
    Name,
    Offset,
    Params,
    Result,
    SessionParams,
    SourcePath,
    always,
)

_HIT_CONDITION: Final = r"^\s*(([=!<>]=|[<>])?\s*[0-9]{1,18}|%\s*0{0,9}[1-9][0-9]{0,8})\s*$"
MAX_BATCH = 10_000  # Breakpoints in one request or saved list.
Condition = Annotated[
    str,
    Meta(
        max_length=65536,
        description="Stop only when this is true.",
        examples=["x > 10"],
        extra_json_schema=PYTHON_EXPRESSION,
    ),
]
HitCondition = Annotated[
    str,
    Meta(
        max_length=64,
        description="Stop depending on the number of hits: 5 ==5 !=5 >=5 >5 <=5 <5 %5.",
        # Only in the schema: the refusal of an unreadable one says more.
        extra_json_schema={"pattern": _HIT_CONDITION},
    ),
]
LogMessage = Annotated[
    str,
    Meta(
        max_length=65536,
        description="Log this, with {expressions}, instead of stopping.",
        extra_json_schema={"format": "python-format-string"},
    ),
]
FoundText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=4096,
        description="Instead of a line: the only line that contains this text.",
        extra_json_schema={"format": "text-of-one-line"},
    ),
]
ExpectedText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=4096,
        description="Refuse unless the line contains this text.",
        extra_json_schema={"format": "text-of-line"},
    ),
]
Function = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=512,
        description="Instead of a line: stop at the entry of this function, such as `f`, `K.m`,"
        " `f.g` (nested) or `package.module.f`; with `file`, only the function of that file.",
        extra_json_schema=PYTHON_NAME,
    ),
]
Enabled = Annotated[bool, Meta(description="False keeps the breakpoint but does not stop at it.")]
MustExist = Annotated[
    bool, Meta(description="Refuse a file that does not exist, instead of waiting for it.")
]


class Source(Params, kw_only=True):
    path: SourcePath


class WatchScope(Params, kw_only=True):
    """The code that a watchpoint looks at: a function, or whole files."""

    function: Annotated[
        Annotated[str, Meta(min_length=1, max_length=512, extra_json_schema=PYTHON_NAME)] | None,
        Meta(description="Such as `work` or `Account.withdraw`."),
    ] = None
    file: Annotated[
        SourcePath | None, Meta(description="The function's file; default: the program's script.")
    ] = None
    files: Annotated[
        list[SourcePath], Meta(max_length=100, description="Every line of these files.")
    ] = []


Watched = Annotated[
    Annotated[str, Meta(min_length=1, max_length=4096, extra_json_schema=PYTHON_EXPRESSION)] | None,
    Meta(
        description="Instead of a place: stop after the line that changes the value of this "
        "expression, such as `self.balance`. Needs `in`, or `frame_id` while paused."
    ),
]
WatchedIn = Annotated[
    WatchScope | None,
    Meta(description="With `watch`: the code that is looked at; with `frame_id` by default the "
         "frame's file."),
]  # fmt: skip
WatchedFrame = Annotated[
    Annotated[int, Meta(ge=0, le=1_000_000)] | None,
    Meta(
        description="With `watch`: a frame of the selected thread, whose object alone is watched."
    ),
]


class BreakpointSpec(Params, kw_only=True):
    """One breakpoint as a caller asks for it."""

    source: Annotated[Source | None, Meta(description="The file; or give `file`.")] = None
    file: SourcePath | None = None
    line: Line | None = None
    text: FoundText | None = None
    expected_text: ExpectedText | None = None
    function: Function | None = None
    condition: Condition | None = None
    hit_condition: HitCondition | None = None
    log_message: LogMessage | None = None
    enabled: Enabled = True
    must_exist: MustExist = False
    watch: Watched = None
    scope: WatchedIn = field(name="in", default=None)
    frame_id: WatchedFrame = None


class SetBreakpoints(SessionParams, kw_only=True):
    """Add breakpoints, one or a batch; existing ones stay. A batch is set as a whole or not
    at all.
    """

    breakpoints: (
        Annotated[
            list[BreakpointSpec],
            Meta(min_length=1, max_length=MAX_BATCH, description="The batch."),
        ]
        | None
    ) = None
    source: Annotated[Source | None, Meta(description="The file; or give `file`.")] = None
    file: SourcePath | None = None
    line: Line | None = None
    text: FoundText | None = None
    expected_text: ExpectedText | None = None
    function: Function | None = None
    condition: Condition | None = None
    hit_condition: HitCondition | None = None
    log_message: LogMessage | None = None
    enabled: Enabled = True
    must_exist: MustExist = False
    watch: Watched = None
    scope: WatchedIn = field(name="in", default=None)
    frame_id: WatchedFrame = None


class ValueChange(Result, kw_only=True):
    """A change that a watchpoint has seen, and the line that made it: none if code that is not
    watched has made it."""

    id: str
    watch: str
    before: str
    after: str
    location: Location | None = None


class Breakpoint(Result, kw_only=True):
    """One breakpoint in its present state."""

    id: str
    verified: bool
    source: Json
    line: int | None
    function: str | None = None
    condition: str | None = always(None)
    hit_condition: str | None = always(None)
    log_message: str | None = always(None)
    enabled: bool = always(True)
    hit_count: int = always(0)
    message: str | None = always(None)
    suggestion: str | None = None
    updated: bool = False
    owner: str | None = None  # the IDE that has set it, and that alone can change it
    watch: str | None = None  # of a watchpoint
    scope: WatchScope | None = field(name="in", default=None)
    change: ValueChange | None = None  # the last one that a watchpoint has seen


class BreakpointsSet(Result, kw_only=True):
    breakpoints: list[Breakpoint]
    # Here and in the results below: reported after the write to disk, of the project's file or,
    # without a project root, of the session's own record.
    persisted: bool = True


class BreakpointChanged(Breakpoint, kw_only=True):
    """The breakpoint after the change, and whether the change is on disk."""

    persisted: bool = True


class BreakpointRemoved(Deleted, kw_only=True):
    """The removed breakpoint, and whether the removal is on disk."""

    persisted: bool = True


class BreakpointsCleared(Count, kw_only=True):
    """How many breakpoints were removed, and whether that is on disk."""

    persisted: bool = True


class ListBreakpoints(SessionParams, kw_only=True):
    """List the session's breakpoints."""

    file: SourcePath | None = None
    verified: Annotated[
        bool | None,
        Meta(description="True: only verified breakpoints; false: only unverified ones."),
    ] = None


class BreakpointList(Result, kw_only=True):
    breakpoints: list[Breakpoint]
    total: int


class OneBreakpoint(SessionParams, kw_only=True):
    """One breakpoint of the session."""

    breakpoint_id: BreakpointId


class PatchBreakpoint(OneBreakpoint, kw_only=True):
    """Change a breakpoint; fields that are left out stay as they are."""

    condition: Condition | None | UnsetType = UNSET
    hit_condition: HitCondition | None | UnsetType = UNSET
    log_message: LogMessage | None | UnsetType = UNSET
    enabled: Enabled | UnsetType = UNSET


Filters = Annotated[
    list[Literal["raised", "uncaught", "user_unhandled"]],
    Meta(
        max_length=100,
        description="Stop at exceptions that are raised, or that are not caught.",
    ),
]
ExceptionTypes = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=512, extra_json_schema=PYTHON_NAME)]],
    Meta(
        max_length=1000,
        description="Stop at these exceptions, by name, and at their subclasses.",
    ),
]
RaisedIn = Annotated[
    Literal["user", "all"] | None,
    Meta(
        description="`user` ignores exceptions that libraries raise and handle themselves, "
        "`all` includes them. Default: `user` for `filters`, `all` for `types`."
    ),
]


class ExceptionFilters(Params, kw_only=True):
    """The exceptions at which a program stops."""

    filters: Filters = []
    types: ExceptionTypes = []
    condition: Condition | None = None
    raised_in: RaisedIn = None


class SetExceptionBreakpoints(SessionParams, kw_only=True):
    """Replace the session's exception filters."""

    filters: Filters = []
    types: ExceptionTypes = []
    condition: Condition | None = None
    raised_in: RaisedIn = None


class ExceptionBreakpoints(Result, kw_only=True):
    filters: list[str] = []
    types: list[str] = []
    condition: str | None = None
    # The value in force; null if it was left out and differs between `filters` and `types`.
    raised_in: str | None = None
    # No class has this name yet; it takes effect as soon as the program defines or imports one.
    unknown_types: list[str] = []
    message: str | None = None


class Profile(Params, kw_only=True):
    """Breakpoints under a name."""

    name: Name


class PutProfile(Profile, kw_only=True):
    """Save breakpoints under a name."""

    breakpoints: Annotated[
        list[BreakpointSpec],
        Meta(max_length=MAX_BATCH, description="The breakpoints to save."),
    ]


class ApplyProfile(SessionParams, kw_only=True):
    """Set the breakpoints of a profile."""

    name: Name


class ProfileData(Result, kw_only=True):
    name: str
    breakpoints: list[Json]


class ProfileKept(ProfileData, kw_only=True):
    """The saved profile, and whether it is on disk."""

    persisted: bool = True


class ListProfiles(Params, kw_only=True):
    """List the breakpoint profiles, by name; `get-profile` shows the contents of one."""

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
