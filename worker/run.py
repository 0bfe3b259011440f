"""Moving a program: continue, steps, pause, end; and what is told afterwards."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from debug_relay.protocol import execution as e
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.fields import ExceptionStop
from debug_relay.protocol.frames import RequestHead
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.state import State
from debug_relay.worker.dap_client import KnownThread
from debug_relay.worker.session import Session

# How long a running main thread has to stop by itself before it is woken by a signal.
_WAKE_AFTER: Final = 0.05
_WAKE_AGAIN: Final = 0.5
_ALIVE: Final = frozenset({State.LAUNCHING, State.RUNNING, State.PAUSED})


def filters_of(choice: ExceptionStop) -> list[str]:
    """`stop_on_exception` of a launch as exception filters."""
    if choice is True:
        return ["raised", "uncaught"]
    if choice is False:
        return []
    return [choice]


def check(session: Session, head: RequestHead, operation: str) -> None:
    """Is it allowed now, and does the caller know where the program is."""
    session.require(operation, OPERATIONS[operation].states)
    if head.if_stop is not None and head.if_stop != session.stop_id:
        stop = session.stop
        raise RelayError(
            Code.STOP_CHANGED,
            f"If-Stop says {head.if_stop}, but the session is at stop {session.stop_id}"
            + ("" if stop else " and runs"),
            f"Look again, then send If-Stop: {session.stop_id}.",
            if_stop=head.if_stop,
            stop_id=session.stop_id,
            status=session.state.value,
            current_location=stop.location if stop else None,
        )


def thread_to_move(session: Session, thread_id: int | None) -> KnownThread:
    assert session.stop is not None
    return session.hub.thread(thread_id or session.stop.thread_id)


def move(session: Session, thread: KnownThread, command: str) -> None:
    """Send the program on its way.

    The answer is not awaited: debugpy may leave `continue` unanswered when another thread stops at
    once. The stop that follows is the answer.
    """
    arguments: dict[str, Any] = {"threadId": thread.dap_id}
    server = thread.server
    if server.lost:
        session.hub.main_server()  # raises, in words
    session.resumed(None)
    server.post(command, arguments)


async def request_pause(session: Session) -> None:
    session.hub.main_server()
    for server in session.hub.servers:
        server.post("pause", {"threadId": "*"})


async def until_paused(
    session: Session, before: int, timeout: float, abandoned: asyncio.Event
) -> bool:
    """Wait for the stop; a main thread that sleeps in the kernel is woken to reach it."""
    for patience in (_WAKE_AFTER, _WAKE_AGAIN):
        if await session.until_stopped(before, min(patience, timeout), abandoned):
            return True
        timeout -= patience
        if timeout <= 0 or abandoned.is_set() or session.target is None:
            return False
        session.target.wake()
    return await session.until_stopped(before, timeout, abandoned)


async def end_program(session: Session, grace: float) -> None:
    """End it, and everything that it has started in its process group."""
    if session.target is not None and session.state in _ALIVE:
        await session.target.end(grace)


def result(session: Session, completed: bool) -> e.Execution:
    """Where the program is, after an execution call."""
    stop = session.stop
    return e.Execution(
        session_id=session.id,
        status=session.state,
        completed=completed,
        stop_reason=stop.reason if stop else None,
        stop_id=session.stop_id,
        thread_id=stop.thread_id if stop else None,
        current_location=stop.location if stop else None,
        exit_code=session.exit_code,
        signal=session.signal,
        end_reason=session.end_reason,
    )
