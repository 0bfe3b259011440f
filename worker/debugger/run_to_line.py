"""Running to a line, once: a goal in the program that no list of breakpoints knows.

It ends when it is reached, or when the program stops elsewhere before; who waits for it is told
which of the two.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.breakpoints import BreakpointSpec
from debug_relay.protocol.models.execution import RunTo
from debug_relay.protocol.wire import dap
from debug_relay.worker.breakpoints.functions import LEFT_OUT
from debug_relay.worker.breakpoints.table import Entry
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.hub import KnownThread

if TYPE_CHECKING:
    from debug_relay.worker.session.session import Session

log = logging.getLogger("debug_relay.worker")

# pydevd's number for it in the program; those of breakpoints are lower.
_NUMBER: Final = 1 << 29


class Goal(Struct):
    server: DebugServer
    thread_id: int | None  # the only one that may reach it
    reached: bool = False


async def begin(session: Session, params: RunTo, thread: KnownThread) -> Goal:
    """The program still stands; what it could never stop at is refused."""
    server = thread.server
    if not server.has_probe:
        joined = session.target is not None and session.target.attached
        raise RelayError(
            Code.ATTACH_UNSUPPORTED if joined else Code.DEBUGPY_ERROR,
            "The program runs without the relay's own part, which looks out for the line",
            "Set a breakpoint there, continue, and delete it.",
        )
    entry = await _judged(session, params, thread.id)
    only = params.thread_id
    # Before it is sent: a thread that runs may reach it before the answer is here.
    goal = session.goal = Goal(server, only)
    try:
        left_out = await session.asking.ask(
            server,
            "goal",
            path=entry.real_path,
            line=entry.line,
            thread=None if only is None else thread.dap_id,
        )
    except BaseException:
        session.goal = None
        raise
    if left_out is not None:
        session.goal = None
        raise _no_line(entry, *LEFT_OUT[left_out])
    return goal


async def _judged(session: Session, params: RunTo, thread_id: int) -> Entry:
    """The line, if the program can come to it; by default one of the file in which it stands."""
    file = params.file
    if file is None:
        frame = await session.hub.frame(thread_id, 0)
        file = frame.source.path if frame.source and frame.source.path else "<unknown>"
        if file.startswith("<"):
            raise RelayError(
                Code.BREAKPOINT_FILE_NOT_FOUND,
                f"Thread {thread_id} stands in {file}, which is no file",
                "Name the file that is meant.",
                file=file,
            )
    entry = await session.breakpoints.judged(
        BreakpointSpec(file=file, line=params.line, must_exist=True)
    )
    if not entry.verified:
        raise _no_line(entry, entry.message, entry.suggestion)
    return entry


def _no_line(entry: Entry, message: str | None, suggestion: str | None) -> RelayError:
    return RelayError(
        Code.BREAKPOINT_INVALID_LINE,
        f"Line {entry.line} of {entry.path}: {message}",
        suggestion,
        file=entry.path,
        line=entry.line,
    )


async def at_stop(session: Session, server: DebugServer, event: dap.StoppedBody, id: int) -> bool:
    """Whether this stop of thread `id` is the goal; whichever stop comes first is its end."""
    reached = _NUMBER in (event.hit_breakpoint_ids or ())
    goal = session.goal
    if goal is None or goal.server is not server:
        return reached
    if goal.thread_id not in (None, id) and not event.all_threads_stopped:
        return reached  # another thread, which has stopped by itself
    session.goal = None
    goal.reached = reached
    try:
        await session.asking.ask(server, "no_goal")
    except RelayError as error:
        log.warning("goal.end", extra={"fields": {"error": error.message}})  # its program ended
    return reached
