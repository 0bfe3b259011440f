"""DAP's requests that resume, step and pause the program."""

from __future__ import annotations

from typing import Final

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.worker.ide import arguments as a
from debug_relay.worker.ide.joined_ide import JoinedIde
from debug_relay.worker.ide.shapes import Body

_STEP_SECONDS: Final = 30.0  # We wait this long for the rest of a step, such as its return value.
_PAUSE_SECONDS: Final = 5.0  # A pause is answered after this time, also if it is still pending.


async def resume(ide: JoinedIde, arguments: a.OnThread) -> Body:
    ide.require_stopped(arguments.thread_id)
    alone = _alone(ide, arguments)
    ide.answer_on("continued", {"allThreadsContinued": not alone})
    await ide.ask("continue", thread_id=arguments.thread_id if alone else None, wait=0)
    return {"allThreadsContinued": not alone}


async def step_over(ide: JoinedIde, arguments: a.OnThread) -> Body:
    return await _step(ide, "step-over", arguments)


async def step_into(ide: JoinedIde, arguments: a.OnThread) -> Body:
    return await _step(ide, "step-into", arguments)


async def step_out(ide: JoinedIde, arguments: a.OnThread) -> Body:
    return await _step(ide, "step-out", arguments)


async def _step(ide: JoinedIde, operation: str, arguments: a.OnThread) -> Body:
    ide.require_stopped(arguments.thread_id)
    current = ide.session.stops.current
    selected = current is not None and current.thread_id == arguments.thread_id
    alone = _alone(ide, arguments) or not selected
    ide.answer_on("continued")
    thread_id = arguments.thread_id if alone else None
    await ide.ask(operation, thread_id=thread_id, wait=_STEP_SECONDS)
    return None


def _alone(ide: JoinedIde, arguments: a.OnThread) -> bool:
    """Whether only this thread is to be resumed."""
    return bool(arguments.single_thread) or not ide.session.settings.config.stop_all


async def pause(ide: JoinedIde, arguments: a.OnThread) -> Body:
    ide.answer_on("stopped")
    stop_all = ide.session.settings.config.stop_all
    thread_id = None if stop_all else arguments.thread_id
    try:
        await ide.ask("pause", thread_id=thread_id, wait=_PAUSE_SECONDS)
    except RelayError as error:
        # The thread may have stopped by itself while the person pressed the button.
        is_stopped = arguments.thread_id in ide.session.stops.stopped_threads()
        if error.code is not Code.INVALID_SESSION_STATE or not is_stopped:
            raise
    return None
