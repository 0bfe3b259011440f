"""Looking into a program: threads, stacks, variables, evaluation."""

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
    Line,
    Location,
    Offset,
    Path,
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


WithLocals = Annotated[
    bool,
    Meta(
        description="Show the program's frames with their locals, and what waits for what. It is "
        "read from outside and runs none of the program's code."
    ),
]
WhichFrames = Annotated[
    Literal["user", "all"], Meta(description="With `locals`: the program's frames, or all.")
]


class Threads(SessionParams, kw_only=True):
    """List the program's threads; with `locals`, also of those that are blocked: one call shows a
    hang."""

    locals: WithLocals = False
    frames: WhichFrames = "user"


class LiveLocal(Result, kw_only=True):
    name: str
    type: str
    value: str


class LiveFrame(Result, kw_only=True):
    """One frame of a thread or task; `id` is that of `…/frames/{frame_id}/…`."""

    id: int
    name: str
    path: str
    line: int
    locals: list[LiveLocal] = []
    locals_left_out: int = 0


class Holder(Result, kw_only=True):
    """A thread or task that could end a wait."""

    # `holds it`; `acquired it` and may have handed it on; `may hold it`, of several; `is it` (a
    # joined thread or task); `computes it` (a future).
    how: str
    thread_id: int | None = None
    task: str | None = None
    name: str | None = None  # the thread's
    location: Location | None = None


class WaitsFor(Result, kw_only=True):
    """The wait of a thread or task, as far as Python knows what it is for."""

    kind: str  # such as `lock`, `queue`, `thread`, `future`, `sleep`; `call`: a function in C
    what: str | None = None  # the program's own expression for it, or the function's name
    doing: str | None = None  # the function of the library in which it waits
    value: str | None = None  # its state
    held_by: list[Holder] = []


class Thread(Result, kw_only=True):
    id: int
    name: str
    status: Literal["running", "paused"]
    is_current: bool
    current_location: Location | None = None
    # A pause is pending: the thread is in C code and stops as soon as it returns.
    pause_pending: bool = False
    pid: int | None = None
    is_child: bool = False  # whether that process is a child of the program
    # With `locals`:
    live: bool | UnsetType = UNSET  # it runs, or is blocked in C: all this was read from outside
    waits_for: WaitsFor | UnsetType = UNSET
    frames: list[LiveFrame] | UnsetType = UNSET  # the innermost first
    frames_left_out: int | UnsetType = UNSET
    total_frames: int | UnsetType = UNSET  # with those of libraries


class ThreadList(Result, kw_only=True):
    threads: list[Thread]
    stopped_thread_id: int | None
    # Threads that wait for each other, each circle once.
    deadlocks: list[list[int]] | UnsetType = UNSET
    note: str | UnsetType = UNSET


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

    expression: Expression
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


class Modules(SessionParams, kw_only=True):
    """The modules that the program has loaded; with `thread_id`, those of that thread's process."""

    thread_id: ThreadId | None = None
    offset: Offset = 0
    limit: Limit = 100


class Module(Result, kw_only=True):
    name: str
    path: str | None = None
    is_user_code: bool


class ModuleList(Result, kw_only=True):
    items: list[Module]
    total: int
    offset: int
    limit: int
    has_more: bool


TokenKind = Literal["keyword", "string", "number", "comment", "definition", "builtin", "decorator"]


class SourceToken(Result, kw_only=True):
    """A part of a line that a page may colour; characters count from 0."""

    start: int
    end: int
    kind: TokenKind


class GetSource(SessionParams, kw_only=True):
    """Source lines, of a file or of a frame."""

    path: Path | None = None
    frame_id: FrameId | None = None
    thread_id: ThreadId | None = None
    start: Line | None = None
    end: Line | None = None
    tokens: Annotated[bool, Meta(description="Also what a page may colour in each line.")] = False


class SourceText(Result, kw_only=True):
    path: str
    start: int
    end: int
    total_lines: int
    lines: list[str]
    tokens: Annotated[
        list[list[SourceToken]] | None,
        Meta(description="For each line: what a page may colour in it."),
    ] = None
    decompiled: Annotated[
        bool,
        Meta(description="Rebuilt from byte code because there is no text; its lines are a guess."),
    ] = False


class Tasks(SessionParams, kw_only=True):
    """The program's asyncio tasks; with `thread_id`, those of that thread's process. With `locals`
    also what each waits for, through what it awaits."""

    thread_id: ThreadId | None = None
    locals: WithLocals = False
    frames: WhichFrames = "user"


class TaskFrame(Result, kw_only=True):
    name: str
    path: str
    line: int
    locals: list[LiveLocal] | UnsetType = UNSET
    locals_left_out: int | UnsetType = UNSET


class Task(Result, kw_only=True):
    name: str
    coroutine: str
    state: Literal["pending", "done", "cancelled"]
    frames: list[TaskFrame] = []  # the suspended coroutine first, then what it awaits
    # the task or tasks that it awaits, else the type of what it awaits
    waiting_for: str | None = None
    current: bool = False  # whether its event loop runs it at this moment
    exception: str | None = None  # the exception that ended it
    waits_for: WaitsFor | UnsetType = UNSET  # with `locals`


class TaskList(Result, kw_only=True):
    tasks: list[Task]
    total: int
    # Tasks that wait for each other, each circle once; with `locals`.
    deadlocks: list[list[str]] | UnsetType = UNSET
    note: str | UnsetType = UNSET
