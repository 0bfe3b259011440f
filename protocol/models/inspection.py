"""Looking into a stopped program: stacks, variables, expressions, watches, exceptions."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from debug_relay.protocol.models.fields import (
    UNSET,
    WATCH_ID,
    Expression,
    FrameId,
    Json,
    Limit,
    Offset,
    Reference,
    Result,
    SessionParams,
    ThreadId,
    UnsetType,
    always,
)

Levels = Annotated[int, Meta(ge=1, le=1000, description="How many frames.")]
Start = Annotated[int, Meta(ge=0, description="Where to begin.")]
CountOf = Annotated[int, Meta(ge=1, le=1000, description="Maximum number of entries.")]
EvaluateTimeout = (
    Annotated[
        float,
        Meta(
            gt=0,
            le=300,
            description="Seconds until the evaluation is interrupted; default: the relay's "
            "setting.",
        ),
    ]
    | None
)


class Stacktrace(SessionParams, kw_only=True):
    """The call stack of a thread: by default the selected one; a running thread works too."""

    thread_id: ThreadId | None = None
    start_frame: Start = 0
    levels: Levels = 20
    frames: Annotated[
        Literal["own", "all"],
        Meta(description="In text, `own` folds the frames of libraries; JSON has all."),
    ] = "own"


class SourceRef(Result, kw_only=True):
    path: str
    name: str


class Frame(Result, kw_only=True):
    id: int
    name: str
    source: SourceRef
    line: int
    column: int
    module_name: str | None = always(None)
    presentation_hint: str = always("normal")
    # Set when the file on disk differs from the code that runs.
    warning: str | None = None


class FoldedFrames(Result, kw_only=True):
    """Frames in a row that are not in the list: of libraries, which `frames=all` shows; or of a
    recursion.
    """

    first: int  # the id of the first
    count: int
    libraries: list[str] = []
    repeats: int = 0  # a recursion: these are the so many frames before them, again and again


class Stack(Result, kw_only=True):
    thread_id: int
    frames: list[Frame]
    folded: list[FoldedFrames] = []  # only in text
    total_frames: int
    has_more: bool = False
    live: bool = False  # read from a running thread, so already outdated
    child_pid: int | None = None  # pid of the thread's process, if that is a child


class Scopes(SessionParams, kw_only=True):
    """The variable scopes of a frame."""

    frame_id: FrameId = 0
    thread_id: ThreadId | None = None


# The thread runs or is blocked in C; its frame was read from outside, at this moment.
Live = bool | UnsetType


class Scope(Result, kw_only=True):
    name: str
    presentation_hint: str | None
    variables_reference: int
    named_variables: int | None = always(None)
    indexed_variables: int | None = always(None)
    expensive: bool = always(False)


class ScopeList(Result, kw_only=True):
    frame_id: int
    thread_id: int
    scopes: list[Scope]
    live: Live = UNSET


Summary = Annotated[
    bool, Meta(description="Types and sizes without values; none of the program's code is run.")
]


class Variables(SessionParams, kw_only=True):
    """The variables of a scope, or the children of a variable."""

    variables_reference: Reference
    start: Start = 0
    count: CountOf = 100
    filter: Annotated[
        Literal["indexed", "named"] | None,
        Meta(description="Only indexed, or only named children."),
    ] = None
    frame_id: FrameId | None = None
    summary: Summary = False
    offset: Annotated[Offset | None, Meta(description="Another name for `start`.")] = None
    limit: Annotated[Limit | None, Meta(description="Another name for `count`.")] = None


class FrameVariables(SessionParams, kw_only=True):
    """The local variables of a frame."""

    frame_id: FrameId
    thread_id: ThreadId | None = None
    start: Start = 0
    count: CountOf = 100
    scope: Annotated[
        Literal["locals", "globals"], Meta(description="Which variables of the frame.")
    ] = "locals"
    summary: Summary = False


class Variable(Result, kw_only=True):
    name: str
    value: str
    type: str
    variables_reference: int = 0
    length: int | None = None
    expandable: bool = False
    presentation_hint: Json = None
    truncated: bool = False
    # for bytes: the same content, and more of it than the text shows
    base64: str | UnsetType = UNSET
    circular: bool | UnsetType = UNSET


class ListedVariable(Variable, kw_only=True):
    """A variable of a list: with the numbers of its children, null if they were not counted."""

    variables_reference: int = always(0)
    named_variables: int | None = always(None)
    indexed_variables: int | None = always(None)


# "safe" for a caller without sessions:write: none of the program's code was run to show values.
Safe = Literal["safe"] | UnsetType


class VariableList(Result, kw_only=True):
    variables_reference: int
    variables: list[ListedVariable]
    start: int = 0
    total: int
    has_more: bool
    # The thread hangs in the program's own code; the probe answered on another thread without
    # running any.
    evaluating: bool | UnsetType = UNSET
    repr: Safe = UNSET
    live: Live = UNSET


class SetVariable(SessionParams, kw_only=True):
    """Assign to a variable."""

    variables_reference: Reference
    name: Annotated[
        str, Meta(min_length=1, max_length=4096, description="The variable inside that container.")
    ]
    value: Expression


class VariableSet(Result, kw_only=True):
    name: str
    value: str
    type: str | None = None
    variables_reference: int


class Evaluate(SessionParams, kw_only=True):
    """Evaluate an expression in a stopped frame; with `thread_id`, also in one that runs or is
    blocked in C: then in another thread, with a copy of the frame's locals."""

    expression: Annotated[
        Expression,
        Meta(
            description="A Python expression, or statements.",
            extra_json_schema={"format": "python-source"},
        ),
    ]
    frame_id: FrameId = 0
    thread_id: ThreadId | None = None
    context: Annotated[
        Literal["watch", "repl", "hover"],
        Meta(description="`repl` accepts statements too; `watch` and `hover` only expressions."),
    ] = "repl"
    timeout: EvaluateTimeout = None


class ErrorDetails(Result, kw_only=True):
    type: str
    message: str
    traceback: str


class Evaluated(Result, kw_only=True):
    result: str | None
    type: str | None
    variables_reference: int = always(0)
    named_variables: int | None = always(None)
    indexed_variables: int | None = always(None)
    presentation_hint: Json = always(None)
    truncated: bool = False
    length: int | UnsetType = UNSET
    base64: str | UnsetType = UNSET
    circular: bool | UnsetType = UNSET
    error: str | None = None
    error_details: ErrorDetails | None = None
    live: Live = UNSET
    note: str | UnsetType = UNSET


class AddWatch(SessionParams, kw_only=True):
    """Watch an expression."""

    expression: Expression


class ListWatches(SessionParams, kw_only=True):
    """List the watches."""


class DeleteWatches(SessionParams, kw_only=True):
    """Remove one watch, or all."""

    watch_id: (
        Annotated[
            str,
            Meta(pattern=WATCH_ID, description="The watch to remove; default: all."),
        ]
        | None
    ) = None


class Watch(Result, kw_only=True):
    id: str
    expression: str
    value: str | None = None
    type: str | None = None
    variables_reference: int = 0
    error: str | None = None


class WatchList(Result, kw_only=True):
    watches: list[Watch]
    total: int


class Completions(SessionParams, kw_only=True):
    """Completions at the cursor."""

    text: Annotated[str, Meta(max_length=65536, description="The text typed so far.")]
    column: (
        Annotated[int, Meta(ge=1, description="The cursor's position, from 1; default: the end.")]
        | None
    ) = None
    frame_id: FrameId = 0
    thread_id: ThreadId | None = None


class Completion(Result, kw_only=True):
    label: str
    type: str | None = None
    # The start of the replaced text, if that is more than the part behind the dot.
    start: int | None = None
    length: int | None = None


class CompletionList(Result, kw_only=True):
    items: list[Completion]


class Hover(SessionParams, kw_only=True):
    """Evaluate an expression that has no side effects."""

    expression: Expression
    frame_id: FrameId = 0
    thread_id: ThreadId | None = None
    timeout: EvaluateTimeout = None


class GetException(SessionParams, kw_only=True):
    """The exception at which the program is stopped."""

    thread_id: ThreadId | None = None


BreakMode = Literal["always", "unhandled", "userUnhandled"]


class RaisedFrame(Result, kw_only=True):
    """One frame through which an exception passed."""

    path: str
    line: int
    function: str
    text: str


class Raised(Result, kw_only=True):
    """One exception; its frames with the outermost first."""

    type: str
    full_type_name: str
    message: str
    traceback: str
    frames: list[RaisedFrame] = []
    frames_omitted: int = 0  # in the middle
    notes: list[str] = []
    members: list[GroupMember] = []
    members_omitted: int = 0


class GroupMember(Raised, kw_only=True):
    """One exception of an exception group."""


class ChainedException(Raised, kw_only=True):
    """The cause of an exception, or the exception that was being handled when it was raised."""

    relation: Literal["cause", "context"]


class ExceptionReport(Raised, kw_only=True):
    thread_id: int
    break_mode: BreakMode
    chain: list[ChainedException] = []  # the nearest first
    chain_truncated: bool = False
    repr: Safe = UNSET
