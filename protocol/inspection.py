"""Looking into a program: threads, stacks, variables, evaluation."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from debug_relay.protocol.fields import (
    Cursor,
    Expression,
    FrameId,
    Json,
    Limit,
    Line,
    Offset,
    Path,
    Reference,
    Result,
    SessionParams,
    ThreadId,
)

Levels = Annotated[int, Meta(ge=1, le=1000, description="How many frames.")]
Start = Annotated[int, Meta(ge=0, description="Where to begin.")]
CountOf = Annotated[int, Meta(ge=1, le=1000, description="How many at most.")]


class Threads(SessionParams, kw_only=True):
    """List the program's threads."""


class Thread(Result, kw_only=True):
    id: int
    name: str
    status: Literal["running", "paused"]
    is_current: bool
    pid: int | None = None


class ThreadList(Result, kw_only=True):
    threads: list[Thread]
    stopped_thread_id: int | None


class Stacktrace(SessionParams, kw_only=True):
    """The call stack of a thread."""

    thread_id: ThreadId | None = None
    start_frame: Start = 0
    levels: Levels = 20


class SourceRef(Result, kw_only=True):
    path: str
    name: str


class Frame(Result, kw_only=True):
    id: int
    name: str
    source: SourceRef
    line: int
    column: int
    module_name: str | None = None
    presentation_hint: str = "normal"


class Stack(Result, kw_only=True):
    thread_id: int
    frames: list[Frame]
    total_frames: int
    has_more: bool = False
    live: bool = False  # read from a running thread: a moment's picture


class Scopes(SessionParams, kw_only=True):
    """The variable scopes of a frame."""

    frame_id: FrameId = 0
    thread_id: ThreadId | None = None


class Scope(Result, kw_only=True):
    name: str
    presentation_hint: str | None
    variables_reference: int
    named_variables: int | None = None
    indexed_variables: int | None = None
    expensive: bool = False


class ScopeList(Result, kw_only=True):
    frame_id: int
    thread_id: int
    scopes: list[Scope]


class Variables(SessionParams, kw_only=True):
    """The variables of a scope, or the children of a variable."""

    variables_reference: Reference
    start: Start = 0
    count: CountOf = 100
    filter: Annotated[
        Literal["indexed", "named"] | None, Meta(description="Only elements, or only names.")
    ] = None
    frame_id: FrameId | None = None
    summary: Annotated[bool, Meta(description="Short values only.")] = False


class FrameVariables(SessionParams, kw_only=True):
    """The local variables of a frame."""

    frame_id: FrameId
    thread_id: ThreadId | None = None
    start: Start = 0
    count: CountOf = 100
    scope: Annotated[
        Literal["locals", "globals"], Meta(description="Which variables of the frame.")
    ] = "locals"
    summary: Annotated[bool, Meta(description="Short values only.")] = False


class Variable(Result, kw_only=True):
    name: str
    value: str
    type: str
    variables_reference: int
    named_variables: int | None = None
    indexed_variables: int | None = None
    length: int | None = None
    expandable: bool = False
    presentation_hint: Json = None
    truncated: bool = False


class VariableList(Result, kw_only=True):
    variables_reference: int
    variables: list[Variable]
    total: int
    has_more: bool


class SetVariable(SessionParams, kw_only=True):
    """Assign to a variable."""

    variables_reference: Reference
    name: Annotated[
        str, Meta(min_length=1, max_length=4096, description="The variable within that container.")
    ]
    value: Expression


class VariableSet(Result, kw_only=True):
    name: str
    value: str
    type: str | None
    variables_reference: int


class Evaluate(SessionParams, kw_only=True):
    """Evaluate an expression in a stopped frame."""

    expression: Expression
    frame_id: FrameId = 0
    thread_id: ThreadId | None = None
    context: Annotated[
        Literal["watch", "repl", "hover"],
        Meta(description="`repl` takes statements too; `watch` and `hover` only expressions."),
    ] = "repl"
    timeout: (
        Annotated[
            float,
            Meta(
                gt=0,
                le=300,
                description="Seconds until the evaluation is interrupted; by default the setting.",
            ),
        ]
        | None
    ) = None


class ErrorDetails(Result, kw_only=True):
    type: str
    message: str
    traceback: str


class Evaluated(Result, kw_only=True):
    result: str | None
    type: str | None
    variables_reference: int = 0
    named_variables: int | None = None
    indexed_variables: int | None = None
    presentation_hint: Json = None
    truncated: bool = False
    error: str | None = None
    error_details: ErrorDetails | None = None


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
            Meta(pattern=r"^watch_[1-9][0-9]*$", description="The one to remove; by default all."),
        ]
        | None
    ) = None


class Watch(Result, kw_only=True):
    id: str
    expression: str
    value: str | None = None
    type: str | None = None
    error: str | None = None


class WatchList(Result, kw_only=True):
    watches: list[Watch]
    total: int


class Completions(SessionParams, kw_only=True):
    """What could stand at the cursor."""

    text: Annotated[str, Meta(max_length=65536, description="What has been typed.")]
    column: (
        Annotated[
            int, Meta(ge=1, description="Where the cursor is, from 1; by default at the end.")
        ]
        | None
    ) = None
    frame_id: FrameId = 0
    thread_id: ThreadId | None = None


class CompletionList(Result, kw_only=True):
    items: list[Json]


class Hover(SessionParams, kw_only=True):
    """A value, without side effects intended."""

    expression: Expression
    frame_id: FrameId = 0
    thread_id: ThreadId | None = None


class GetException(SessionParams, kw_only=True):
    """The exception at which the program is stopped."""

    thread_id: ThreadId | None = None


class ExceptionReport(Result, kw_only=True):
    type: str
    message: str
    traceback: str
    chain: list[Json] = []


class Modules(SessionParams, kw_only=True):
    """The modules that the program has loaded."""

    offset: Offset = 0
    limit: Limit = 100


class ModuleList(Result, kw_only=True):
    items: list[Json]
    total: int
    offset: int
    limit: int
    has_more: bool


class GetSource(SessionParams, kw_only=True):
    """Source lines, of a file or of a frame."""

    path: Path | None = None
    frame_id: FrameId | None = None
    thread_id: ThreadId | None = None
    start: Line | None = None
    end: Line | None = None


class SourceText(Result, kw_only=True):
    path: str
    start: int
    end: int
    total_lines: int
    lines: list[str]


class Snapshot(SessionParams, kw_only=True):
    """The stop report."""

    frames: Annotated[int, Meta(ge=0, le=1000, description="How many frames.")] = 20
    locals: Annotated[int, Meta(ge=0, le=1000, description="How many locals of the top frame.")] = (
        50
    )
    source_lines: Annotated[
        int, Meta(ge=0, le=1000, description="How many source lines on each side.")
    ] = 3
    output_bytes: Annotated[int, Meta(ge=0, description="How much of the last output.")] = 4096
    max_bytes: Annotated[int, Meta(ge=1024, description="How large the report may be.")] = 65536


class StopReport(Result, kw_only=True):
    stop: Json


class History(SessionParams, kw_only=True):
    """The stop reports of the past."""

    cursor: Cursor | None = None
    limit: Limit = 100


class HistoryPage(Result, kw_only=True):
    items: list[Json]
    next_cursor: str | None
    has_more: bool


class Tasks(SessionParams, kw_only=True):
    """The asyncio tasks of the program."""


class TaskList(Result, kw_only=True):
    tasks: list[Json]
