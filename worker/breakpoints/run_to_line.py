"""Runs the program to a line once. The line is a goal in the program, and no breakpoint.

The goal ends when a thread reaches it, or when the program stops elsewhere before. The result shows
the caller which of the two happened.
"""

from __future__ import annotations

import logging
from typing import Final

from msgspec import Struct

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.breakpoints import BreakpointSpec
from debug_relay.protocol.models.execution import RunTo
from debug_relay.protocol.wire import breakpoint_requests, dap
from debug_relay.worker.breakpoints.functions import LEFT_OUT
from debug_relay.worker.breakpoints.session_breakpoints import Breakpoints
from debug_relay.worker.breakpoints.table import Entry
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.debugging import Debugging
from debug_relay.worker.debugger.hub import KnownThread

log = logging.getLogger("debug_relay.worker")

# pydevd's number for the goal in the program; the numbers of breakpoints are lower.
_NUMBER: Final = 1 << 29


class Goal(Struct):
    server: DebugServer
    thread_id: int | None  # the only one that may reach it
    reached: bool = False


class RunToLine:
    def __init__(self, debugging: Debugging, breakpoints: Breakpoints) -> None:
        self._hub = debugging.hub
        self._probes = debugging.probes
        self._debuggee = debugging.debuggee
        self._breakpoints = breakpoints
        self._goal: Goal | None = None

    async def begin(self, params: RunTo, thread: KnownThread) -> Goal:
        """Set the goal while the program is still paused; refuse a line where it could never
        stop.
        """
        server = thread.server
        server.engine.require(
            "This session has no probe (attached by port), which would stop at the line",
            "Set a breakpoint there, continue, and delete it.",
            self._debuggee.attached,
        )
        entry = await self._verify(params, thread.id)
        only = params.thread_id
        # Set before it is sent: a running thread may reach the line before the answer arrives.
        goal = self._goal = Goal(server, only)
        try:
            left_out = await self._probes.ask(
                server,
                breakpoint_requests.Goal(
                    path=entry.real_path,
                    line=entry.line,
                    thread=None if only is None else thread.dap_id,
                ),
            )
        except BaseException:
            self._goal = None
            raise
        if left_out is not None:
            self._goal = None
            raise _no_line(entry, *LEFT_OUT[left_out])
        return goal

    async def take_back(self, goal: Goal) -> None:
        """The program is not resumed after all."""
        if self._goal is goal:
            self._goal = None
            await self._probes.ask(goal.server, breakpoint_requests.NoGoal())

    async def _verify(self, params: RunTo, thread_id: int) -> Entry:
        """Verify the line; by default it is in the file in which the thread is paused."""
        file = params.file
        if file is None:
            frame = await self._hub.frame(thread_id, 0)
            file = frame.source.path if frame.source and frame.source.path else "<unknown>"
            if file.startswith("<"):
                raise RelayError(
                    Code.BREAKPOINT_FILE_NOT_FOUND,
                    f"Thread {thread_id} is paused in {file}, which is not a file",
                    "Send file as well.",
                    file=file,
                )
        entry = await self._breakpoints.verifier.verify(
            BreakpointSpec(file=file, line=params.line, must_exist=True)
        )
        if not entry.verified:
            raise _no_line(entry, entry.message, entry.suggestion)
        return entry

    async def at_stop(self, server: DebugServer, event: dap.StoppedBody, id: int) -> bool:
        """Whether this stop of thread `id` is the goal; whichever stop comes first ends it."""
        reached = _NUMBER in (event.hit_breakpoint_ids or ())
        goal = self._goal
        if goal is None or goal.server is not server:
            return reached
        if goal.thread_id not in (None, id) and not event.all_threads_stopped:
            return reached  # another thread has stopped by itself
        self._goal = None
        goal.reached = reached
        try:
            await self._probes.ask(server, breakpoint_requests.NoGoal())
        except RelayError as error:
            log.warning("goal.end", extra={"fields": {"error": error.message}})  # program ended
        return reached

    def forget(self) -> None:
        """The program has ended, or runs on without us."""
        self._goal = None


def _no_line(entry: Entry, message: str | None, suggestion: str | None) -> RelayError:
    return RelayError(
        Code.BREAKPOINT_INVALID_LINE,
        f"Line {entry.line} of {entry.path}: {message}",
        suggestion,
        file=entry.path,
        line=entry.line,
    )
