"""`POST /run`: a session for one call, and the report of what happened in it.

It is an ordinary session, and the call does what any caller could do. Afterwards the session is
deleted, unless the request keeps it. It is also deleted when the caller leaves, because then nobody
would see the report.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from typing import Final, TypeVar

import msgspec

from debug_relay.protocol.errors import RelayError
from debug_relay.protocol.models import execution, inspection, program, threads
from debug_relay.protocol.models.breakpoints import (
    Breakpoint,
    BreakpointList,
    BreakpointsSet,
    ExceptionBreakpoints,
    ListBreakpoints,
    SetBreakpoints,
    SetExceptionBreakpoints,
)
from debug_relay.protocol.models.creation import CreateSession
from debug_relay.protocol.models.fields import Result, SessionParams
from debug_relay.protocol.models.run import Run, RunException, RunRaised, RunReport, RunTrace
from debug_relay.protocol.models.stop_report import Snapshot, Stop, StopReport
from debug_relay.protocol.refusals import OUTPUT_WITHHELD
from debug_relay.protocol.rendering.traces import in_text
from debug_relay.protocol.scopes import READS_OUTPUT
from debug_relay.protocol.state import LIVE, State
from debug_relay.protocol.trace_pages import fitted
from debug_relay.protocol.wire.frames import Caller
from debug_relay.supervisor.log import Log
from debug_relay.supervisor.operations.crash import crash_of
from debug_relay.supervisor.operations.relative_files import placed
from debug_relay.supervisor.operations.worker_calls import FORMAT, WorkerCalls
from debug_relay.supervisor.output.tail import last_output
from debug_relay.supervisor.sessions.mirror import Session
from debug_relay.supervisor.sessions.registry import Registry
from debug_relay.supervisor.workers.intent import CURRENT_REQUEST

_R = TypeVar("_R", bound=Result)
_log: Final = Log(__name__)
_LAUNCH: Final = (
    "script", "module", "code", "args", "cwd", "env", "env_file", "python_path", "venv",
    "python_args", "pythonpath", "just_my_code", "stdin_inputs",
    "debug_subprocesses", "limits",
)  # fmt: skip
# When the time of a run is over, the look at where its program is takes this long at most.
_LOOK_SECONDS: Final = 5.0
_MOST_RAISED: Final = 100  # Kinds of exceptions that the report of a run lists.
_MESSAGE_CHARACTERS: Final = 300  # The message of one of them.
_GRACE_SECONDS: Final = 1.0  # A program whose run has timed out has this long to end by itself.


class Runs:
    def __init__(self, registry: Registry, worker_calls: WorkerCalls) -> None:
        self._registry = registry
        self._worker_calls = worker_calls
        self._ending: set[asyncio.Task[None]] = set()

    async def run(self, params: Run, caller: Caller) -> RunReport:
        deadline = time.monotonic() + params.timeout
        # A run that is sent again runs again: its session is not the reply.
        CURRENT_REQUEST.set(None)
        session = await self._created(params, caller)
        report: RunReport | None = None
        try:
            report = await _OneRun(self._worker_calls, session, params, caller, deadline).report()
            return report
        finally:
            if report is None or report.session_id is None:
                await self._end(session)

    async def _created(self, params: Run, caller: Caller) -> Session:
        asked = CreateSession(name=params.name, project_root=params.project_root)
        creating = asyncio.ensure_future(self._registry.create(asked, caller))
        try:
            return await asyncio.shield(creating)
        except asyncio.CancelledError:
            # The creation continues: the session is deleted as soon as it exists.
            creating.add_done_callback(self._drop)
            raise

    def _drop(self, creating: asyncio.Future[Session]) -> None:
        if creating.cancelled() or creating.exception() is not None:
            return
        task = asyncio.create_task(self._end(creating.result()), name="end of a run")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end(self, session: Session) -> None:
        try:
            deleting = self._registry.delete(session, None, force=True)
            await self._registry.background.carry_out(deleting)
        except RelayError as error:
            _log.warning("run.not_ended", session_id=session.id, error=error.message)


class _OneRun:
    def __init__(
        self,
        worker_calls: WorkerCalls,
        session: Session,
        params: Run,
        caller: Caller,
        deadline: float,
    ) -> None:
        self._worker_calls = worker_calls
        self._session = session
        self._params = params
        self._caller = caller
        self._deadline = deadline
        self._trace: RunTrace | None = None
        self._exception: RunException | None = None
        self._is_handled = True  # the program handles that exception
        self._raised: dict[tuple[object, ...], RunRaised] = {}
        self._stop: Stop | None = None
        self._stops = 0
        self._ended_at_stop = False
        self._note: str | None = None

    @property
    def _left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    async def report(self) -> RunReport:
        await self._arm()
        await self._launch()
        if self._params.trace is not None:
            await self._until_stopped()
            await self._record(self._params.trace)
        kept = await self._until_ended()
        never_hit = [] if kept or self._ended_at_stop else await self._never_hit()
        in_time = kept or self._ended_at_stop or self._status not in LIVE
        threads, tasks = (None, None) if in_time else await self._where()
        if not kept and self._status in LIVE:
            await self._ask(
                "terminate",
                program.Terminate(session_id=self._id, grace=_GRACE_SECONDS),
                program.Terminated,
            )
        shown = self._session.state
        may_read = READS_OUTPUT in self._caller.scopes
        output, left_out = await asyncio.to_thread(
            last_output, self._session.output, self._params.output_bytes if may_read else 0
        )
        end_reason = "timeout" if not in_time else shown.end_reason
        return RunReport(
            exit_code=shown.exit_code,
            signal=shown.signal,
            end_reason="on_stop" if self._ended_at_stop else end_reason,
            passed_limit=shown.passed_limit,
            output=output,
            output_left_out=left_out,
            note=OUTPUT_WITHHELD if left_out and not may_read else self._note,
            never_hit=never_hit,
            trace=self._trace,
            exception=self._exception,
            raised=list(self._raised.values()),
            stop=self._stop,
            stops=self._stops,
            threads=threads.threads if threads is not None else [],
            deadlocks=(threads.deadlocks or []) if threads is not None else [],
            tasks=tasks or [],
            session_id=self._id if kept else None,
        )

    @property
    def _id(self) -> str:
        return self._session.id

    @property
    def _status(self) -> State:
        return self._session.state.status

    async def _arm(self) -> None:
        """Sets the breakpoints and exception filters of the request, before the program starts."""
        params = self._params
        if params.breakpoints:
            specs = [placed(spec, self._found, params.script) for spec in params.breakpoints]
            batch = SetBreakpoints(session_id=self._id, breakpoints=specs)
            await self._ask("set-breakpoints", batch, BreakpointsSet)
        if params.exceptions is not None:
            asked = msgspec.structs.asdict(params.exceptions)
            if params.exceptions.condition is None:
                asked["filters"] = [*dict.fromkeys([*asked["filters"], "uncaught"])]
            filters = SetExceptionBreakpoints(session_id=self._id, **asked)
            await self._ask("set-exception-breakpoints", filters, ExceptionBreakpoints)

    def _found(self, file: str) -> str:
        """A relative file starts at `cwd`, else at `project_root`, else at the script's folder."""
        params = self._params
        folder = params.cwd or params.project_root or os.path.dirname(params.script or "")
        if params.cwd is not None and params.project_root is not None:
            folder = os.path.join(params.project_root, params.cwd)
        return os.path.join(folder, file)

    async def _launch(self) -> None:
        params = self._params
        traces = params.trace is not None
        launch = program.Launch(
            session_id=self._id,
            stop_on_entry=traces,
            stop_on_exception="uncaught" if params.exceptions is None else None,
            wait=0,
            **{name: getattr(params, name) for name in _LAUNCH},
        )
        await self._ask("launch", launch, program.Launched)
        await self._close_input()

    async def _close_input(self) -> None:
        """Closes the program's input: there is none beyond the request's."""
        try:
            await self._ask("input", program.Input(session_id=self._id, eof=True), program.Written)
        except RelayError as error:
            # The program has ended, or has closed its input itself.
            _log.info("run.input_closed", session_id=self._id, error=error.message)

    async def _record(self, spec: execution.TraceSpec) -> None:
        if self._status is not State.PAUSED:
            return
        fields = {name: getattr(spec, name) for name in spec.__struct_fields__}
        fields["at"] = [
            at if at.file is None else msgspec.structs.replace(at, file=self._found(at.file))
            for at in spec.at
        ]
        if isinstance(spec.step, execution.StepFiles):
            fields["step"] = execution.StepFiles(files=[self._found(f) for f in spec.step.files])
        fields["timeout"] = min(spec.timeout, self._left)
        asked = execution.Trace(session_id=self._id, then="continue", **fields)
        is_text = FORMAT.get() != "json"
        if is_text:  # a row takes up to six times as much in the worker's JSON
            asked.shape = "rows"
            asked.budget = min(asked.budget * 6, 10_000_000)
        rows = await self._ask("trace", asked, execution.TraceRows)
        self._trace = RunTrace(**{name: getattr(rows, name) for name in RunTrace.__struct_fields__})
        if is_text:
            whole = [row for row in rows.rows if isinstance(row, execution.TraceRow)]
            shown, head = fitted(whole, spec.budget, in_text)
            self._trace.left_out += len(whole) - len(shown)
            self._trace.rows, self._trace.head = list(shown), head or rows.head

    async def _until_ended(self) -> bool:
        """Waits until the program or the time ends. True if the program is paused at an exception
        and the session is to be kept.
        """
        while True:
            await self._until_stopped()
            if self._status is not State.PAUSED:
                return False
            if self._session.state.stop_reason == "exception":
                is_asked_for = await self._note_exception()
                if self._params.keep_on_exception:
                    return True
            else:
                is_asked_for = await self._is_at_breakpoint()
            if is_asked_for:
                self._stops += 1
                if self._params.on_stop == "end":
                    self._ended_at_stop = True
                    return False
            # We resume other stops, such as a `breakpoint()`: no caller looks at them.
            on = execution.Continue(session_id=self._id, wait=self._left)
            await self._ask("continue", on, execution.Execution)
            if not self._left:
                return False

    async def _note_exception(self) -> bool:
        """Keep the exception at the present stop; whether it is one of the request's that the
        program handles. One that nothing handles ends the program by itself.
        """
        is_handled = False
        if self._params.exceptions is not None:
            asked = inspection.GetException(session_id=self._id)
            raised = await self._ask("exception", asked, inspection.ExceptionReport)
            is_handled = raised.break_mode != "unhandled"
            if is_handled:
                self._list(raised)
        if self._exception is None or (self._is_handled and not is_handled):
            self._exception = await crash_of(self._session.state, self._id, self._ask)
            self._is_handled = is_handled
        return is_handled

    def _list(self, raised: inspection.ExceptionReport) -> None:
        place = self._session.state.current_location
        row = RunRaised(
            type=raised.type,
            message=raised.message[:_MESSAGE_CHARACTERS],
            path=place.path if place else None,
            line=place.line if place else None,
            function=place.function if place else None,
        )
        known = self._raised.get(key := (row.type, row.message, row.path, row.line))
        if known is not None:
            known.times += 1
        elif len(self._raised) < _MOST_RAISED:
            self._raised[key] = row

    async def _is_at_breakpoint(self) -> bool:
        """Whether the present stop is at one of the request's breakpoints, whose first is kept."""
        params = self._params
        if not params.breakpoints or self._session.state.stop_reason != "breakpoint":
            return False
        if self._stop is None:
            look = Snapshot(session_id=self._id)
            stop = (await self._ask("snapshot", look, StopReport)).stop
            if stop is None or not stop.hit_breakpoints:
                return False  # the program's own `breakpoint()`
            self._stop = stop
        return True

    async def _never_hit(self) -> list[str]:
        """The breakpoints at which the program has not stopped, and why if that is known."""
        if not self._params.breakpoints:
            return []
        with suppress(RelayError):  # the worker has retired already
            if self._status is State.TERMINATED:
                look = Snapshot(session_id=self._id, wait=0.01)
                await self._ask("snapshot", look, StopReport)  # it notes functions that were missed
            every = ListBreakpoints(session_id=self._id)
            found = await self._ask("list-breakpoints", every, BreakpointList)
            return [_unhit(point) for point in found.breakpoints if not point.hit_count]
        return []

    async def _until_stopped(self) -> None:
        while self._status in (State.RUNNING, State.LAUNCHING) and self._left:
            # After a deletion there are no events, and waiting for one returns at once.
            self._session.require_there()
            await self._session.wait_for_events(self._session.events_end, self._left)

    async def _where(
        self,
    ) -> tuple[threads.ThreadList | None, list[threads.Task] | None]:
        """Every thread's frames with their locals, and asyncio's pending tasks; None while C code
        holds the GIL.
        """
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                listed = await self._ask(
                    "threads",
                    threads.Threads(session_id=self._id, locals=True),
                    threads.ThreadList,
                )
                found = await self._ask(
                    "tasks", threads.Tasks(session_id=self._id, locals=True), threads.TaskList
                )
                tasks = [task for task in found.tasks if task.state == "pending"]
                return listed, tasks
        except (RelayError, TimeoutError) as error:
            _log.info("run.not_seen", session_id=self._id, error=str(error))
            self._note = "its threads cannot be shown: C code keeps the interpreter (the GIL)"
            return None, None

    async def _ask(self, operation: str, params: SessionParams, kind: type[_R]) -> _R:
        return await self._worker_calls.ask(self._session, operation, params, self._caller, kind)


def _unhit(point: Breakpoint) -> str:
    if point.verified and point.watch is not None:
        return f"{point.id}: {point.watch} has not changed there"
    said = ". ".join(filter(None, (point.message, point.suggestion)))
    if not point.verified and said:
        return f"{point.id}: {said}"
    place = f"{point.source['path']}:{point.line}" if point.source else ""
    return f"{point.id}: {point.function or place} was never reached"
