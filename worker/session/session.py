"""The session, put together: its parts, each constructed with what it needs.

Only `operations`, `rpc` and `server` see it as a whole. No part knows it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from debug_relay.protocol.models.blueprint import SessionRecord
from debug_relay.protocol.models.worker_messages import WorkerParams
from debug_relay.protocol.state import ENDED
from debug_relay.protocol.version import VERSION, WIRE
from debug_relay.worker.breakpoints.exceptions import ExceptionFilters
from debug_relay.worker.breakpoints.log_points import LogPoints
from debug_relay.worker.breakpoints.project_breakpoints import SavedBreakpoints
from debug_relay.worker.breakpoints.run_to_line import RunToLine
from debug_relay.worker.breakpoints.session_breakpoints import Breakpoints
from debug_relay.worker.debuggee.handshake import Handshake, NewServers
from debug_relay.worker.debuggee.restart import RestartPlanner
from debug_relay.worker.debugger.debugging import Debugging
from debug_relay.worker.debugger.hub import Hub
from debug_relay.worker.debugger.input_requests import InputRequests
from debug_relay.worker.debugger.probe_client import ProbeClient
from debug_relay.worker.debugger.program_changes import ProgramChanges
from debug_relay.worker.debugger.run_control import RunControl
from debug_relay.worker.debugger.stops import Stops
from debug_relay.worker.debugger.target import Debuggee
from debug_relay.worker.inspection.exceptions import ExceptionReports
from debug_relay.worker.inspection.stop_reports import StopReports
from debug_relay.worker.inspection.views import Views
from debug_relay.worker.inspection.watches import Watches
from debug_relay.worker.interpreter.cache import InterpreterCache
from debug_relay.worker.joining.listener import JoinListener
from debug_relay.worker.limits.usage_report import UsageReport
from debug_relay.worker.limits.watch import LimitWatch
from debug_relay.worker.session.access import Access
from debug_relay.worker.session.blueprint import Blueprints
from debug_relay.worker.session.callers import Callers
from debug_relay.worker.session.dap_events import DapEvents
from debug_relay.worker.session.debug_events import DebugEvents
from debug_relay.worker.session.idle_clock import IdleClock
from debug_relay.worker.session.lease import Lease
from debug_relay.worker.session.pause_budget import HeldTime, PauseBudget
from debug_relay.worker.session.probe_events import ProbeEvents
from debug_relay.worker.session.public_state import PublicState
from debug_relay.worker.session.record import Record
from debug_relay.worker.session.retirement import Retirement
from debug_relay.worker.session.settings_changes import SettingsChanges
from debug_relay.worker.session.starting import Starting
from debug_relay.worker.session.targets import Targets
from debug_relay.worker.session.transition_effects import Effects
from debug_relay.worker.source.excerpts import Sources
from debug_relay.worker.state.core import Core
from debug_relay.worker.state.lifecycle import Lifecycle
from debug_relay.worker.state.log import SessionLog
from debug_relay.worker.state.publication import Publication
from debug_relay.worker.state.settings import Settings
from debug_relay.worker.storage.disk import Disk
from debug_relay.worker.tracing.plan import Planner
from debug_relay.worker.tracing.trace import Traces


def _nothing() -> None:
    """No front shows variables."""


class Session:
    def __init__(self, params: WorkerParams, push: Callable[[], None]) -> None:
        """`push` sends the new state to all connected supervisors."""
        self.disk = Disk()
        # Called when a caller has set a variable or run a statement at a stop.
        self.when_changed: Callable[[], None] = _nothing
        self.joining = JoinListener()
        self.sources = Sources()
        self.interpreters = InterpreterCache(Path(params.interpreters_dir))
        self.callers = Callers()
        self.settings = Settings(params)
        self.publication = Publication(push)
        self.lifecycle = Lifecycle(params)
        self.log = SessionLog(
            self.settings,
            self.publication,
            self.callers.of,
            lambda category, data: self.reports.printed(category, data),
        )
        self.core = Core(self.settings, self.lifecycle, self.log, self.publication)
        self._add_debugger()
        self._add_breakpoints()
        self._add_inspection()
        self._add_program()
        self._add_access()
        self._add_blueprint()
        self._add_publication()

    def _add_debugger(self) -> None:
        hub = self.hub = Hub(self.settings.request_timeout)
        self.program_changes = ProgramChanges(hub)
        probes = self.probes = ProbeClient(hub)
        debuggee = self.debuggee = Debuggee(self.log)
        stops = self.stops = Stops(self.core, hub)
        self.debugging = Debugging(hub, probes, stops, debuggee)
        self.input = InputRequests(hub, self.log, self.publication)
        self.run = RunControl(self.core, self.debugging, self.input, self.sources)

    def _add_breakpoints(self) -> None:
        debuggee = self.debuggee
        self.breakpoints = Breakpoints(
            self.core,
            self.debugging,
            self.program_changes,
            self.interpreters,
            lambda server: self.exceptions.begin(server),
        )
        self.breakpoints.verifier.script = lambda: (
            debuggee.program.script if debuggee.program is not None else None
        )
        self.exceptions = ExceptionFilters(
            self.core, self.hub, self.program_changes, self.probes, self.breakpoints
        )
        self.log_points = LogPoints(self.log, self.breakpoints)
        self.run_to_line = RunToLine(self.debugging, self.breakpoints)
        self.saved = SavedBreakpoints(self.settings, self.breakpoints, self.disk)

    def _add_inspection(self) -> None:
        settings, lifecycle, log = self.settings, self.lifecycle, self.log
        debuggee, run = self.debuggee, self.run
        self.watches = Watches(settings, log, self.program_changes, self.probes)
        self.reports = StopReports(settings, log, self.debugging, self.watches, self.sources)
        self.stops.listen(self.reports)
        self.exception_reports = ExceptionReports(settings, lifecycle, self.debugging)
        self.views = Views(settings, lifecycle, self.debugging, self.breakpoints, run)
        planner = Planner(settings, lifecycle, self.debugging, self.breakpoints)
        self.traces = Traces(self.core, self.debugging, run, planner)
        self.limits = LimitWatch(self.core, debuggee, run)
        self.usage = UsageReport(settings, lifecycle, debuggee, self.limits)

    def _add_program(self) -> None:
        settings, log, debuggee = self.settings, self.log, self.debuggee
        dap_events = DapEvents(
            self.lifecycle,
            log,
            self.debugging,
            self.breakpoints,
            self.run_to_line,
            self.reports,
            self.exception_reports,
            self.traces,
        )
        probe_events = ProbeEvents(
            settings, log, self.breakpoints, self.exceptions, self.log_points, self.reports
        )
        self.debug_events = DebugEvents(
            self.publication,
            self.debugging,
            self.breakpoints,
            self.log_points,
            self.traces,
            {**dap_events.handlers, **probe_events.handlers},
        )
        handshake = self.handshake = Handshake(
            settings, self.probes, debuggee, self.breakpoints, self.exceptions, self.watches
        )
        targets = Targets(
            self.core,
            self.debugging,
            self.input,
            self.run,
            self.breakpoints,
            self.interpreters,
            NewServers(self.hub, handshake, self.debug_events),
            self.joining,
        )
        self.starting = Starting(
            self.core,
            debuggee,
            self.breakpoints,
            self.exceptions,
            self.limits,
            targets,
        )
        self.restart_planner = RestartPlanner(self.core, debuggee, self.run)

    def _add_access(self) -> None:
        settings, debuggee = self.settings, self.debuggee
        self.lease = Lease(self.core)
        self.access = Access(
            settings, self.lifecycle, self.stops, debuggee, self.callers, self.lease
        )
        self.idle = IdleClock(settings.params)
        ended = settings.params.ended
        self.held = HeldTime(0.0 if ended is None else ended.held_seconds)
        self.pause_budget = PauseBudget(
            self.core, self.probes, debuggee, self.run, self.breakpoints, self.idle, self.held
        )

    def _add_blueprint(self) -> None:
        self.retirement = Retirement(
            self.core,
            self.debuggee,
            self.run,
            self.breakpoints,
            self.exceptions,
            self.watches,
            self.traces,
            self.limits,
            self.usage,
            self.lease,
            self.disk,
        )
        self.blueprints = Blueprints(
            self.core,
            self.debuggee,
            self.breakpoints,
            self.exceptions,
            self.watches,
            self.saved,
            self.retirement,
        )
        self.changes = SettingsChanges(
            self.settings,
            self.publication,
            self.hub,
            self.program_changes,
            self.breakpoints,
            self.saved,
            self.blueprints,
            self.limits,
            self.handshake,
        )

    def _add_publication(self) -> None:
        self.record = Record(self.settings.params.record_dir, self.disk, self._recorded)
        self.publication.record_by(self.record.save)
        self.public_state = PublicState(
            self.core,
            self.debugging,
            self.input,
            self.breakpoints,
            self.limits,
            self.lease,
            self.joining,
            self.idle,
            self.held,
            self.record,
        )
        effects = Effects(
            self.core,
            self.debugging,
            self.log_points,
            self.run_to_line,
            self.reports,
            self.limits,
            self.held,
            self.record,
        )
        self.lifecycle.followed_by(effects.in_order())

    def _recorded(self) -> SessionRecord:
        return SessionRecord(
            version=VERSION,
            wire=WIRE,
            state=self.public_state.state(),
            blueprint=self.blueprints.shown(),
            events_end=self.log.events.end,
            runtime_seconds=self.lifecycle.runtime_seconds,
        )

    async def never_found(self) -> list[str]:
        """The warnings about function breakpoints, once the program has ended."""
        if self.lifecycle.state not in ENDED:
            return []
        program = self.debuggee.program
        script = [program.script] if program is not None and program.script else []
        return await self.breakpoints.events.never_found([*script, *self.hub.module_paths()])

    async def close(self) -> None:
        """Release everything. The program must have ended, or the worker have detached from it."""
        self.lease.close()
        self.log_points.process_ended()
        await self.limits.close()
        await self.debug_events.close()
        await self.traces.close()
        await self.program_changes.close()
        await self.breakpoints.close()
        await self.reports.close()
        self.hub.close()
        self.log.close()
        await self.saved.close()
        await self.record.close()
        self.publication.close()
        self.disk.close()
