"""One handler for each operation that the worker answers, by the operation's name.

A handler checks the state again (only the worker knows the present one), does the work, and returns
a result Struct. It defines what the operation means; the folders below do the debugging.
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
from debug_relay.protocol.models import threads as t
from debug_relay.protocol.models.fields import SessionParams, SnapshotBounds
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.rendering.library_frames import folded
from debug_relay.protocol.rendering.text import CONTENT_TYPES
from debug_relay.protocol.state import State
from debug_relay.worker.operations import execution, inspection, stops, traces
from debug_relay.worker.operations.call import Call, Handler
from debug_relay.worker.session.session import Session

_PAUSED: Final = frozenset({State.PAUSED})


async def launch_program(call: Call, params: p.Launch) -> Struct:
    session = call.session
    async with session.run.lock:
        session.access.require("launch")
        plan = await session.starting.plan(params)
        before = session.stops.stop_id, session.input.count
        await session.starting.launch(params, plan)
    return await _launched(call, before, params.wait, params.snapshot)


async def restart_program(call: Call, params: p.Restart) -> Struct:
    session = call.session
    starting = session.starting
    async with session.run.lock:
        session.access.require("restart")
        again = session.restart_planner.launch_of(params)
        # Planned before the old run is ended: a launch that is refused leaves the old run alone.
        plan = await starting.plan(again)
        await session.restart_planner.make_room()
        before = session.stops.stop_id, session.input.count
        await starting.launch(again, plan)
    return await _launched(call, before, params.wait, params.snapshot)


async def _launched(
    call: Call, before: tuple[int, int], wait: float, snapshot: SnapshotBounds
) -> Struct:
    """Wait until the new program stops; `before` is the last stop's id and the count of
    questions.
    """
    session = call.session
    stop, questions = before
    completed = await session.run.until_started(stop, wait, call.abandoned, questions)
    program = session.debuggee.program
    assert program is not None
    result = session.run.result(completed)
    launched = p.Launched(
        **{name: getattr(result, name) for name in result.__struct_fields__},
        pid=program.pid,
        program=program,
    )
    await stops.add_report(call, launched, snapshot)
    return launched


async def attach(call: Call, params: p.Attach) -> Struct:
    session = call.session
    async with session.run.lock:
        session.access.require("attach")
        before = session.stops.stop_id  # a breakpoint may be hit before the attach is complete
        await session.starting.attach(params)
    completed = await session.run.until_started(before, params.wait, call.abandoned)
    result = session.run.result(completed)
    program = session.debuggee.program
    attached = p.Attached(
        **{name: getattr(result, name) for name in result.__struct_fields__},
        attached=session.debuggee.target is not None,
        pid=program.pid if program else None,
        host=program.host if program else params.host,
        port=program.port if program else params.port,
    )
    await stops.add_report(call, attached, params.snapshot)
    return attached


async def detach(call: Call, params: p.Detach) -> Struct:
    session = call.session
    async with session.run.lock:
        session.access.require("detach")
        target = session.debuggee.target
        assert target is not None
        await session.run.detach()
    return p.Detached(
        session_id=session.settings.id,
        status=session.lifecycle.state,
        detached=True,
        pid=target.pid,
        residue=target.residue,
    )


async def terminate(call: Call, params: p.Terminate) -> Struct:
    session = call.session
    async with session.run.lock:
        session.access.require("terminate")
        session.lifecycle.end_for("terminated")
        await session.run.end_program(params.grace, for_all=True)
    return p.Terminated(
        session_id=session.settings.id,
        status=session.lifecycle.state,
        exit_code=session.lifecycle.exit_code,
        signal=session.lifecycle.signal,
    )


async def write_input(call: Call, params: p.Input) -> Struct:
    session = call.session
    session.access.require("input")
    data = (params.input or "").encode()
    if params.base64 is not None:
        data += base64.b64decode(params.base64, validate=True)
    assert session.debuggee.target is not None
    await session.debuggee.target.write_input(data, params.eof)
    return p.Written(session_id=session.settings.id, bytes_written=len(data), eof=params.eof)


async def clear_output(call: Call, params: o.ClearOutput) -> Struct:
    session = call.session
    if session.debuggee.target is not None:
        # Output that is still in the pipes was printed before this call: clear it as well.
        session.debuggee.target.flush_output()
    session.log.output.clear()
    session.publication.changed()
    return o.OutputCleared(session_id=session.settings.id, next_cursor=session.log.output.cursor)


async def set_breakpoints(call: Call, params: b.SetBreakpoints) -> Struct:
    breakpoints = await call.session.breakpoints.add(params)
    return b.BreakpointsSet(breakpoints=breakpoints, persisted=await _persisted(call.session))


async def _persisted(session: Session) -> bool:
    """Wait until the breakpoints are on disk, in the project's file and the session's record;
    whether they are.
    """
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
    session.access.require("exception")
    thread_id = session.views.thread_of(params.thread_id)
    return await session.exception_reports.report(thread_id, call.is_safe)


async def threads(call: Call, params: t.Threads) -> Struct:
    session = call.session
    session.access.require("threads")
    if params.locals:
        return await session.views.threads_with_locals(every=params.frames == "all")
    return await session.views.threads()


async def stacktrace(call: Call, params: i.Stacktrace) -> Struct:
    session = call.session
    # A named thread may run: its stack is that of one moment. The default is the stopped thread.
    session.access.require("stacktrace", _PAUSED if params.thread_id is None else None)
    found = await session.views.stack(params.thread_id, params.start_frame, params.levels)
    if call.head.format in CONTENT_TYPES and params.frames == "own":
        # Only a step or a breakpoint stops a thread in a library that matters; a pause finds it
        # waiting there.
        stop = session.stops.threads.of(found.thread_id)
        waits = found.live or stop is None or stop.reason == "pause"
        frames, folds = folded(found.frames, waits)
        return msgspec.structs.replace(found, frames=frames, folded=folds)
    return found


async def scopes(call: Call, params: i.Scopes) -> Struct:
    session = call.session
    live = await inspection.live_thread(session, "scopes", params.thread_id)
    if live is not None:
        return await session.views.live.scopes(live, params.frame_id)
    thread_id = session.views.thread_of(params.thread_id)
    found = await session.hub.scopes(thread_id, params.frame_id)
    sizes = await session.probes.scope_sizes(
        thread_id, params.frame_id, session.settings.evaluate_timeout
    )
    counts = {"locals": sizes.locals, "globals": sizes.globals}
    return i.ScopeList(
        frame_id=params.frame_id,
        thread_id=thread_id,
        scopes=[
            i.Scope(
                name=scope.name,
                presentation_hint=scope.presentation_hint or scope.name.lower(),
                variables_reference=reference,
                named_variables=counts.get(scope.name.lower()),
                indexed_variables=0,
                expensive=scope.expensive,
            )
            for scope, reference in found
        ],
    )


async def variables(call: Call, params: i.Variables) -> Struct:
    is_live = call.session.hub.is_live(params.variables_reference)
    call.session.access.require("variables", None if is_live else _PAUSED)
    return await call.session.views.variables(
        params.variables_reference,
        params.start if params.offset is None else params.offset,
        params.count if params.limit is None else params.limit,
        params.filter,
        params.summary,
        call.is_safe,
    )


async def frame_variables(call: Call, params: i.FrameVariables) -> Struct:
    session = call.session
    live = await inspection.live_thread(session, "frame-variables", params.thread_id)
    if live is not None:
        return await session.views.live.frame_variables(live, params)
    thread_id = session.views.thread_of(params.thread_id)
    for scope, reference in await session.hub.scopes(thread_id, params.frame_id):
        if scope.name.lower() == params.scope:
            return await session.views.variables(
                reference,
                params.start,
                params.count,
                summary=params.summary,
                safe=call.is_safe,
            )
    raise RelayError(Code.VARIABLE_NOT_FOUND, f"The frame has no scope {params.scope}")


async def evaluate(call: Call, params: i.Evaluate) -> Struct:
    session = call.session
    live = await inspection.live_thread(session, "evaluate", params.thread_id)
    return await session.views.evaluate(params, live)


async def hover(call: Call, params: i.Hover) -> Struct:
    live = await inspection.live_thread(call.session, "hover", params.thread_id)
    asked = i.Evaluate(
        session_id=params.session_id,
        expression=params.expression,
        frame_id=params.frame_id,
        thread_id=params.thread_id,
        context="hover",
        timeout=params.timeout,
    )
    return await call.session.views.evaluate(asked, live)


async def patch_session(call: Call, params: s.PatchSession) -> Struct:
    call.session.changes.apply(params)
    await call.session.changes.carry_out(params)
    return call.session.public_state.state()


async def show_resources(call: Call, params: SessionParams) -> Struct:
    return await call.session.usage.report()


async def take_lease(call: Call, params: s.TakeLease) -> Struct:
    return call.session.lease.take(call.head.caller, params)


async def drop_lease(call: Call, params: SessionParams) -> Struct:
    return call.session.lease.drop(call.head.caller)


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
    "continue": execution.resume,
    "pause": execution.pause,
    "step-over": execution.step_over,
    "step-into": execution.step_into,
    "step-out": execution.step_out,
    "run-to": execution.run_to_line,
    "trace": traces.trace,
    "get-trace": traces.get_trace,
    "end-trace": traces.end_trace,
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
    "snapshot": stops.snapshot,
    "add-watch": stops.add_watch,
    "list-watches": stops.list_watches,
    "delete-watches": stops.delete_watches,
    "set-variable": inspection.set_variable,
    "hover": hover,
    "completions": inspection.completions,
    "modules": inspection.modules,
    "tasks": inspection.tasks,
    "source": inspection.source,
    "take-lease": take_lease,
    "drop-lease": drop_lease,
}


def check_table() -> None:
    """Check that each operation of the worker has a handler, and no other has one."""
    wanted = {row.name for row in OPERATIONS.values() if row.side == "worker"}
    if wanted != HANDLERS.keys():
        raise RuntimeError(f"operations and handlers differ: {sorted(wanted ^ HANDLERS.keys())}")
