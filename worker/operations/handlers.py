"""One handler per operation that is done in the worker, by the operation's name.

A handler checks the state again (the worker owns the truth), does the work, and returns a result
Struct. Debugging itself is done in the modules below; here is what an operation means.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models import breakpoints as b
from debug_relay.protocol.models import inspection as i
from debug_relay.protocol.models import output_events as o
from debug_relay.protocol.models import program as p
from debug_relay.protocol.models import sessions as s
from debug_relay.protocol.models.blueprint import given_fields
from debug_relay.protocol.models.fields import SessionParams, SnapshotBounds
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.refusals import deleted_meanwhile
from debug_relay.protocol.state import Event, State
from debug_relay.worker.attach import attached as attached_program
from debug_relay.worker.attach import by_port as joined
from debug_relay.worker.debuggee import launch_plan
from debug_relay.worker.debuggee import launched as launch
from debug_relay.worker.debuggee import restart as restarting
from debug_relay.worker.debuggee.target import Target
from debug_relay.worker.debugger import run_control as run
from debug_relay.worker.debugger import thread_positions as whereabouts
from debug_relay.worker.inspection import exceptions as exception_report
from debug_relay.worker.inspection import views as viewing
from debug_relay.worker.limits import usage_report as resources
from debug_relay.worker.operations import execution as execution_handlers
from debug_relay.worker.operations import inspection as looking_handlers
from debug_relay.worker.operations import leases as lease_handlers
from debug_relay.worker.operations import stops as stop_handlers
from debug_relay.worker.operations import traces as trace_handlers
from debug_relay.worker.operations.call import Call, Handler
from debug_relay.worker.session import settings_changes as changes
from debug_relay.worker.session.session import Session


async def launch_program(call: Call, params: p.Launch) -> Struct:
    session = call.session
    async with session.driving:
        session.require("launch", OPERATIONS["launch"].states)
        planned = await launch_plan.plan(session, params)
        if params.stop_on_exception is not None:
            session.exceptions.use(run.filters_of(params.stop_on_exception))
        before = session.stop_id, session.questions
        await _start_launched(session, params, planned)
    return await _launched(call, before, params.wait, params.snapshot)


async def restart_program(call: Call, params: p.Restart) -> Struct:
    session = call.session
    async with session.driving:
        session.require("restart", OPERATIONS["restart"].states)
        again = restarting.launch_of(session, params)
        # Before the old run is ended: what cannot be launched leaves it as it is.
        planned = await launch_plan.plan(session, again)
        await restarting.make_room(session)
        before = session.stop_id, session.questions
        await _start_launched(session, again, planned)
    return await _launched(call, before, params.wait, params.snapshot)


async def _start_launched(session: Session, params: p.Launch, planned: launch_plan.Plan) -> None:
    session.arguments = given_fields(params)
    session.limits.launch_with(params.limits)
    target = launch.LaunchedProgram(session, planned)
    await _start(session, target)
    if session.missing_env or session.missing_fields:
        session.missing_env, session.missing_fields = [], []
        session.changed()
    for text in params.stdin_inputs:
        # One answer each, as a person would type it.
        await target.write_input((text.rstrip("\n") + "\n").encode(), eof=False)


async def _launched(
    call: Call, before: tuple[int, int], wait: float, snapshot: SnapshotBounds
) -> Struct:
    """Where the program is that has just been started; `before` counts stops and questions."""
    session = call.session
    stop, questions = before
    completed = await session.until_stopped(stop, wait, call.abandoned, questions)
    assert session.program is not None
    result = run.result(session, completed)
    launched = p.Launched(
        **{name: getattr(result, name) for name in result.__struct_fields__},
        pid=session.program.pid,
        program=session.program,
    )
    await stop_handlers.add_report(call, launched, snapshot)
    return launched


async def attach(call: Call, params: p.Attach) -> Struct:
    session = call.session
    async with session.driving:
        session.require("attach", OPERATIONS["attach"].states)
        joined.check(params)
        if params.port is not None and not session.params.config.stop_all:
            raise changes.stop_all_needs_probe()
        if params.stop_on_exception is not None:
            session.exceptions.use(run.filters_of(params.stop_on_exception))
        by_pid = params.pid is not None
        kind = attached_program.AttachedProgram if by_pid else joined.JoinedProgram
        before = session.stop_id  # a breakpoint may be hit before the start is over
        await _start(session, kind(session, params))
    completed = await session.until_stopped(before, params.wait, call.abandoned)
    result = run.result(session, completed)
    program = session.program
    attached = p.Attached(
        **{name: getattr(result, name) for name in result.__struct_fields__},
        attached=session.target is not None,
        pid=program.pid if program else None,
        host=program.host if program else params.host,
        port=program.port if program else params.port,
    )
    await stop_handlers.add_report(call, attached, params.snapshot)
    return attached


async def _start(session: Session, target: Target) -> None:
    """Until the program runs under the debugger; refused, the session is as before."""
    session.target = target
    session.advance(Event.STARTING)
    try:
        await target.start()
    except BaseException:
        if session.state is State.LAUNCHING:
            session.target = session.program = None
            session.advance(Event.REFUSED)
            raise
        if session.target is target and session.program is not None and session.program.attached:
            session.let_go()  # it had come to a stop before the start failed
            raise
        # It was ended meanwhile: that is what happened, not a launch that failed.
        raise deleted_meanwhile(session.id) from None
    # A stop on the first line may have come before us.
    if session.state is State.LAUNCHING:
        session.advance(Event.READY)
    session.record.save()


async def detach(call: Call, params: p.Detach) -> Struct:
    session = call.session
    async with session.driving:
        session.require("detach", OPERATIONS["detach"].states)
        assert session.target is not None
        target = session.target
        await run.let_go(session, target)
    return p.Detached(
        session_id=session.id,
        status=session.state,
        detached=True,
        pid=target.pid,
        residue=target.residue,
    )


async def terminate(call: Call, params: p.Terminate) -> Struct:
    session = call.session
    async with session.driving:
        session.require("terminate", OPERATIONS["terminate"].states)
        session.end_reason = "terminated"
        await run.end_program(session, params.grace, for_all=True)
    return p.Terminated(
        session_id=session.id,
        status=session.state,
        exit_code=session.exit_code,
        signal=session.signal,
    )


async def write_input(call: Call, params: p.Input) -> Struct:
    session = call.session
    session.require("input", OPERATIONS["input"].states)
    data = (params.input or "").encode()
    if params.base64 is not None:
        data += base64.b64decode(params.base64, validate=True)
    assert session.target is not None
    await session.target.write_input(data, params.eof)
    return p.Written(session_id=session.id, bytes_written=len(data), eof=params.eof)


async def clear_output(call: Call, params: o.ClearOutput) -> Struct:
    session = call.session
    if session.target is not None:
        # What is on its way was printed before this.
        session.target.flush_output()
    session.output.clear()
    session.changed()
    return o.OutputCleared(session_id=session.id, next_cursor=session.output.cursor)


async def set_breakpoints(call: Call, params: b.SetBreakpoints) -> Struct:
    breakpoints = await call.session.breakpoints.add(params)
    return b.BreakpointsSet(breakpoints=breakpoints, persisted=await _persisted(call.session))


async def _persisted(session: Session) -> bool:
    """Whether breakpoints are on disk as they are: the project's and the session's own."""
    saved = await session.saved.save()
    return await session.record.settled() and saved


async def list_breakpoints(call: Call, params: b.ListBreakpoints) -> Struct:
    listed = await call.session.breakpoints.listed(params.file, params.verified)
    return b.BreakpointList(breakpoints=listed, total=len(listed))


async def clear_breakpoints(call: Call, params: SessionParams) -> Struct:
    deleted = await call.session.breakpoints.clear()
    return b.BreakpointsCleared(deleted=deleted, persisted=await _persisted(call.session))


async def get_breakpoint(call: Call, params: b.OneBreakpoint) -> Struct:
    return await call.session.breakpoints.one(params.breakpoint_id)


async def patch_breakpoint(call: Call, params: b.PatchBreakpoint) -> Struct:
    changed = await call.session.breakpoints.patch(params)
    persisted = await _persisted(call.session)
    return b.BreakpointChanged(**msgspec.structs.asdict(changed), persisted=persisted)


async def delete_breakpoint(call: Call, params: b.OneBreakpoint) -> Struct:
    await call.session.breakpoints.remove(params.breakpoint_id)
    return b.BreakpointRemoved(id=params.breakpoint_id, persisted=await _persisted(call.session))


async def set_exception_breakpoints(call: Call, params: b.SetExceptionBreakpoints) -> Struct:
    return await call.session.exceptions.change(params)


async def get_exception_breakpoints(call: Call, params: SessionParams) -> Struct:
    return await call.session.exceptions.shown()


async def clear_exception_breakpoints(call: Call, params: SessionParams) -> Struct:
    return await call.session.exceptions.clear()


async def exception(call: Call, params: i.GetException) -> Struct:
    session = call.session
    session.require("exception", OPERATIONS["exception"].states)
    thread_id = viewing.thread_of(session, params.thread_id)
    return await exception_report.report(session, thread_id, call.is_safe)


async def threads(call: Call, params: i.Threads) -> Struct:
    session = call.session
    session.require("threads", OPERATIONS["threads"].states)
    current = session.stop.thread_id if session.stop else None
    listed = await session.hub.refresh_threads()
    known = await whereabouts.of_threads(session.asking)
    return i.ThreadList(
        threads=[viewing.thread(session, thread, known.get(thread.id)) for thread in listed],
        stopped_thread_id=current,
    )


async def stacktrace(call: Call, params: i.Stacktrace) -> Struct:
    session = call.session
    # A thread that is named may run: its stack is a moment's. By default it is the stopped one.
    states = OPERATIONS["stacktrace" if params.thread_id is not None else "scopes"].states
    session.require("stacktrace", states)
    return await viewing.stack(session, params.thread_id, params.start_frame, params.levels)


async def scopes(call: Call, params: i.Scopes) -> Struct:
    session = call.session
    session.require("scopes", OPERATIONS["scopes"].states)
    thread_id = viewing.thread_of(session, params.thread_id)
    found = await session.hub.scopes(thread_id, params.frame_id)
    sizes = await session.asking.scope_sizes(
        thread_id, params.frame_id, session.params.evaluate_timeout
    )
    return i.ScopeList(
        frame_id=params.frame_id,
        thread_id=thread_id,
        scopes=[
            i.Scope(
                name=scope.name,
                presentation_hint=scope.presentation_hint or scope.name.lower(),
                variables_reference=reference,
                named_variables=sizes.get(scope.name.lower()),
                indexed_variables=0,
                expensive=scope.expensive,
            )
            for scope, reference in found
        ],
    )


async def variables(call: Call, params: i.Variables) -> Struct:
    call.session.require("variables", OPERATIONS["variables"].states)
    return await viewing.variables(
        call.session,
        params.variables_reference,
        params.start if params.offset is None else params.offset,
        params.count if params.limit is None else params.limit,
        params.filter,
        params.summary,
        call.is_safe,
    )


async def frame_variables(call: Call, params: i.FrameVariables) -> Struct:
    session = call.session
    session.require("frame-variables", OPERATIONS["frame-variables"].states)
    thread_id = viewing.thread_of(session, params.thread_id)
    for scope, reference in await session.hub.scopes(thread_id, params.frame_id):
        if scope.name.lower() == params.scope:
            return await viewing.variables(
                session,
                reference,
                params.start,
                params.count,
                summary=params.summary,
                safe=call.is_safe,
            )
    raise RelayError(Code.VARIABLE_NOT_FOUND, f"The frame has no scope {params.scope}")


async def evaluate(call: Call, params: i.Evaluate) -> Struct:
    session = call.session
    session.require("evaluate", OPERATIONS["evaluate"].states)
    return await viewing.evaluate(session, params)


async def patch_session(call: Call, params: s.PatchSession) -> Struct:
    changes.apply(call.session, params)
    if params.stop_all is not msgspec.UNSET:
        session = call.session
        await session.hub.each(
            session.hub.hearing(), lambda server: changes.send_stop_all(session, server)
        )
    await changes.bring_breakpoints(call.session, params)
    await call.session.find_interpreter()
    return call.session.shown.state()


async def show_resources(call: Call, params: SessionParams) -> Struct:
    return await resources.report(call.session)


HANDLERS: Final[Mapping[str, Handler]] = {
    "patch-session": patch_session,
    "resources": show_resources,
    "launch": launch_program,
    "attach": attach,
    "detach": detach,
    "restart": restart_program,
    "terminate": terminate,
    "input": write_input,
    "clear-output": clear_output,
    "continue": execution_handlers.resume,
    "pause": execution_handlers.pause,
    "step-over": execution_handlers.step_over,
    "step-into": execution_handlers.step_into,
    "step-out": execution_handlers.step_out,
    "run-to": execution_handlers.run_to_line,
    "trace": trace_handlers.trace,
    "get-trace": trace_handlers.get_trace,
    "set-breakpoints": set_breakpoints,
    "list-breakpoints": list_breakpoints,
    "clear-breakpoints": clear_breakpoints,
    "get-breakpoint": get_breakpoint,
    "patch-breakpoint": patch_breakpoint,
    "delete-breakpoint": delete_breakpoint,
    "set-exception-breakpoints": set_exception_breakpoints,
    "get-exception-breakpoints": get_exception_breakpoints,
    "clear-exception-breakpoints": clear_exception_breakpoints,
    "exception": exception,
    "threads": threads,
    "stacktrace": stacktrace,
    "scopes": scopes,
    "variables": variables,
    "frame-variables": frame_variables,
    "evaluate": evaluate,
    "snapshot": stop_handlers.snapshot,
    "add-watch": stop_handlers.add_watch,
    "list-watches": stop_handlers.list_watches,
    "delete-watches": stop_handlers.delete_watches,
    "set-variable": looking_handlers.set_variable,
    "hover": looking_handlers.hover,
    "completions": looking_handlers.completions,
    "modules": looking_handlers.modules,
    "tasks": looking_handlers.tasks,
    "source": looking_handlers.source,
    "take-lease": lease_handlers.take_lease,
    "drop-lease": lease_handlers.drop_lease,
}


def check_table() -> None:
    """Every operation of the worker's that is there has its handler, and none is left over."""
    wanted = {row.name for row in OPERATIONS.values() if row.side == "worker" and row.implemented}
    if wanted != HANDLERS.keys():
        raise RuntimeError(f"operations and handlers differ: {sorted(wanted ^ HANDLERS.keys())}")
