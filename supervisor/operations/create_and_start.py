"""`POST /sessions` with `mode`: creates a session and launches or attaches in the same call."""

from __future__ import annotations

from typing import Final

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.fields import Result, SessionParams
from debug_relay.protocol.models.sessions import CreateSession
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.state import State
from debug_relay.protocol.validation.cross_field_rules import OF_MODE
from debug_relay.protocol.wire.frames import Caller
from debug_relay.supervisor.operations.worker_calls import WorkerCalls
from debug_relay.supervisor.sessions.mirror import Session
from debug_relay.supervisor.sessions.registry import Registry

_LOOK_SECONDS: Final = 1.0  # Between two looks at a session that launches without us.


async def create_and_start(
    registry: Registry, worker_calls: WorkerCalls, params: CreateSession, caller: Caller
) -> Session:
    """Creates and starts a session; deletes it again if the start fails."""
    first = _first_call(params)
    session = await registry.create(params, caller)
    if params.mode is None or first is None:
        return session
    first.session_id = session.id
    try:
        if not await _has_started(session, params.mode):
            await worker_calls.ask(session, params.mode, first, caller, Result)
    except Exception as error:
        if not session.deleting:
            await registry.delete(session, None, force=True, caller=caller)
        if isinstance(error, RelayError) and error.code is Code.SESSION_CRASHED:
            # The usual suggestion for a crash names the session, which is deleted by now.
            left = "No session is left of this call: send it again."
            raise RelayError(error.code, error.message, left) from error
        raise
    return session


async def _has_started(session: Session, mode: str) -> bool:
    """Whether this very request has started the program already: an earlier relay was killed before
    it answered. A start that is under way is waited for.
    """
    while session.state.status is State.LAUNCHING:
        await session.wait_for_events(session.events_end, _LOOK_SECONDS)
        session.require_there()
    if session.state.status is State.FAILED:
        raise session.crashed(mode)
    return session.state.status is not State.CREATED


def _first_call(params: CreateSession) -> SessionParams | None:
    """The params of the launch or attach. Validation has checked that the fields fit the mode."""
    if params.mode is None:
        return None
    fields = {name: getattr(params, name) for name in (*OF_MODE[params.mode], "wait")}
    given = {name: value for name, value in fields.items() if value not in (None, [], {})}
    kind = OPERATIONS[params.mode].params
    assert issubclass(kind, SessionParams)
    return kind(session_id="", **given)  # the caller fills in the id
