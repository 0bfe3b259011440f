"""Applies the events of plain DAP: stops, resumes, threads, modules, the debugger's own output."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from debug_relay.protocol.errors import RelayError
from debug_relay.protocol.models.fields import Location
from debug_relay.protocol.models.sessions import ExceptionInfo, StopReason
from debug_relay.protocol.state import STARTED, State
from debug_relay.protocol.wire import dap
from debug_relay.worker.breakpoints.run_to_line import RunToLine
from debug_relay.worker.breakpoints.session_breakpoints import Breakpoints
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.debugging import Debugging
from debug_relay.worker.debugger.stack_frames import path_of
from debug_relay.worker.debugger.stopped_threads import Stop
from debug_relay.worker.inspection.exceptions import ExceptionReports
from debug_relay.worker.inspection.stop_reports import StopReports
from debug_relay.worker.session.debug_events import Handler
from debug_relay.worker.state.lifecycle import Lifecycle
from debug_relay.worker.state.log import SessionLog
from debug_relay.worker.tracing.trace import Traces

log = logging.getLogger("debug_relay.worker")

_REASONS: Final[Mapping[str, StopReason]] = {
    "breakpoint": "breakpoint",
    "function breakpoint": "breakpoint",
    "data breakpoint": "breakpoint",
    "exception": "exception",
    "pause": "pause",
    "entry": "entry",
}


class DapEvents:
    def __init__(
        self,
        lifecycle: Lifecycle,
        log: SessionLog,
        debugging: Debugging,
        breakpoints: Breakpoints,
        goal: RunToLine,
        reports: StopReports,
        exception_reports: ExceptionReports,
        traces: Traces,
    ) -> None:
        self._lifecycle = lifecycle
        self._log = log
        self._hub = debugging.hub
        self._stops = debugging.stops
        self._debuggee = debugging.debuggee
        self._breakpoints = breakpoints
        self._goal = goal
        self._reports = reports
        self._exception_reports = exception_reports
        self._traces = traces
        self.handlers: Mapping[str, Handler] = {
            "stopped": self._stopped,
            "continued": self._continued,
            "thread": self._thread,
            "module": self._module,
            "output": self._debugger_output,
        }

    async def _stopped(self, server: DebugServer, event: dap.StoppedBody) -> None:
        if self._lifecycle.state not in STARTED:
            return
        if event.thread_id is None:
            return
        resumes = server.resumes
        thread_id = self._hub.thread_id(server, event.thread_id)
        self._hub.forget_stop(thread_id)
        location = self._place_in(event)
        if location is None:
            location = await self._place_of(thread_id)
        reason = _REASONS.get(event.reason, "step")
        if reason == "breakpoint" and self._traces.stops_the_program:
            reason = "step"
        at_goal = await self._goal.at_stop(server, event, thread_id)
        exception = None
        if reason == "exception":
            exception = await self._exception_reports.at_stop(server, event)
            if server.engine.stops_wrongly_at(exception.type):
                server.post("continue", {"threadId": event.thread_id})
                return
        if self._debuggee.target is not None:
            self._debuggee.target.flush_output()
        hits: list[str] = []
        changes = self._breakpoints.events.changed(event.relay_changes or [])
        if location and reason == "breakpoint":
            hits = await self._breakpoints.hit(server, location, server.engine.hits_in(event))
            if at_goal and not hits:
                reason = "step"
        lines = await self._reports.sources.lines(location.path) if location else None
        if self._lifecycle.state not in STARTED or server.lost:
            return  # the program, or this process, ended while we requested the place
        if server.resumes != resumes:
            return  # a call resumed all threads before this stop was known
        self._lifecycle.running()  # the stop may arrive before the handshake ends
        stop = Stop(
            thread_id,
            reason,
            location,
            exception,
            hits,
            self._stops.stop_id + 1,
            server.pid or None,
            server.is_child,
            [change for change in changes if change.id in hits],
            _passed(event),
        )
        self._stops.begin(stop, event.all_threads_stopped)
        self._reports.begin(stop, stop.stop_id, server, lines)
        self._lifecycle.stopped()
        if at_goal and not hits:
            event.reason = "run-to"
        self._log.journal("stopped", _stopped_event(event, stop))

    def _place_in(self, event: dap.StoppedBody) -> Location | None:
        if event.relay_place is None:
            return None
        name, path, line, module = event.relay_place
        if module is not None and self._hub.module_of(path) is None:
            self._journal_module(dap.Module(id=0, name=module, path=path))
        return Location(path=path, line=line, column=1, function=name)

    async def _place_of(self, thread_id: int) -> Location | None:
        """The place of the stop. If pydevd cannot give it, the stop is reported without."""
        try:
            window = await self._hub.stack(thread_id, 0, 1)
        except RelayError as error:
            if self._hub.process_of(thread_id) is None:
                raise
            log.warning("stop.without_place", extra={"fields": {"error": error.message}})
            return None
        return _location(window.frames[0]) if window.frames else None

    async def _continued(self, server: DebugServer, event: dap.ContinuedBody) -> None:
        # A resume by a call was journaled when it was sent. Here only the program itself, or
        # another client of its debugger, can have resumed a thread.
        if (
            self._lifecycle.state is State.PAUSED
            and self._stops.current is not None
            and self._resumes_stopped(server, event)
        ):
            self._stops.resumed(server, self._resumed_thread(server, event))

    def _resumes_stopped(self, server: DebugServer, event: dap.ContinuedBody) -> bool:
        """Whether the event is about a thread that is stopped for us."""
        if self._stops.current is None or event.thread_id is None:
            return True
        thread_id = self._hub.thread_id(server, event.thread_id)
        if not event.all_threads_continued:
            return self._stops.threads.of(thread_id) is not None
        return (
            thread_id == self._stops.current.thread_id
            or self._stops.threads.of(thread_id) is not None
        )

    def _resumed_thread(self, server: DebugServer, event: dap.ContinuedBody) -> int | None:
        """The thread that was resumed alone; None if all were."""
        if event.all_threads_continued or event.thread_id is None:
            return None
        return self._hub.thread_id(server, event.thread_id)

    async def _thread(self, server: DebugServer, event: dap.ThreadBody) -> None:
        if event.reason == "exited":
            known = self._hub.thread_id(server, event.thread_id)
            if self._stops.threads.of(known) is not None:
                # On Python 3.8 pydevd may report a thread that is just starting as dead. It is not:
                # it is stopped.
                return
            thread_id = self._stops.thread_ended(server, event.thread_id)
        else:
            thread_id = self._hub.thread_id(server, event.thread_id)
            self._stops.threads.born(thread_id)
        if thread_id is not None:
            self._log.journal(
                "thread",
                {"reason": event.reason, "thread_id": thread_id, "pid": server.pid or None},
            )

    async def _module(self, server: DebugServer, event: dap.ModuleBody) -> None:
        if self._hub.module_of(event.module.path) is None:
            self._journal_module(event.module)

    def _journal_module(self, module: dap.Module) -> None:
        """Journal a module that the session meets first, under a number of the session's own."""
        self._log.journal(
            "module",
            {
                "reason": "new",
                "module": {
                    "id": self._hub.module_loaded(module),
                    "name": module.name,
                    "path": module.path,
                    "is_optimized": False,
                    "is_user_code": "site-packages" not in (module.path or ""),
                    "version": None,
                },
            },
        )

    async def _debugger_output(self, server: DebugServer, event: dap.OutputBody) -> None:
        if server.engine.is_untrue(event.output):
            return
        if event.output and event.category != "telemetry":
            self._log.take_output("console", event.output.encode("utf-8", "backslashreplace"))


def _location(frame: dap.StackFrame) -> Location:
    return Location(path=path_of(frame), line=frame.line, column=frame.column, function=frame.name)


def _passed(event: dap.StoppedBody) -> ExceptionInfo | None:
    if event.relay_passed is None:
        return None
    type, message = event.relay_passed
    return ExceptionInfo(type=type, message=message)


def _stopped_event(event: dap.StoppedBody, stop: Stop) -> dict[str, Any]:
    description = f"Paused on {stop.reason}"
    body: dict[str, Any] = {
        "reason": event.reason,
        "description": description,
        "thread_id": stop.thread_id,
        "pid": stop.pid,
        "preserve_focus_hint": event.preserve_focus_hint,
        "text": None,
        "all_threads_stopped": event.all_threads_stopped,
        "hit_breakpoint_ids": stop.hit_breakpoints,
        "stop_id": stop.stop_id,
        "current_location": stop.location,
    }
    if stop.exception is not None:
        short, message = stop.exception.type.rpartition(".")[2], stop.exception.message
        body["text"] = f"{short}: {message}" if message else short
        body["exception_info"] = {
            "exception_id": short,
            "description": message,
            "break_mode": stop.exception.break_mode,
            "details": {
                "type_name": short,
                "full_type_name": stop.exception.full_type_name,
                "message": message,
                "stack_trace": stop.exception.traceback,
            },
        }
    return body
