"""Calls of operations that a session's worker does: prepared first, and with their row's deadline.

Dispatch passes callers' requests to `answer`; files answer for a worker that has retired. Calls
that consist of several steps use `ask`: `POST /sessions` with a mode, `POST /run`, and applying a
profile.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final, TypeVar

import msgspec

from debug_relay.protocol.models.execution import TraceRows
from debug_relay.protocol.models.fields import Params, Result
from debug_relay.protocol.models.sessions import SessionState
from debug_relay.protocol.operation_row import Operation, Preparation
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.refusals import decode_error, not_for_native, stop_changed, wrong_state
from debug_relay.protocol.state import State
from debug_relay.protocol.trace_pages import turn_to_columns
from debug_relay.protocol.wire import envelope
from debug_relay.protocol.wire.envelope import encode_json
from debug_relay.protocol.wire.frames import Caller, ReplyHead, RequestHead
from debug_relay.supervisor.operations.answers import Finished, of_result
from debug_relay.supervisor.operations.request import Understood
from debug_relay.supervisor.processes.listing import Processes
from debug_relay.supervisor.sessions import call_deadlines, retired_answers
from debug_relay.supervisor.sessions.mirror import Session
from debug_relay.supervisor.sessions.registry import Registry

_R = TypeVar("_R", bound=Result)
# The format of the answer to the request that is being handled: bounds count what is sent, and a
# reader of text gets the stop without asking for it.
FORMAT: Final[ContextVar[str]] = ContextVar("format", default="json")


class WorkerCalls:
    def __init__(self, registry: Registry, processes: Processes) -> None:
        self._registry = registry
        self._preparations: Mapping[Preparation, Callable[[Any, Session], Awaitable[None]]] = {
            "choose-process": processes.choose
        }

    async def answer(self, understood: Understood) -> Finished:
        """The answer to a caller's request, as bytes that we do not decode."""
        operation, params, if_stop = understood.operation, understood.params, understood.if_stop
        session = self._registry.get(params.session_id)  # type: ignore[attr-defined]
        session.require_there()
        self._require_state(session.state, operation, if_stop)
        await self._registry.until_retired(session)
        is_retired = session.child is None and session.state.status is State.TERMINATED
        if is_retired and if_stop is None:  # only a worker can compare that
            left = await asyncio.to_thread(retired_answers.answer, session, operation.name, params)
            if left is not None:
                session.use.touch()
                if understood.format == "json" and getattr(params, "shape", "") == "columns":
                    assert isinstance(left, TraceRows)
                    turn_to_columns(left)
                return of_result(
                    left, operation, operation.status, understood.id, understood.format
                )
        reply, payload = await self.forward(
            session,
            operation,
            params,
            understood.caller,
            request_id=understood.id,
            if_stop=if_stop,
            format=understood.format,
        )
        session.require_there()
        if reply.content_type != "application/json":
            return Finished(reply.status, payload, reply.content_type)
        wrap = envelope.success if reply.ok else envelope.failure
        return Finished(reply.status, wrap(payload, understood.id))

    async def forward(
        self,
        session: Session,
        operation: Operation,
        params: Params,
        caller: Caller,
        *,
        request_id: str | None = None,
        if_stop: int | None = None,
        format: str = "json",
    ) -> tuple[ReplyHead, bytes]:
        """The worker's answer or refusal, as bytes."""
        if operation.prepare is not None:
            await self._preparations[operation.prepare](params, session)
        dap = self._registry.settings.dap
        lasts = call_deadlines.for_call(operation, params, dap)
        head = RequestHead(
            operation.name,
            request_id or secrets.token_hex(8),
            caller,
            call_deadlines.for_worker(operation, lasts, dap),
            if_stop,
            format=format,
        )
        return await session.forward(head, encode_json(params), lasts=lasts)

    async def ask(
        self, session: Session, name: str, params: Params, caller: Caller, kind: type[_R]
    ) -> _R:
        """The worker's answer to one step of a longer call; a refusal is raised."""
        reply, payload = await self.forward(session, OPERATIONS[name], params, caller)
        session.require_there()
        if not reply.ok:
            raise decode_error(payload)
        return msgspec.json.decode(payload, type=kind)

    def _require_state(
        self, known: SessionState, operation: Operation, if_stop: int | None
    ) -> None:
        """Refuses what the mirror shows to be illegal; the worker checks again."""
        status, session_id = known.status, known.session_id
        if status is State.FAILED:
            raise self._registry.get(session_id).crashed(operation.name)
        if operation.python_only and known.program is not None and known.program.is_native:
            raise not_for_native(operation.name, known.program)
        if if_stop is not None and status is State.RUNNING and status not in operation.states:
            raise stop_changed(if_stop, status, known.stop_id, None, session_id)
        # The mirror may be a frame behind the worker (a pause may be requested while it still says
        # paused), so we refuse only what no later frame can make right.
        if status not in operation.states:
            raise wrong_state(operation.name, status, operation.states, session_id, known.program)
