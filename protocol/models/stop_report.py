"""The stop report: everything worth knowing about one stop, in one piece."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import UNSET, Meta

from debug_relay.protocol.models.breakpoints import ValueChange
from debug_relay.protocol.models.fields import (
    Cursor,
    FramesWanted,
    Limit,
    LocalLimit,
    Location,
    OutputBytes,
    ReportBytes,
    Result,
    SessionParams,
    SourceLines,
    Time,
)
from debug_relay.protocol.models.inspection import (
    FoldedFrames,
    Frame,
    Safe,
    SourceRef,
    Variable,
    Watch,
)
from debug_relay.protocol.models.sessions import EndReason, ExceptionInfo, StopReason
from debug_relay.protocol.state import State
from debug_relay.protocol.wire.ring_format import Place


class ReturnValue(Result, kw_only=True):
    type: str | None = None
    value: str


class StoppedThread(Result, kw_only=True):
    id: int
    name: str | None = None
    pid: int | None = None
    is_child: bool = False  # whether that process is a child of the program


class SourceLine(Result, kw_only=True):
    line: int
    text: str
    current: bool = False


class Excerpt(Result, kw_only=True):
    """The lines around the place, as they were when the program stopped there."""

    path: str
    start: int
    end: int
    total_lines: int
    lines: list[SourceLine]


class Change(Result, kw_only=True):
    """A local that changed since the last stop in this frame; null means that it did not exist."""

    name: str
    before: str | None = None
    after: str | None = None


class Printed(Result, kw_only=True):
    """Output since the previous stop; only its end if there was too much."""

    category: str
    text: str


class Cut(Result, kw_only=True):
    """A part of the report that did not fit, or that the caller did not request in full."""

    part: str
    shown: int  # bytes if the part is output
    total: int
    get: Annotated[str, Meta(description="The call that returns the rest.")]


class StopSource(SourceRef, kw_only=True):
    name: str = ""  # the last part of the path


class StopFrame(Frame, kw_only=True):
    """A frame of a stop report."""

    source: StopSource
    column: int = 1
    module_name: str | None = None
    presentation_hint: str = "normal"


class Stop(Result, kw_only=True):
    """The place and reason of a stop, and the program's state there."""

    stop_id: int
    stop_reason: StopReason
    timestamp: Time
    thread: StoppedThread
    current_location: Location | None = None
    source: Excerpt | None = None
    # The frame of `source` and `locals`: of a thread that waits in a library, the program's own.
    frame_id: int = 0
    frames: list[StopFrame] = []
    folded: list[FoldedFrames] = []
    total_frames: int = 0
    locals: list[Variable] = []
    total_locals: int = 0
    changed: list[Change] = []
    new_frame: bool = False  # no earlier stop in this frame is known, so nothing is compared
    watches: list[Watch] = []
    exception: ExceptionInfo | None = None
    return_value: ReturnValue | None = None
    output: list[Printed] = []
    hit_breakpoints: list[str] = []
    value_changes: list[ValueChange] = []  # the watchpoints that were hit have seen these
    cut: list[Cut] = []
    note: str | None = None  # why a part is missing
    repr: Safe = UNSET


KEPT_STOPS: Final = 100  # Stop reports that a session keeps.


class KeptStop(Result, kw_only=True):
    """A report in the session's `stops.ring`: everything known of the stop, before any bound."""

    report: Stop
    # The cursor where the stop's output begins; None means the session's first output.
    printed_from: Place | None


class Snapshot(SessionParams, kw_only=True):
    """The stop report. With `wait`, of the next stop, if the program does not stand at one."""

    wait: Annotated[
        float,
        Meta(
            ge=0,
            le=300,
            description="Seconds to wait for a stop, the end, or a question for input.",
        ),
    ] = 0
    frames: FramesWanted | None = None
    locals: LocalLimit | None = None
    source_lines: SourceLines | None = None
    output_bytes: OutputBytes | None = None
    max_bytes: ReportBytes = 65536


class StopReport(Result, kw_only=True):
    """The stop; without one, how the program is at the end of `wait`."""

    stop: Stop | None = None
    status: State = State.PAUSED
    exit_code: int | None = None
    signal: str | None = None
    end_reason: EndReason | None = None
    waiting_for_input: bool = False
    prompt: str | None = None
    never_found: list[str] = []  # at the end: functions of breakpoints that were never found


class History(SessionParams, kw_only=True):
    """The stop reports of the last 100 stops, the newest first."""

    cursor: Cursor | None = None
    limit: Limit = 100
    max_bytes: ReportBytes = 65536


class HistoryPage(Result, kw_only=True):
    items: list[Stop]
    next_cursor: str | None = None
    has_more: bool
    dropped: int = 0  # stops before the oldest that is kept
