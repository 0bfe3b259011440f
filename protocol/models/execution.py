"""Running, stepping, stopping, tracing: parameters and results."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from debug_relay.protocol.models.breakpoints import Condition, FoundText, Function
from debug_relay.protocol.models.fields import (
    PYTHON_EXPRESSION,
    Cursor,
    Expression,
    Json,
    Limit,
    Line,
    Location,
    Params,
    Result,
    SessionParams,
    SnapshotBounds,
    SourcePath,
    ThreadId,
    Wait,
    always,
)
from debug_relay.protocol.models.inspection import Stack
from debug_relay.protocol.models.sessions import ExceptionInfo, StopReason
from debug_relay.protocol.models.stop_report import ReturnValue, Stop
from debug_relay.protocol.state import State


class Continue(SessionParams, kw_only=True):
    """Resume the program: all threads, or only one."""

    thread_id: ThreadId | None = None
    wait: Wait = 0.1
    snapshot: SnapshotBounds = False


class Pause(SessionParams, kw_only=True):
    """Stop the program as soon as possible."""

    thread_id: ThreadId | None = None
    wait: Wait = 5
    snapshot: SnapshotBounds = False


class Step(SessionParams, kw_only=True):
    """Run to the next line, into the next call, or out of the function."""

    thread_id: ThreadId | None = None
    granularity: Annotated[
        Literal["line", "statement"], Meta(description="What counts as a step.")
    ] = "line"
    wait: Wait = 30
    snapshot: SnapshotBounds = False


class RunTo(SessionParams, kw_only=True):
    """Run to a line, once; without `file`, a line of the file in which the thread is stopped."""

    file: SourcePath | None = None
    line: Line
    thread_id: ThreadId | None = None
    wait: Wait = 30
    snapshot: SnapshotBounds = False


class Execution(Result, kw_only=True):
    """The state and place of the program after an execution call."""

    session_id: str
    status: State
    completed: bool  # the program stopped or ended within `wait`
    stop_reason: StopReason | None = always(None)
    stop_id: int = 0
    thread_id: int | None = always(None)
    child_pid: int | None = None  #  pid of the thread's process, if that is a child
    current_location: Location | None = always(None)
    # The step has left its line by it, and may stop some frames further up.
    exception: ExceptionInfo | None = None
    exit_code: int | None = None
    signal: str | None = None
    end_reason: str | None = None
    waiting_for_input: bool = False  # the program waits; it continues when it is sent some
    prompt: str | None = None  # what the program printed to ask for it
    events_cursor: str | None = None  # for GET …/events: continues after this reply
    continued: bool | None = None
    return_value: ReturnValue | None = None
    pause_pending: bool | None = None  # a thread in C code stops when it returns from there
    live_stack: Stack | None = None  # where that thread is
    note: str | None = None  # why there is no `live_stack`
    reached: bool | None = None  # whether the stop is at the requested line
    native_frame: bool | None = None  # the step went into a C function, which has returned
    native_callee: str | None = None  # its name
    stop: Stop | None = None
    never_found: list[str] = []  # at the end: functions of breakpoints that were never found


class TraceAt(Params, kw_only=True):
    """A place where rows are recorded: a `line` of a file, the line that contains `text`, or the
    beginning of a `function`."""

    file: Annotated[
        SourcePath | None, Meta(description="Beside `function` by default the program's script.")
    ] = None
    line: Line | None = None
    text: FoundText | None = None
    function: Function | None = None
    label: Annotated[
        Annotated[str, Meta(max_length=200)] | None,
        Meta(description="A name for the rows: a hypothesis perhaps."),
    ] = None
    capture: Annotated[
        list[Expression],
        Meta(max_length=100, description="Expressions that a row of this place contains."),
    ] = []
    condition: Condition | None = None


class StepFiles(Params, kw_only=True):
    """Every line of these files."""

    files: Annotated[
        list[SourcePath], Meta(min_length=1, max_length=1000, description="Source files.")
    ]


At = Annotated[list[TraceAt], Meta(max_length=1000, description="Where rows are recorded.")]
Steps = Annotated[
    Literal["function"] | StepFiles | None,
    Meta(
        description='Instead of `at`, every line: of the current `function` or of `{"files": […]}`.'
    ),
]
Captures = Annotated[
    list[Expression], Meta(max_length=100, description="Expressions that every row contains.")
]
MaxRows = Annotated[int, Meta(ge=1, le=1_000_000, description="End after this number of rows.")]
Until = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=65536,
        description="End after a row for which this is true.",
        extra_json_schema=PYTHON_EXPRESSION,
    ),
]
TraceSeconds = Annotated[
    float, Meta(ge=0, le=300, description="End after this number of seconds.", examples=[5])
]
BackgroundSeconds = Annotated[
    Annotated[float, Meta(ge=0, le=86_400)] | None,
    Meta(
        description="End after this number of seconds: at most 300 and by default 30; in the "
        "background by default 3600.",
        examples=[5],
    ),
]
When = Annotated[
    Literal["always", "changed"],
    Meta(description="`changed` records a row only when a captured value differs from before."),
]
Returns = Annotated[
    bool, Meta(description="Also record what the functions of the traced lines return.")
]
Budget = Annotated[
    int, Meta(ge=100, le=10_000_000, description="Maximum characters of rows in the reply.")
]
Then = Annotated[
    Literal["pause", "continue"] | None,
    Meta(
        description="Whether the program pauses or continues when the trace ends. Default: pause; "
        "in the background continue."
    ),
]


Shape = Annotated[
    Literal["rows", "columns"],
    Meta(
        description="`columns`, for JSON: the names once in `columns`, rows as lists of values, "
        "and in `same` what all rows have alike."
    ),
]


class TraceSpec(Params, kw_only=True):
    """The rows that a run records. Give `at` or `step`."""

    at: At = []
    step: Steps = None
    capture: Captures = []
    when: When = "always"
    returns: Returns = False
    max_rows: MaxRows = 100
    until: Until | None = None
    timeout: TraceSeconds = 30
    budget: Budget = 16_000
    shape: Shape = "rows"


class Trace(SessionParams, kw_only=True):
    """Run and record rows instead of stopping. Give `at` or `step`."""

    at: At = []
    step: Steps = None
    capture: Captures = []
    when: When = "always"
    returns: Returns = False
    max_rows: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)] | None,
        Meta(description="End after this number of rows; default: 100, in the background 10,000."),
    ] = None
    until: Until | None = None
    timeout: BackgroundSeconds = None
    budget: Budget = 16_000
    shape: Shape = "rows"
    then: Then = None
    background: Annotated[
        bool,
        Meta(
            description="Answer at once: the program runs on, `get-trace` reads the rows "
            "meanwhile, and `end-trace` ends it."
        ),
    ] = False

    @property
    def seconds(self) -> float:
        return (3600.0 if self.background else 30.0) if self.timeout is None else self.timeout

    @property
    def rows(self) -> int:
        return (10_000 if self.background else 100) if self.max_rows is None else self.max_rows

    @property
    def pauses(self) -> bool:
        return self.then == "pause" or (self.then is None and not self.background)


class EndTrace(SessionParams, kw_only=True):
    """End the trace that runs; the program runs on."""

    budget: Budget = 16_000
    shape: Shape = "rows"


class GetTrace(SessionParams, kw_only=True):
    """Read further rows of the last trace."""

    cursor: Cursor | None = None
    limit: Limit = 100
    shape: Shape = "rows"


class TraceRow(Result, kw_only=True):
    """A thread reached this line, which itself has not run yet; or with `returned` its function
    has ended there."""

    seq: int
    path: str
    line: int
    function: str
    thread_id: int | None = None
    hit: int  # how often threads have reached this line, this time included
    values: dict[str, str] = {}
    changed: dict[str, str] = {}  # locals that differ from the previous row of the same frame
    bounded: bool = False  # a value was too large to be read completely
    label: str | None = None
    returned: str | None = None
    was: dict[str, str] = {}  # with `when: changed`: the values before
    after: Location | None = None  # with `when: changed`: the line that this thread has run last


TraceEnd = Literal[
    "max_rows", "until", "returned", "timeout", "stopped", "breakpoint", "step", "exception",
    "pause", "entry", "ended", "detached",
]  # fmt: skip


class TraceRows(Execution, kw_only=True):
    """Rows of a trace, and where the program is."""

    rows: list[TraceRow | list[Json]]
    columns: list[str] = []  # with `shape: columns`: what the values of a row are
    same: dict[str, Json] = {}  # and the values that all rows have alike
    ended: TraceEnd | None = None  # why the trace ended; null while it runs
    total: int  # how many rows were recorded
    # Rows that are not in this reply: those that follow, or those behind the first `head` rows.
    left_out: int = 0
    head: int = 0
    dropped: int = 0  # older rows that newer ones have overwritten
    next_cursor: str | None = None
    has_more: bool
    warnings: list[str] = []
