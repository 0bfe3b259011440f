"""Running, stepping, stopping, tracing."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from debug_relay.protocol.fields import (
    Cursor,
    Expression,
    Json,
    Limit,
    Line,
    Location,
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
    granularity: Literal["line", "statement"] = "line"
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


class TraceAt(Result, kw_only=True):
    file: str
    line: int
    capture: list[str] = []
    condition: str | None = None


class Trace(SessionParams, kw_only=True):
    """Run and record rows instead of stopping."""

    at: list[TraceAt] = []
    step: Literal["function"] | dict[str, list[str]] | None = None
    capture: list[Expression] = []
    max_rows: Annotated[int, Meta(ge=1, le=1_000_000)] = 100
    until: Expression | None = None
    timeout: Wait = 30
    budget: Annotated[int, Meta(ge=100, le=10_000_000)] = 16_000
    then: Literal["pause", "continue"] = "pause"


class GetTrace(SessionParams, kw_only=True):
    """Read on in the rows of the last trace."""

    cursor: Cursor | None = None
    limit: Limit = 100


class TraceRows(Result, kw_only=True):
    rows: list[Json]
    next_cursor: str | None
    has_more: bool
    stop: Json = None
