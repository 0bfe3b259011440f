"""One handler per operation that is done in the worker, by the operation's name.

A handler checks the state again (the worker owns the truth), does the work, and returns a result
Struct. Debugging itself is done in the modules below; here is what an operation means.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from msgspec import Struct

from debug_relay.protocol import breakpoints as b
from debug_relay.protocol import execution as e
from debug_relay.protocol import inspection as i
from debug_relay.protocol import program as p
from debug_relay.protocol import sessions as s
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.fields import Count, Deleted, SessionParams
from debug_relay.protocol.frames import RequestHead
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.refusals import deleted_meanwhile
from debug_relay.protocol.state import Event, State
from debug_relay.worker import changes, joined, launch, launch_plan, run, viewing
from debug_relay.worker.session import Session
from debug_relay.worker.target import Target


class Call(Struct):
    """One request as its handler sees it."""

    session: Session
    head: RequestHead
    # Set when nobody waits for the answer any more: waiting ends, what was begun goes on.
    abandoned: asyncio.Event


Handler = Callable[[Call, Any], Awaitable[Struct]]


async def launch_program(call: Call, params: p.Launch) -> Struct:
    session = call.session
    async with session.driving:
        session.require("launch", OPERATIONS["launch"].states)
        planned = await launch_plan.plan(session, params)
        if params.stop_on_exception is not None:
            session.exception_filters = run.filters_of(params.stop_on_exception)
        target = launch.LaunchedProgram(session, planned)
        await _start(session, target)
        for text in params.stdin_inputs:
            # One answer each, as a person would type it.
            await target.write_input((text.rstrip("\n") + "\n").encode(), eof=False)
    completed = await session.until_stopped(0, params.wait, call.abandoned)
    assert session.program is not None
    result = run.result(session, completed)
    return p.Launched(
        **{name: getattr(result, name) for name in result.__struct_fields__},
        pid=session.program.pid,
        program=session.program,
    )


async def attach(call: Call, params: p.Attach) -> Struct:
    session = call.session
    async with session.driving:
        session.require("attach", OPERATIONS["attach"].states)
        joined.check(params)
        if params.stop_on_exception is not None:
            session.exception_filters = run.filters_of(params.stop_on_exception)
        await _start(session, joined.JoinedProgram(session, params))
    completed = await session.until_stopped(session.stop_id, params.wait, call.abandoned)
    result = run.result(session, completed)
    program = session.program
    return p.Attached(
        **{name: getattr(result, name) for name in result.__struct_fields__},
        attached=session.target is not None,
        pid=program.pid if program else None,
        host=program.host if program else params.host,
        port=program.port if program else params.port,
    )


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
        pid = session.target.pid
        await session.target.detach()
        await session.target.release()
        session.let_go()
    return p.Detached(session_id=session.id, status=session.state, detached=True, pid=pid)


async def terminate(call: Call, params: p.Terminate) -> Struct:
    session = call.session
    async with session.driving:
        session.require("terminate", OPERATIONS["terminate"].states)
        session.end_reason = "terminated"
        await run.end_program(session, params.grace)
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
        try:
            data += base64.b64decode(params.base64, validate=True)
        except (binascii.Error, ValueError) as error:
            raise RelayError(
                Code.INVALID_REQUEST,
                f"base64 does not decode: {error}",
                "Send standard base64, or text in input.",
                errors=[{"field": "base64", "message": str(error), "value": None}],
            ) from None
    if not data and not params.eof:
        raise RelayError(
            Code.INVALID_REQUEST,
            "There is nothing to write: give input, base64 or eof",
            'Send {"input": "text\\n"}.',
            errors=[{"field": "input", "message": "required", "value": None}],
        )
    assert session.target is not None
    await session.target.write_input(data, params.eof)
    return p.Written(session_id=session.id, bytes_written=len(data), eof=params.eof)


def _without_snapshot(params: e.Continue | e.Pause | e.Step) -> None:
    if params.snapshot is not False:
        raise RelayError(
            Code.NOT_IMPLEMENTED,
            "The stop report in a reply is not there yet in this version",
            "Leave snapshot out; read stacktrace and frames/0/variables.",
            field="snapshot",
        )


async def resume(call: Call, params: e.Continue) -> Struct:
    session = call.session
    async with session.driving, session.hub.evaluating:
        _without_snapshot(params)
        run.check(session, call.head, "continue")
        thread = run.thread_to_move(session, params.thread_id)
        before = session.stop_id
        run.move(session, thread, "continue")
    completed = await session.until_stopped(before, params.wait, call.abandoned)
    result = run.result(session, completed)
    result.continued = True
    return result


async def pause(call: Call, params: e.Pause) -> Struct:
    session = call.session
    async with session.driving:
        _without_snapshot(params)
        run.check(session, call.head, "pause")
        before = session.stop_id
        if session.state is State.PAUSED:
            return run.result(session, completed=True)
        await run.request_pause(session)
    completed = await run.until_paused(session, before, params.wait, call.abandoned)
    result = run.result(session, completed)
    if not completed:
        result.pause_pending = True
    return result


def step(operation: str, command: str) -> Handler:
    async def handler(call: Call, params: e.Step) -> Struct:
        return run.result(call.session, await _step(call, params, operation, command))

    return handler


async def _step(call: Call, params: e.Step, operation: str, command: str) -> bool:
    """Whether it came to its end within `wait`."""
    session = call.session
    async with session.driving, session.hub.evaluating:
        _without_snapshot(params)
        run.check(session, call.head, operation)
        thread = run.thread_to_move(session, params.thread_id)
        before = session.stop_id
        if command == "stepOut":
            await session.hub.keep_returns(True)
        run.move(session, thread, command)
    return await session.until_stopped(before, params.wait, call.abandoned)


async def step_out(call: Call, params: e.Step) -> Struct:
    session = call.session
    completed = await _step(call, params, "step-out", "stepOut")
    result = run.result(session, completed)
    try:
        if completed and session.state is State.PAUSED:
            result.return_value = await viewing.return_value(session)
        await session.hub.keep_returns(False)
    except RelayError:
        # The program ended, or ran on for another caller: the step itself is done all the same.
        result.return_value = None
    return result


async def set_breakpoints(call: Call, params: b.SetBreakpoints) -> Struct:
    return b.BreakpointsSet(breakpoints=await call.session.breakpoints.add(params))


async def list_breakpoints(call: Call, params: b.ListBreakpoints) -> Struct:
    listed = await call.session.breakpoints.listed(params.file, params.verified)
    return b.BreakpointList(breakpoints=listed, total=len(listed))


async def clear_breakpoints(call: Call, params: SessionParams) -> Struct:
    return Count(deleted=await call.session.breakpoints.clear())


async def get_breakpoint(call: Call, params: b.OneBreakpoint) -> Struct:
    return await call.session.breakpoints.one(params.breakpoint_id)


async def patch_breakpoint(call: Call, params: b.PatchBreakpoint) -> Struct:
    return await call.session.breakpoints.patch(params)


async def delete_breakpoint(call: Call, params: b.OneBreakpoint) -> Struct:
    await call.session.breakpoints.remove(params.breakpoint_id)
    return Deleted(id=params.breakpoint_id)


async def threads(call: Call, params: i.Threads) -> Struct:
    session = call.session
    session.require("threads", OPERATIONS["threads"].states)
    paused = session.state is State.PAUSED
    current = session.stop.thread_id if session.stop else None
    listed = await session.hub.refresh_threads()
    return i.ThreadList(
        threads=[
            i.Thread(
                id=thread.id,
                name=thread.name,
                status="paused" if paused else "running",
                is_current=thread.id == current,
            )
            for thread in listed
        ],
        stopped_thread_id=current,
    )


async def stacktrace(call: Call, params: i.Stacktrace) -> Struct:
    session = call.session
    session.require("stacktrace", OPERATIONS["stacktrace"].states)
    return await viewing.stack(session, params.thread_id, params.start_frame, params.levels)


async def scopes(call: Call, params: i.Scopes) -> Struct:
    session = call.session
    session.require("scopes", OPERATIONS["scopes"].states)
    thread_id = viewing.thread_of(session, params.thread_id)
    found = await session.hub.scopes(thread_id, params.frame_id)
    return i.ScopeList(
        frame_id=params.frame_id,
        thread_id=thread_id,
        scopes=[
            i.Scope(
                name=scope.name,
                presentation_hint=scope.presentation_hint or scope.name.lower(),
                variables_reference=reference,
                expensive=scope.expensive,
            )
            for scope, reference in found
        ],
    )


async def variables(call: Call, params: i.Variables) -> Struct:
    call.session.require("variables", OPERATIONS["variables"].states)
    return await viewing.variables(
        call.session, params.variables_reference, params.start, params.count, params.filter
    )


async def frame_variables(call: Call, params: i.FrameVariables) -> Struct:
    session = call.session
    session.require("frame-variables", OPERATIONS["frame-variables"].states)
    thread_id = viewing.thread_of(session, params.thread_id)
    for scope, reference in await session.hub.scopes(thread_id, params.frame_id):
        if scope.name.lower() == params.scope:
            return await viewing.variables(session, reference, params.start, params.count, None)
    raise RelayError(Code.VARIABLE_NOT_FOUND, f"The frame has no scope {params.scope}")


async def evaluate(call: Call, params: i.Evaluate) -> Struct:
    session = call.session
    session.require("evaluate", OPERATIONS["evaluate"].states)
    return await viewing.evaluate(session, params)


async def patch_session(call: Call, params: s.PatchSession) -> Struct:
    changes.apply(call.session, params)
    return call.session.public()


HANDLERS: Final[Mapping[str, Handler]] = {
    "patch-session": patch_session,
    "launch": launch_program,
    "attach": attach,
    "detach": detach,
    "terminate": terminate,
    "input": write_input,
    "continue": resume,
    "pause": pause,
    "step-over": step("step-over", "next"),
    "step-into": step("step-into", "stepIn"),
    "step-out": step_out,
    "set-breakpoints": set_breakpoints,
    "list-breakpoints": list_breakpoints,
    "clear-breakpoints": clear_breakpoints,
    "get-breakpoint": get_breakpoint,
    "patch-breakpoint": patch_breakpoint,
    "delete-breakpoint": delete_breakpoint,
    "threads": threads,
    "stacktrace": stacktrace,
    "scopes": scopes,
    "variables": variables,
    "frame-variables": frame_variables,
    "evaluate": evaluate,
}


def check_table() -> None:
    """Every operation of the worker's that is there has its handler, and none is left over."""
    wanted = {row.name for row in OPERATIONS.values() if row.side == "worker" and row.implemented}
    if wanted != HANDLERS.keys():
        raise RuntimeError(f"operations and handlers differ: {sorted(wanted ^ HANDLERS.keys())}")
