"""The stop reports of a session: collected at every stop, kept for the last 100, returned on
demand.

The probe pushes its part after each stop. Without it, a caller that wants a report triggers DAP
calls. This module adds what only the worker knows: source lines, output, breakpoints, reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from debug_relay.protocol.errors import RelayError
from debug_relay.protocol.models.fields import Bounds, frame_count
from debug_relay.protocol.models.output_events import Category
from debug_relay.protocol.models.stop_report import KEPT_STOPS, Cut, KeptStop, ReturnValue
from debug_relay.protocol.models.stop_report import Stop as Report
from debug_relay.protocol.rendering.size_limit import calls_for_rest as calls_for
from debug_relay.protocol.rendering.size_limit import printed_bytes
from debug_relay.protocol.wire import probe_messages as probe
from debug_relay.protocol.wire.envelope import timestamp
from debug_relay.protocol.wire.probe_answers import Fold, StopReport, ThreadReport
from debug_relay.protocol.wire.ring_format import Place
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.debugging import Debugging
from debug_relay.worker.debugger.probe_client import OWN_CODE_SECONDS
from debug_relay.worker.debugger.stopped_threads import Stop
from debug_relay.worker.inspection.stop_report_builder import ReportBuilder
from debug_relay.worker.inspection.stop_ring import StopRing
from debug_relay.worker.inspection.watches import Watches
from debug_relay.worker.source.excerpts import Sources
from debug_relay.worker.state.log import SessionLog
from debug_relay.worker.state.settings import Settings

log = logging.getLogger("debug_relay.worker")

PUSHED: Final = Bounds()  # the probe sends this much with each stop
_PUSHED_FRAMES: Final = frame_count(PUSHED.frames)
TEXT_CHARACTERS: Final = 200  # One value in a stop report.
SAFE_BY_DAP: Final = (
    "This session has no probe (attached by port): pydevd runs the program's code to show values, "
    "which needs sessions:write. The values are those that an authorised caller saw last."
)
_PRINTED_BYTES: Final = 65536  # The output in a stop report.
_ARRIVAL_SECONDS: Final = 2.0  # A caller waits this long for the report of a stop.


class Kept(Struct):
    """One stop, as it is reported now and later."""

    stop_id: int
    at: str
    stop: Stop
    server: DebugServer
    lines: list[str] | None
    printed: list[tuple[Category, bytes]]
    printed_bytes: int
    printed_from: Place | None  # in the session's output; None is its beginning
    arrived: asyncio.Event
    watched: dict[str, str]
    # The source of the program's own frame, if a library's is at the top.
    own_lines: list[str] | None = None
    report: ThreadReport | None = None
    returned: ReturnValue | None = None
    note: str | None = None


class Composed(NamedTuple):
    """A report, and for each of its parts the call that returns what was left out."""

    report: Report
    calls: Mapping[str, str]


class StopReports:
    def __init__(
        self,
        settings: Settings,
        log: SessionLog,
        debugging: Debugging,
        watches: Watches,
        sources: Sources,
    ) -> None:
        self._settings = settings
        self._log = log
        self._hub = debugging.hub
        self._probes = debugging.probes
        self._stops = debugging.stops
        self._watches = watches
        self._builder = ReportBuilder(debugging.hub)
        self.sources = sources
        self.kept: deque[Kept] = deque(maxlen=KEPT_STOPS)
        self.current: Kept | None = None
        self._printed: deque[tuple[Category, bytes]] = deque()
        self._printed_room = _PRINTED_BYTES
        self._printed_bytes = 0
        self._printed_from: Place | None = None
        self._interrupts: dict[int, asyncio.TimerHandle] = {}
        self._interrupting: set[asyncio.Task[None]] = set()
        self._file = StopRing(settings.folder / "stops.ring", self._as_kept)

    # -- collecting

    def printed(self, category: Category, data: bytes) -> None:
        self._printed_bytes += len(data)
        data = data[-_PRINTED_BYTES:]
        self._printed.append((category, data))
        self._printed_room -= len(data)
        while self._printed_room < 0:
            self._printed_room += len(self._printed.popleft()[1])

    def begin(self, stop: Stop, stop_id: int, server: DebugServer, lines: list[str] | None) -> None:
        """The program is paused; the probe's part of the report will follow."""
        self.current = Kept(
            stop_id=stop_id,
            at=timestamp(),
            stop=stop,
            server=server,
            lines=lines,
            printed=list(self._printed),
            printed_bytes=self._printed_bytes,
            printed_from=self._printed_from,
            arrived=asyncio.Event(),
            watched=self._watches.texts(),
        )
        self.printed_anew()
        self.kept.append(self.current)
        self._file.begin(stop_id)
        if server.engine.can.report_stops:
            loop = asyncio.get_running_loop()
            self._interrupts[stop_id] = loop.call_later(
                OWN_CODE_SECONDS, self._interrupt, self.current
            )
        else:
            self.current.arrived.set()  # without the probe no report arrives by itself

    def arrived(self, server: DebugServer, answer: StopReport) -> None:
        """Take the probe's part. It belongs to its stop even if the program has been resumed."""
        report = answer.report
        kept = self._awaited(server, report)
        if kept is None:
            return
        if report is not None:
            kept.report = report
            self._watches.seen(kept.stop_id, report.watches)
        else:
            kept.note = "The program could not report its variables"
            raised = answer.raised.traceback if answer.raised is not None else None
            log.warning("stop.report_failed", extra={"fields": {"raised": raised}})
        kept.arrived.set()
        self._cancel_interrupt(kept.stop_id)
        self._file.write_later()

    def _awaited(self, server: DebugServer, report: ThreadReport | None) -> Kept | None:
        """The stop to which the part belongs: the last one of that thread, if it has none yet."""
        thread_id = None
        if report is not None:
            thread_id = self._hub.thread_id(server, report.thread)
        for kept in reversed(self.kept):
            if kept.server is server and thread_id in (None, kept.stop.thread_id):
                return None if kept.arrived.is_set() else kept
        return None

    def turn_to(self, stop: Stop, server: DebugServer) -> None:
        """Another stopped thread is selected, which may have sent no report of its own."""
        known = next((kept for kept in reversed(self.kept) if kept.stop is stop), None)
        if known is None:
            known = Kept(
                stop_id=stop.stop_id,
                at=timestamp(),
                stop=stop,
                server=server,
                lines=None,
                printed=[],
                printed_bytes=0,
                printed_from=None,
                arrived=asyncio.Event(),
                watched=self._watches.texts(),
            )
            known.arrived.set()
        self.current = known

    def located(self, stop: Stop, lines: list[str] | None) -> None:
        """The selected thread's place was found later; `lines` are those of that file."""
        if self.current is not None:
            self.current.lines = lines

    def returned(self, stop_id: int, value: ReturnValue | None) -> None:
        """The return value of the function that was stepped out of."""
        if self.current is not None and self.current.stop_id == stop_id:
            self.current.returned = value
            self._file.write_later()

    def printed_anew(self) -> None:
        """Drop the output of an earlier run: it does not belong to the first stop."""
        self._printed.clear()
        self._printed_from = self._log.output.place
        self._printed_room, self._printed_bytes = _PRINTED_BYTES, 0

    def ended(self) -> None:
        """The program runs again, or has ended."""
        self.current = None
        self._file.write_later()

    def _cancel_interrupt(self, stop_id: int) -> None:
        timer = self._interrupts.pop(stop_id, None)
        if timer is not None:
            timer.cancel()

    def _interrupt(self, kept: Kept) -> None:
        self._interrupts.pop(kept.stop_id, None)
        task = asyncio.create_task(self._interrupt_report(kept), name="interrupt")
        self._interrupting.add(task)
        task.add_done_callback(self._interrupting.discard)

    async def _interrupt_report(self, kept: Kept) -> None:
        """Interrupt a slow report twice: the program's code may have caught the first interrupt."""
        for _ in range(2):
            if kept.arrived.is_set() or kept.server.lost:
                return
            try:
                await self._probes.ask(kept.server, probe.Interrupt(reports=True))
            except RelayError as error:
                log.warning("stop.interrupt_failed", extra={"fields": {"error": error.message}})
                return
            try:
                async with asyncio.timeout(OWN_CODE_SECONDS):
                    await kept.arrived.wait()
            except TimeoutError:
                continue

    async def close(self) -> None:
        for stop_id in list(self._interrupts):
            self._cancel_interrupt(stop_id)
        interrupting = list(self._interrupting)
        for task in interrupting:
            task.cancel()
        await asyncio.gather(*interrupting, return_exceptions=True)
        self._file.close()

    # -- reporting

    async def written(self) -> None:
        """Write the reports as they are now into the file."""
        await self.settled()
        self._file.write()

    def _as_kept(self, stop_id: int) -> tuple[KeptStop, bool] | None:
        kept = next((kept for kept in reversed(self.kept) if kept.stop_id == stop_id), None)
        if kept is None:
            return None
        report = self._composed(kept, kept.report, Bounds()).report
        may_change = self._is_present(kept) or not kept.arrived.is_set()
        return KeptStop(report=report, printed_from=kept.printed_from), may_change

    def _is_present(self, kept: Kept) -> bool:
        return kept is self.current or self._stops.threads.of(kept.stop.thread_id) is kept.stop

    async def settled(self) -> None:
        """Wait until the present stop's report has arrived, or takes too long."""
        if self.current is not None:
            await self._pushed(self.current)

    async def of_stop(self, stop_id: int, bounds: Bounds) -> Composed | None:
        """The report of a stop for which a call has waited; None if it is forgotten already."""
        kept = next((kept for kept in reversed(self.kept) if kept.stop_id == stop_id), None)
        if kept is None:
            return None
        larger = frame_count(bounds.frames) > _PUSHED_FRAMES or bounds.locals > PUSHED.locals
        report = None if larger else await self._reported(kept, bounds)
        if report is None or (report.in_library and _fold(kept, bounds) != "top"):
            report = await self._fresh(kept, bounds)
        return self._composed(kept, report, bounds)

    async def now(self, bounds: Bounds, safe: bool = False) -> Composed:
        """The report of the present stop, made anew: variables may have been set, watches added.

        With `safe` none of the program's code is run: values are read anew, but watches and changes
        are those of the stop.
        """
        kept = self.current
        assert kept is not None
        if safe:
            return await self._now_safely(kept, bounds)
        kept.watched = self._watches.texts()
        report = await self._fresh(kept, bounds)
        self._watches.seen(kept.stop_id, report.watches if report is not None else ())
        return self._composed(kept, report, bounds)

    async def _now_safely(self, kept: Kept, bounds: Bounds) -> Composed:
        report = await self._pushed(kept)
        if kept is self.current:
            try:
                report = _read_anew(report, (await self._query(kept, bounds, safe=True)).report)
            except RelayError as error:
                kept.note = f"Some of it could not be read: {error.message}"
        shown = self._composed(kept, report, bounds)
        if not kept.server.engine.can.render_safely:
            shown.report.note = SAFE_BY_DAP
        shown.report.repr = "safe"
        return shown

    async def _query(self, kept: Kept, bounds: Bounds, safe: bool = False) -> StopReport:
        """Ask the stopped thread itself."""
        return await self._probes.report(
            kept.stop.thread_id,
            frame_count(bounds.frames),
            bounds.locals,
            TEXT_CHARACTERS,
            self._settings.evaluate_timeout,
            safe,
            _fold(kept, bounds),
        )

    async def _reported(self, kept: Kept, bounds: Bounds) -> ThreadReport | None:
        """The report that the probe sent with the stop; without the probe, one made now."""
        if kept.server.engine.can.report_stops:
            return await self._pushed(kept)
        return await self._fresh(kept, bounds)

    async def _pushed(self, kept: Kept) -> ThreadReport | None:
        """Wait for the report that the probe sends with each stop."""
        try:
            async with asyncio.timeout(_ARRIVAL_SECONDS):
                await kept.arrived.wait()
        except TimeoutError:
            kept.note = "The program is still busy showing its variables"
        return kept.report

    async def _fresh(self, kept: Kept, bounds: Bounds) -> ThreadReport | None:
        if kept is not self.current:
            return await self._pushed(kept)
        try:
            report = (await self._query(kept, bounds)).report
        except RelayError as error:
            kept.note = f"Some of it could not be read: {error.message}"
            return kept.report
        if report is None:
            return await self._pushed(kept)
        if report.numbers and report.numbers[0] and report.frames:
            kept.own_lines = await self.sources.lines(report.frames[0][1])
        if not kept.server.engine.can.report_stops:
            # Kept, because without the probe nothing else is known of this stop.
            kept.report = report
        return report

    def _composed(self, kept: Kept, thread: ThreadReport | None, bounds: Bounds) -> Composed:
        report = self._builder.composed(kept, thread, bounds, self._is_present(kept))
        folded = sum(one.count for one in report.folded)
        calls = calls_for(self._settings.id, bounds.max_bytes, kept.printed_from)
        for part, shown, total in (
            ("frames", len(report.frames) + folded, report.total_frames),
            ("locals", len(report.locals), report.total_locals),
            ("output", printed_bytes(report), kept.printed_bytes),
        ):
            if shown < total:
                report.cut.append(Cut(part=part, shown=shown, total=total, get=calls[part]))
        return Composed(report, calls)


def _fold(kept: Kept, bounds: Bounds) -> Fold:
    """Which frames of libraries are folded: a thread that a pause has found in one only waits
    there.
    """
    if bounds.frames == "all":
        return "none"
    return "own" if kept.stop.reason == "pause" else "top"


def _read_anew(report: ThreadReport | None, now: ThreadReport | None) -> ThreadReport | None:
    """The values as they are now, with the watches and changes of the stop."""
    if report is None or now is None:
        return report or now
    return replace(now, watches=report.watches, changed=report.changed, new_frame=report.new_frame)
