"""Running, stepping, stopping, tracing."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from debug_relay.protocol.breakpoints import Condition
from debug_relay.protocol.fields import (
    Cursor,
    Expression,
    Json,
    Limit,
    Line,
    Location,
    Params,
    Path,
    Result,
    SessionParams,
    SnapshotBounds,
    ThreadId,
    Wait,
)
from debug_relay.protocol.sessions import StopReason
from debug_relay.protocol.state import State


class Continue(SessionParams, kw_only=True):
    """Let the program run on: all threads, or just one."""

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
    """Run to a line, once."""

    file: Path
    line: Line
    thread_id: ThreadId | None = None
    wait: Wait = 30
    snapshot: SnapshotBounds = False


class ReturnValue(Result, kw_only=True):
    type: str | None
    value: str


class Execution(Result, kw_only=True):
    """Where the program is after an execution call."""

    session_id: str
    status: State
    completed: bool  # the program stopped or ended within `wait`
    stop_reason: StopReason | None = None
    stop_id: int = 0
    thread_id: int | None = None
    current_location: Location | None = None
    exit_code: int | None = None
    signal: str | None = None
    end_reason: str | None = None
    continued: bool | None = None
    return_value: ReturnValue | None = None
    pause_pending: bool | None = None
    stop: Json = None


class TraceAt(Params, kw_only=True):
    """A place where rows are recorded."""

    file: Path
    line: Line
    capture: Annotated[
        list[Expression], Meta(description="What a row of this place evaluates.")
    ] = []
    condition: Condition | None = None


class Trace(SessionParams, kw_only=True):
    """Run and record rows instead of stopping."""

    at: Annotated[list[TraceAt], Meta(description="Where rows are recorded.")] = []
    step: Annotated[
        Literal["function"] | dict[str, list[str]] | None,
        Meta(description='Or every line: of the current `function`, or of `{"files": […]}`.'),
    ] = None
    capture: Annotated[list[Expression], Meta(description="What every row evaluates.")] = []
    max_rows: Annotated[int, Meta(ge=1, le=1_000_000, description="End after so many rows.")] = 100
    until: Expression | None = None
    timeout: Wait = 30
    budget: Annotated[
        int,
        Meta(ge=100, le=10_000_000, description="How many characters of rows the reply may have."),
    ] = 16_000
    then: Annotated[
        Literal["pause", "continue"], Meta(description="What the program does when the trace ends.")
    ] = "pause"


class GetTrace(SessionParams, kw_only=True):
    """Read on in the rows of the last trace."""

    cursor: Cursor | None = None
    limit: Limit = 100


class TraceRows(Result, kw_only=True):
    rows: list[Json]
    next_cursor: str | None
    has_more: bool
    stop: Json = None
