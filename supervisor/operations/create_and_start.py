"""`POST /sessions`: creates a session and, with `mode`, runs its program to the first stop."""

from __future__ import annotations

import os
from typing import Final

import msgspec

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.breakpoints import (
    Breakpoint,
    BreakpointsSet,
    ExceptionBreakpoints,
    SetBreakpoints,
    SetExceptionBreakpoints,
)
from debug_relay.protocol.models.creation import CreateSession, SessionCreated
from debug_relay.protocol.models.execution import Execution
from debug_relay.protocol.models.fields import SessionParams
from debug_relay.protocol.models.stop_report import Stop
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.state import State
from debug_relay.protocol.validation.cross_field_rules import OF_MODE
from debug_relay.protocol.wire.frames import Caller
from debug_relay.supervisor.operations.relative_files import placed
from debug_relay.supervisor.operations.worker_calls import WorkerCalls
from debug_relay.supervisor.sessions.mirror import Session
from debug_relay.supervisor.sessions.registry import Registry

_LOOK_SECONDS: Final = 1.0  # Between two looks at a session that launches without us.


async def create_and_start(
    registry: Registry, worker_calls: WorkerCalls, params: CreateSession, caller: Caller
) -> SessionCreated:
    """Creates and starts a session, and deletes it again if the start fails."""
    first = _first_call(params)
    session = await registry.create(params, caller)
    starting = _Starting(worker_calls, session, params, caller)
    try:
        points = await starting.set_breakpoints()
        stop = await starting.start(first) if params.mode and first is not None else None
    except Exception as error:
        if not session.deleting:
            await registry.delete(session, None, force=True, caller=caller)
        if isinstance(error, RelayError) and error.code is Code.SESSION_CRASHED:
            # The usual suggestion for a crash names the session, which is deleted by now.
            left = "No session is left of this call: send it again."
            raise RelayError(error.code, error.message, left) from error
        raise
    return SessionCreated(
        **msgspec.structs.asdict(session.present()), breakpoints=points, stop=stop
    )


class _Starting:
    """The further calls for one new session."""

    def __init__(
        self, worker_calls: WorkerCalls, session: Session, params: CreateSession, caller: Caller
    ) -> None:
        self._worker_calls = worker_calls
        self._session = session
        self._params = params
        self._caller = caller

    async def set_breakpoints(self) -> list[Breakpoint]:
        """Sets breakpoints and exception filters before the program starts."""
        params, id = self._params, self._session.id
        points: list[Breakpoint] = []
        if params.breakpoints:
            specs = [
                placed(spec, lambda file: _found(file, params), params.script)
                for spec in params.breakpoints
            ]
            batch = SetBreakpoints(session_id=id, breakpoints=specs)
            points = (
                await self._worker_calls.ask(
                    self._session, "set-breakpoints", batch, self._caller, BreakpointsSet
                )
            ).breakpoints
        if params.exceptions is not None:
            filters = SetExceptionBreakpoints(
                session_id=id, **msgspec.structs.asdict(params.exceptions)
            )
            await self._worker_calls.ask(
                self._session,
                "set-exception-breakpoints",
                filters,
                self._caller,
                ExceptionBreakpoints,
            )
        return points

    async def start(self, first: SessionParams) -> Stop | None:
        """Launches or attaches. The stop is None where the program runs or has ended."""
        mode = self._params.mode
        assert mode is not None
        if await self._has_started(mode):
            return None
        first.session_id = self._session.id
        began = await self._worker_calls.ask(self._session, mode, first, self._caller, Execution)
        return began.stop

    async def _has_started(self, mode: str) -> bool:
        """Whether this very request has started the program already: an earlier relay was killed
        before it answered. A start that is under way is waited for.
        """
        session = self._session
        while session.state.status is State.LAUNCHING:
            await session.wait_for_events(session.events_end, _LOOK_SECONDS)
            session.require_there()
        if session.state.status is State.FAILED:
            raise session.crashed(mode)
        return session.state.status is not State.CREATED


def _found(file: str, params: CreateSession) -> str:
    """Without a project root a relative file starts at the launch's cwd."""
    if params.project_root is not None or params.cwd is None:
        return file
    return os.path.join(params.cwd, file)


def _first_call(params: CreateSession) -> SessionParams | None:
    """The params of the launch or attach. Validation has checked that the fields fit the mode."""
    if params.mode is None:
        return None
    fields = {name: getattr(params, name) for name in (*OF_MODE[params.mode], "wait", "snapshot")}
    given = {name: value for name, value in fields.items() if value not in (None, [], {})}
    kind = OPERATIONS[params.mode].params
    assert issubclass(kind, SessionParams)
    return kind(session_id="", **given)  # the caller fills in the id
