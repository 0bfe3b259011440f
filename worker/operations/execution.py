"""The handlers that move a program: continue, pause, steps, running to a line.

With a thread in the call it alone moves, and its stop is what the call waits for; in a session
whose stops halt one thread only, so it is without.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from debug_relay.protocol.errors import RelayError
from debug_relay.protocol.models import execution as e
from debug_relay.protocol.models.fields import SnapshotBounds
from debug_relay.protocol.models.inspection import Stack
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.state import State
from debug_relay.worker.debugger import run_control as run
from debug_relay.worker.debugger import run_to_line as run_to
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.hub import KnownThread
from debug_relay.worker.inspection import views as viewing
from debug_relay.worker.operations import stops as stop_handlers
from debug_relay.worker.operations.call import Call
from debug_relay.worker.session.session import Session

_LOOK_SECONDS: Final = 1.0  # at a thread that could not be paused
_LIVE_FRAMES: Final = 20


class Moved(Struct):
    """What a call has set going, and waits for."""

    before: int  # the stop before
    thread: KnownThread
    alone: bool
    questions: int  # that it had asked by then
    steps: bool = False

    @property
    def awaited(self) -> int | None:
        """The one thread whose stop counts."""
        return self.thread.id if self.alone else None

    @property
    def process(self) -> DebugServer | None:
        """A step ends in its own process, whatever happens in others meanwhile."""
        return self.thread.server if self.steps else None


async def resume(call: Call, params: e.Continue) -> Struct:
    session = call.session
    async with session.driving, session.asking.nobody_evaluates():
        session.require("continue", OPERATIONS["continue"].states)
        thread = run.thread_to_move(session, params.thread_id)
        alone = params.thread_id is not None and run.is_alone(session, thread, named=True)
        moved = Moved(session.stop_id, thread, alone, session.questions)
        await _move(session, moved, "continue", session.standing_threads())
    completed = await _until_stopped(call, moved, params.wait)
    result = run.result(session, completed, moved.awaited)
    result.continued = True
    return await _with_report(call, result, params.snapshot)


async def step_over(call: Call, params: e.Step) -> Struct:
    moved = await _step(call, params, "step-over", "next")
    completed = await _until_stopped(call, moved, params.wait)
    result = run.result(call.session, completed, moved.awaited, moved.process)
    return await _with_report(call, result, params.snapshot)


async def step_into(call: Call, params: e.Step) -> Struct:
    session = call.session
    moved = await _step(call, params, "step-into", "stepIn")
    completed = await _until_stopped(call, moved, params.wait)
    result = run.result(session, completed, moved.awaited, moved.process)
    server = moved.thread.server
    if completed and result.stop_reason == "step" and server.has_probe:
        try:
            callee = await session.asking.ask(server, "native", thread=moved.thread.dap_id)
        except RelayError:
            callee = None  # it ended, or ran on for another caller
        if callee is not None:
            result.native_frame, result.native_callee = True, callee
    return await _with_report(call, result, params.snapshot)


async def step_out(call: Call, params: e.Step) -> Struct:
    session = call.session
    moved = await _step(call, params, "step-out", "stepOut")
    completed = await _until_stopped(call, moved, params.wait)
    result = run.result(session, completed, moved.awaited, moved.process)
    try:
        try:
            if completed and session.state is State.PAUSED:
                result.return_value = await viewing.return_value(session, moved.thread.id)
        finally:
            await session.asking.keep_returns(False)
    except RelayError:
        # The program ended, or ran on for another caller: the step itself is done all the same.
        result.return_value = None
    session.reports.returned(result.stop_id, result.return_value)
    return await _with_report(call, result, params.snapshot)


async def run_to_line(call: Call, params: e.RunTo) -> Struct:
    session = call.session
    async with session.driving, session.asking.nobody_evaluates():
        session.require("run-to", OPERATIONS["run-to"].states)
        thread = run.thread_to_move(session, params.thread_id)
        alone = params.thread_id is not None and run.is_alone(session, thread, named=True)
        # As it is before others, which may run, can reach the line.
        moved, standing = (
            Moved(session.stop_id, thread, alone, session.questions),
            session.standing_threads(),
        )
        goal = await run_to.begin(session, params, thread)
        await _move(session, moved, "continue", standing)
    completed = await _until_stopped(call, moved, params.wait)
    result = run.result(session, completed, moved.awaited)
    if completed:
        result.reached = goal.reached
    return await _with_report(call, result, params.snapshot)


async def pause(call: Call, params: e.Pause) -> Struct:
    session = call.session
    async with session.driving:
        session.require("pause", OPERATIONS["pause"].states)
        before = session.stop_id
        run.require_running(session, params.thread_id)
        awaited = None
        if params.thread_id is not None:
            thread = session.hub.thread(params.thread_id)
            awaited = thread.id if run.is_alone(session, thread, named=True) else None
        if awaited is None:
            await run.request_pause(session)
        else:
            run.request_halt(session, thread)
    completed = await run.until_paused(session, before, params.wait, call.abandoned, awaited)
    if not completed and session.state is State.RUNNING:
        session.hub.main_server()  # which may have gone meanwhile: then there is none to wait for
    if completed and awaited is None:
        await run.until_others_stand(session, call.abandoned)
    result = run.result(session, completed, awaited)
    if not completed or awaited is not None:
        result.live_stack = await _not_yet(session, awaited)
    if not completed or result.live_stack is not None:
        result.pause_pending = True
    return await _with_report(call, result, params.snapshot)


async def _not_yet(session: Session, thread_id: int | None) -> Stack | None:
    """Where a thread is that was to stop and has not; nothing of one that stands."""
    try:
        chosen = viewing.any_thread_of(session, thread_id)
        return await viewing.live_stack(session, chosen, 0, _LIVE_FRAMES, _LOOK_SECONDS)
    except RelayError:
        return None  # it has ended, or nothing can be read while C holds the interpreter


async def _step(call: Call, params: e.Step, operation: str, command: str) -> Moved:
    session = call.session
    async with session.driving, session.asking.nobody_evaluates():
        session.require(operation, OPERATIONS[operation].states)
        thread = run.thread_to_move(session, params.thread_id)
        alone = run.is_alone(session, thread, named=params.thread_id is not None)
        if command == "stepOut":
            await session.asking.keep_returns(True)
        elif command == "stepIn" and thread.server.has_probe:
            await session.asking.ask(thread.server, "watch_calls", thread=thread.dap_id)
        moved = Moved(session.stop_id, thread, alone, session.questions, steps=True)
        await _move(session, moved, command, [thread.id])
        return moved


async def _move(session: Session, moved: Moved, command: str, standing: list[int]) -> None:
    """Of all threads, where they stop one by one, those that stand: no other may stop meanwhile
    and be sent on unseen."""
    if moved.alone:
        await run.move_alone(session, [moved.thread], command)
    elif not session.params.config.stop_all and moved.thread.server.has_probe:
        threads = [session.hub.thread(id) for id in standing if session.hub.knows(id)]
        await run.move_alone(session, threads, command)
    elif command == "continue":
        run.go_on(session)
    else:
        run.move(session, moved.thread, command)


async def _until_stopped(call: Call, moved: Moved, wait: float) -> bool:
    session = call.session

    def has_stopped() -> bool:
        return run.has_stopped(session, moved.before, moved.awaited, moved.process)

    def over() -> bool:
        return has_stopped() or session.asks_since(moved.questions)

    await session.news.until(over, wait, call.abandoned)
    return has_stopped()


async def _with_report(call: Call, result: e.Execution, snapshot: SnapshotBounds) -> e.Execution:
    if result.completed or call.session.state is not State.PAUSED:
        await stop_handlers.add_report(call, result, snapshot)
    return result
