"""Calls of operations that a session's worker does: prepared first, and with their row's deadline.

Dispatch forwards callers' requests through here. So do calls that consist of several steps:
`POST /sessions` with a mode, `POST /run`, and applying a profile.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final, TypeVar

import msgspec

from debug_relay.protocol.models.fields import Params, Result
from debug_relay.protocol.operations import OPERATIONS, Operation, Preparation
from debug_relay.protocol.refusals import decode_error
from debug_relay.protocol.wire.envelope import encode_json
from debug_relay.protocol.wire.frames import Caller, ReplyHead, RequestHead
from debug_relay.supervisor.processes.listing import Processes
from debug_relay.supervisor.sessions import call_deadlines
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
        head = RequestHead(
            operation.name,
            request_id or secrets.token_hex(8),
            caller,
            call_deadlines.for_worker(operation, params, self._registry.settings.dap),
            if_stop,
            format=format,
        )
        lasts = call_deadlines.for_call(operation, params, self._registry.settings.dap)
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
