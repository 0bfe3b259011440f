"""Applies the probe's events: stop reports, child processes, and what it says of breakpoints."""

from __future__ import annotations

from collections.abc import Mapping

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.secrets import masked_command
from debug_relay.protocol.wire import probe_events
from debug_relay.protocol.wire.probe_answers import StopReport
from debug_relay.worker.breakpoints.exceptions import ExceptionFilters
from debug_relay.worker.breakpoints.log_points import LogPoints
from debug_relay.worker.breakpoints.session_breakpoints import Breakpoints
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.inspection.stop_reports import StopReports
from debug_relay.worker.session.debug_events import Handler
from debug_relay.worker.state.log import SessionLog
from debug_relay.worker.state.settings import Settings


class ProbeEvents:
    def __init__(
        self,
        settings: Settings,
        log: SessionLog,
        breakpoints: Breakpoints,
        exceptions: ExceptionFilters,
        log_points: LogPoints,
        reports: StopReports,
    ) -> None:
        self._settings = settings
        self._log = log
        self._breakpoints = breakpoints
        self._exceptions = exceptions
        self._log_points = log_points
        self._reports = reports
        self.handlers: Mapping[str, Handler] = {
            "relayStop": self._stop_report,
            "relaySubprocess": self._subprocess,
            "relayError": self._breakpoint_error,
            "relayFunction": self._function_found,
            "relayGreenlets": self._greenlets,
            "relayHot": self._hot_breakpoint,
            "relayLog": self._log_point,
        }

    async def _stop_report(self, server: DebugServer, answer: StopReport) -> None:
        self._reports.arrived(server, answer)

    async def _subprocess(self, server: DebugServer, child: probe_events.ChildStarted) -> None:
        started = {
            "reason": "started",
            "parent_pid": server.pid,
            "pid": child.pid,
            "command": masked_command(child.command),
            "debugged": child.debugged,
        }
        self._log.journal("subprocess", started)

    async def _log_point(self, server: DebugServer, row: probe_events.LogLine) -> None:
        self._log_points.arrived(server, row)

    async def _breakpoint_error(
        self, server: DebugServer, event: probe_events.BreakpointError
    ) -> None:
        if event.id == "exceptions":
            self._exceptions.failed(event.error)
        else:
            self._breakpoints.events.failed(event.id, event.error)

    async def _hot_breakpoint(self, server: DebugServer, event: probe_events.HotBreakpoint) -> None:
        self._breakpoints.events.slows(event.id)

    async def _function_found(
        self, server: DebugServer, event: probe_events.FunctionAppeared
    ) -> None:
        self._breakpoints.events.appeared(event.id, event)

    async def _greenlets(self, server: DebugServer, event: probe_events.Greenlets) -> None:
        self._log.say(
            "gevent has replaced this program's threads, and pydevd did not expect that: steps "
            f"and pauses may hang. {call_of('restart', self._settings.id)} with "
            '{"env": {"GEVENT_SUPPORT": "True"}}, or launch the program with that variable.'
        )
