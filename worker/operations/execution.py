"""The handlers that resume or pause a program: continue, pause, steps, running to a line.

If the request names a thread, only that thread is resumed, and its stop is what the call waits for.
With `stop_all: false` that is also the default.

What a step needs of the program is requested first, and that takes time: another caller may take
the lease meanwhile. So `access.require` decides again, and nothing is awaited between it and the
resume.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models import execution as e
from debug_relay.protocol.models.fields import SnapshotBounds
from debug_relay.protocol.models.inspection import Stack
from debug_relay.protocol.state import State
from debug_relay.worker.debugger.run_control import RunCommand
from debug_relay.worker.operations import stops
from debug_relay.worker.operations.call import Call
from debug_relay.worker.session.session import Session

_LOOK_SECONDS: Final = 1.0  # The look at a thread that could not be paused.
_LIVE_FRAMES: Final = 20  # Frames that are shown of a thread that could not be paused.
_RUNNING: Final = frozenset({State.RUNNING})


async def resume(call: Call, params: e.Continue) -> Struct:
    session = call.session
    async with session.run.lock, session.probes.nobody_evaluates():
        session.access.require("continue")
        command = session.run.command(params.thread_id)
        await session.run.resume(command, "continue", session.stops.stopped_threads())
    result = await _stopped(call, command, params.wait)
    result.continued = True
    return await _with_report(call, result, params.snapshot)


async def step_over(call: Call, params: e.Step) -> Struct:
    command = await _step(call, params, "step-over", "next")
    result = await _stopped(call, command, params.wait)
    return await _with_report(call, result, params.snapshot)


async def step_into(call: Call, params: e.Step) -> Struct:
    command = await _step(call, params, "step-into", "stepIn")
    result = await _stopped(call, command, params.wait)
    thread = command.thread
    if result.completed and result.stop_reason == "step":
        try:
            callee = await thread.server.engine.native_callee(thread.dap_id)
        except RelayError:
            callee = None  # the program ended, or another caller resumed it
        if callee is not None:
            result.native_frame, result.native_callee = True, callee
    return await _with_report(call, result, params.snapshot)


async def step_out(call: Call, params: e.Step) -> Struct:
    session = call.session
    command = await _step(call, params, "step-out", "stepOut")
    result = await _stopped(call, command, params.wait)
    try:
        try:
            if result.completed and session.lifecycle.state is State.PAUSED:
                result.return_value = await session.views.return_value(command.thread.id)
        finally:
            await session.probes.keep_returns(False)
    except RelayError:
        # The program ended, or another caller resumed it. The step itself is done all the same.
        result.return_value = None
    session.reports.returned(result.stop_id, result.return_value)
    return await _with_report(call, result, params.snapshot)


async def run_to_line(call: Call, params: e.RunTo) -> Struct:
    session = call.session
    async with session.run.lock, session.probes.nobody_evaluates():
        session.access.require("run-to")
        # Taken before other threads, which may run, can reach the line.
        command = session.run.command(params.thread_id)
        stopped = session.stops.stopped_threads()
        goal = await session.run_to_line.begin(params, command.thread)
        try:
            session.access.require("run-to")
        except RelayError:
            await session.run_to_line.take_back(goal)
            raise
        await session.run.resume(command, "continue", stopped)
    result = await _stopped(call, command, params.wait)
    if result.completed:
        result.reached = goal.reached
    return await _with_report(call, result, params.snapshot)


async def pause(call: Call, params: e.Pause) -> Struct:
    session = call.session
    run = session.run
    async with run.lock:
        has_none = session.lifecycle.state is State.PAUSED and run.has_none_to_pause(
            params.thread_id
        )
        session.access.require("pause", _RUNNING if has_none else None)
        before = session.stops.stop_id
        awaited = None
        if params.thread_id is not None:
            thread = session.hub.thread(params.thread_id)
            awaited = thread.id if run.is_alone(thread, named=True) else None
        if awaited is None:
            run.request_pause()
        else:
            run.request_halt(thread)
    completed = await run.until_paused(before, params.wait, call.abandoned, awaited)
    if not completed and session.lifecycle.state is State.RUNNING:
        session.hub.main_server()  # raises if the connection was lost meanwhile
    if completed and awaited is None:
        await run.until_others_stop(call.abandoned)
    result = run.result(completed, awaited)
    if not completed or awaited is not None:
        result.live_stack, result.note = await _pending_stack(session, awaited)
    if not completed or result.live_stack is not None:
        result.pause_pending = True
    return await _with_report(call, result, params.snapshot)


async def _pending_stack(
    session: Session, thread_id: int | None
) -> tuple[Stack | None, str | None]:
    """The stack of a thread that should stop and has not, or why it cannot be read; neither for a
    thread that is paused or has ended.
    """
    try:
        chosen = session.views.any_thread_of(thread_id)
        return await session.views.live_stack(chosen, 0, _LIVE_FRAMES, _LOOK_SECONDS), None
    except RelayError as error:
        if error.code is not Code.DEBUGPY_TIMEOUT:
            return None, None
        return None, f"{error.message}. {error.details['suggestion']}"


async def _step(call: Call, params: e.Step, operation: str, how: str) -> RunCommand:
    session = call.session
    async with session.run.lock, session.probes.nobody_evaluates():
        session.access.require(operation)
        command = session.run.command(params.thread_id, steps=True)
        thread = command.thread
        if how == "stepOut":
            await session.probes.keep_returns(True)
        elif how == "stepIn":
            await thread.server.engine.watch_calls(thread.dap_id)
        try:
            session.access.require(operation)
        except RelayError:
            if how == "stepOut":
                await session.probes.keep_returns(False)
            raise
        # The stop may have changed while the thread's process answered.
        command.before, command.questions = session.stops.stop_id, session.input.count
        await session.run.resume(command, how, [thread.id])
        return command


async def _stopped(call: Call, command: RunCommand, wait: float) -> e.Execution:
    """Wait for the stop; the result says where the program is then."""
    run = call.session.run
    completed = await run.until_stopped(command, wait, call.abandoned)
    return run.result(completed, command.awaited, command.process)


async def _with_report(call: Call, result: e.Execution, snapshot: SnapshotBounds) -> e.Execution:
    if result.completed or call.session.lifecycle.state is not State.PAUSED:
        await stops.add_report(call, result, snapshot)
    return result
