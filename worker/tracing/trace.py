"""Traces: the program runs and records rows instead of stopping.

The probe decides in the program what it records (`probe/tracing/trace.py`). This module begins a
trace, ends it, and removes it from the program. A trace whose caller has disconnected runs to its
own end.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.execution import Trace, TraceEnd, TraceRows
from debug_relay.protocol.models.retired_session import TraceRecord
from debug_relay.protocol.state import State
from debug_relay.protocol.trace_pages import FILE, Measure, PageSize, nothing_was_traced
from debug_relay.protocol.wire import probe_events
from debug_relay.protocol.wire import probe_messages as probe
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.debugging import Debugging
from debug_relay.worker.debugger.probe_client import OWN_CODE_SECONDS
from debug_relay.worker.debugger.run_control import RunControl
from debug_relay.worker.state.core import Core
from debug_relay.worker.tracing import row_file
from debug_relay.worker.tracing.plan import Plan, Planner

log = logging.getLogger("debug_relay.worker")

_END_SECONDS: Final = 10.0  # A trace that is ended by a call is removed within this time.
_PAUSE_SECONDS: Final = 5.0  # A trace that ends waits this long for the program to pause.
# Interrupts of a traced thread: the first may be lost in code that catches everything.
_MOST_INTERRUPTS: Final = 2


class RunningTrace:
    """One trace."""

    def __init__(
        self,
        core: Core,
        debugging: Debugging,
        run: RunControl,
        plan: Plan,
        params: Trace,
        file: Path,
    ) -> None:
        self._lifecycle = core.lifecycle
        self._publication = core.publication
        self._hub = debugging.hub
        self._probes = debugging.probes
        self._stops = debugging.stops
        self._run = run
        self._plan = plan
        self._params = params
        self._file = file
        self.record = TraceRecord()
        self._over: TraceEnd | None = None  # the end that the program has reported
        self._stops_by_itself = False  # the program stops at the last row
        self._steps_out = plan.returns and params.pauses
        self._before = self._stops.stop_id
        self._running: asyncio.Task[None] | None = None
        self._left_alone = asyncio.Event()  # never set: a trace does not end with its caller

    async def begin(self, decide: Callable[[], None]) -> None:
        """Begin to record rows, and resume the program if it is paused. `decide` raises if the
        caller may not resume it any more.
        """
        params = self._params
        stop = self._stops.current
        try:
            await asyncio.to_thread(row_file.make_file, self._file, params.rows)
        except OSError as error:
            raise RelayError(
                Code.INTERNAL_ERROR,
                f"The disk has no room for rows in {self._file.parent}: {error.strerror}",
                "Make room on that disk, or send a smaller max_rows.",
            ) from None
        await self._probes.ask(
            self._plan.server,
            probe.Trace(
                ring=str(self._file),
                rows=params.rows,
                pause=params.pauses,
                spots=self._plan.spots,
                lines=self._plan.lines,
                until=params.until,
                changed=params.when == "changed",
                ends=params.when == "changed" and params.step is not None,
                returns=params.returns,
                frame=self._plan.frame,
                entry=stop is not None and stop.reason == "entry",
            ),
        )
        try:
            decide()
        except RelayError:
            await self._remove()
            raise
        if stop is not None:
            thread = self._run.thread_to_move(stop.thread_id)
            if self._steps_out:
                self._run.resume_process(thread, "stepOut")
            else:
                self._run.resume_all()
        self._running = asyncio.create_task(self._finish(), name="trace")

    async def done(self, abandoned: asyncio.Event) -> None:
        """Wait for the trace's end, or until the caller has disconnected."""
        await self._publication.until(
            lambda: self.record.ended is not None, self._params.seconds + 30, abandoned
        )

    async def end(self, abandoned: asyncio.Event) -> None:
        """End it as its caller asks; the program runs on."""
        if self.record.ended is None and self._over is None:
            self._over = "stopped"
            self._publication.changed()
        await self._publication.until(
            lambda: self.record.ended is not None, _END_SECONDS, abandoned
        )

    async def close(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    # -- what the program reports

    def take(self, server: DebugServer, update: probe_events.TraceUpdate) -> None:
        record = self.record
        if server is not self._plan.server or record.ended is not None:
            return
        if update.thread is not None:
            record.threads[update.thread] = self._hub.thread_id(server, update.thread)
        if update.problem is not None and update.where is not None:
            record.warnings.append(f"{update.where.path}:{update.where.line}: {update.problem}")
        if update.over is not None:
            self._over = update.over
            self._stops_by_itself = self._params.pauses and not update.breakpoint
            self._publication.changed()

    @property
    def stops_by_itself(self) -> bool:
        """Whether the program's next stop is the trace's end, and not a breakpoint."""
        return self.record.ended is None and self._stops_by_itself

    # -- its end

    async def _finish(self) -> None:
        reason: TraceEnd = "ended"
        try:
            reason = self._reason() if await self._in_time() else "timeout"
            await self._remove()
            if reason == "timeout" and self._params.pauses:
                await self._pause()
        except RelayError as error:
            # The program ended meanwhile, or another caller resumed it; the state shows which.
            log.warning("trace.end", extra={"fields": {"error": error.message}})
        finally:
            self.record.ended = reason
            self._publication.changed()

    async def _in_time(self) -> bool:
        """Waits for the end; whether it came in time. Each captured expression has
        `OWN_CODE_SECONDS`, as other values have.
        """
        server = self._plan.server
        deadline = time.monotonic() + self._params.seconds
        while (left := deadline - time.monotonic()) > 0:
            if await self._publication.until(
                self._at_end, min(OWN_CODE_SECONDS, left), self._left_alone
            ):
                return True
            if not server.lost:
                self._probes.send(server, probe.Interrupt(after=OWN_CODE_SECONDS, only="trace"))
        return self._at_end()

    def _at_end(self) -> bool:
        if self._lifecycle.state is not State.RUNNING or self._stops.stop_id > self._before:
            return True
        if self._over == "stopped":
            return True
        return self._over is not None and not self._params.pauses

    def _reason(self) -> TraceEnd:
        if self._over is not None:
            return self._over
        if self._lifecycle.state is State.CREATED:
            return "detached"
        if self._stops.current is None or self._lifecycle.state is not State.PAUSED:
            return "ended"
        if self._steps_out and self._stops.current.reason == "step":
            return "returned"
        return self._stops.current.reason

    async def _remove(self) -> None:
        """Remove the trace from the program."""
        server = self._plan.server
        if server.lost or server not in self._hub.servers:
            return
        await self._probes.ask(server, probe.Untrace())
        for _ in range(_MOST_INTERRUPTS):
            # A captured expression that never ends would keep its thread for ever.
            if self._lifecycle.state is not State.RUNNING or not await self._is_evaluating(server):
                return
            await self._probes.ask(server, probe.Interrupt())
            await self._publication.until(lambda: False, 0.1, self._left_alone)

    async def _is_evaluating(self, server: DebugServer) -> bool:
        return await self._probes.ask(server, probe.Running()) > 0

    async def _pause(self) -> None:
        if self._lifecycle.state is State.RUNNING:
            self._run.request_pause()
            await self._run.until_paused(self._before, _PAUSE_SECONDS, self._left_alone)


class Traces:
    """The session's last trace; one at a time."""

    def __init__(self, core: Core, debugging: Debugging, run: RunControl, planner: Planner) -> None:
        self._core = core
        self._debugging = debugging
        self._settings = core.settings
        self._lifecycle = core.lifecycle
        self._run = run
        self._planner = planner
        self._last: RunningTrace | None = None
        # The record of the last trace, which an earlier worker of the session may have run.
        self._record: TraceRecord | None = None
        self._file = core.settings.folder / FILE

    def take(self, server: DebugServer, update: probe_events.TraceUpdate) -> None:
        if self._last is not None:
            self._last.take(server, update)

    @property
    def record(self) -> TraceRecord | None:
        """The record of the session's last trace."""
        return self._record

    def take_over(self, record: TraceRecord | None) -> None:
        """Take over the trace that the session's earlier worker has left."""
        self._record = record if self._file.is_file() else None

    @property
    def stops_the_program(self) -> bool:
        return self._last is not None and self._last.stops_by_itself

    async def begin(self, params: Trace, decide: Callable[[], None]) -> RunningTrace:
        if self._last is not None and self._last.record.ended is None:
            raise RelayError(
                Code.INVALID_SESSION_STATE,
                "A trace is already running in this session",
                f"{call_of('get-trace')} reads its rows; {call_of('end-trace')} ends it; "
                f"{call_of('snapshot')}?wait=30 waits for the program's next stop.",
                current_state=self._lifecycle.state.value,
                required_state="paused",
            )
        plan = await self._planner.plan_of(params)
        tracing = RunningTrace(self._core, self._debugging, self._run, plan, params, self._file)
        before, self._last = (self._last, self._record), tracing
        self._record = tracing.record
        try:
            await tracing.begin(decide)
        except BaseException:
            self._last, self._record = before
            raise
        return tracing

    async def end(self, abandoned: asyncio.Event) -> None:
        """End the trace that runs; one that is over already stays as it is."""
        if self._record is None:
            raise nothing_was_traced(self._lifecycle.state)
        if self._last is not None:
            await self._last.end(abandoned)

    async def page(
        self, cursor: str | None, most: PageSize, measure: Measure, from_first: bool = False
    ) -> TraceRows:
        """Rows of the session's last trace: from the cursor on, or `from_first`; otherwise, when
        it is over, its last ones.
        """
        record = self._record
        if record is None:
            raise nothing_was_traced(self._lifecycle.state)
        now = self._run.result(completed=record.ended is not None)
        return await asyncio.to_thread(
            row_file.read_page,
            self._file,
            self._settings.id,
            record,
            cursor,
            most,
            now,
            measure,
            from_first,
        )

    async def close(self) -> None:
        if self._last is not None:
            await self._last.close()
