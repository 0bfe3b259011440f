"""Admission: whether the caller may make a request, and what the request means."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import UNSET

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.fields import Params
from debug_relay.protocol.operation_row import Operation, RefusalCheck
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.refusals import MOST_PROBLEMS, Problem
from debug_relay.protocol.scopes import SCOPES
from debug_relay.protocol.validation.json_body import parse_json
from debug_relay.protocol.validation.params import Examined, examine
from debug_relay.protocol.wire.frames import Caller
from debug_relay.supervisor.access.guard import Guard
from debug_relay.supervisor.operations.breakpoint_batch import verify_sound_entries
from debug_relay.supervisor.operations.request import Call, Request, Understood
from debug_relay.supervisor.sessions.mirror import Session
from debug_relay.supervisor.sessions.registry import Registry

Check = Callable[[Session, Mapping[str, Any], list[Problem]], Awaitable[None]]

# A longer body is parsed in a thread, because that takes up to a second.
_READ_AT_ONCE_BYTES: Final = 64 * 1024
_LONGEST_NUMBER_DIGITS: Final = 15  # The header If-Stop.
_REFUSAL_CHECKS: Final[Mapping[RefusalCheck, Check]] = {
    "verify-sound-entries": verify_sound_entries
}


class Admission:
    def __init__(self, guard: Guard, registry: Registry) -> None:
        self._guard = guard
        self._registry = registry
        self._reading = asyncio.Lock()

    def admit(self, request: Request) -> Caller:
        """The caller, who must be allowed to make this request. An open stream is checked
        repeatedly.
        """
        # Callers without any right learn nothing else, not even which operations there are.
        operation = request.operation
        scope = operation.scope if operation is not None else SCOPES[0]
        if operation is not None and operation.own_token and self._shows_own_token(request):
            name = f"debugger of {request.path['session_id']}"
            return Caller(name, request.uid, operation.scopes)
        caller = self._guard.identify(
            request.uid,
            request.agent,
            request.authorization,
            scope,
            request.front,
            request.ticketed,
            request.key,
        )
        if operation is None:
            return caller
        for needed in operation.scopes:
            self._guard.require(caller, operation.name, needed)
        return caller

    def _shows_own_token(self, request: Request) -> bool:
        """Whether the request's token is that of the session, which its worker has made."""
        try:
            id = self._registry.id_of(request.path["session_id"])
        except RelayError:
            return False  # the error names sessions, and this caller may know of none
        session = self._registry.sessions.get(id)
        debugger = session.state.debugger if session is not None else None
        return debugger is not None and self._guard.shows(request.authorization, debugger.token)

    def redeem(self, request: Request) -> None:
        """Reads from the request's ticket, if it has one, for which token and key it was issued."""
        if request.ticket is not None:
            ticket = self._guard.tickets.redeem(request.ticket, request.uid)
            request.ticketed, request.key = ticket.token, ticket.key

    async def understand(self, call: Call) -> Understood:
        request = call.request
        operation = request.operation
        caller = call.caller = self.admit(request)
        if operation is None:
            raise request.misread or RelayError(Code.NOT_FOUND, "There is no such operation")
        body = await request.body() if callable(request.body) else request.body
        if request.misread is not None:
            raise request.misread
        if (address := request.path.get("session_id")) is not None:
            request.path = {**request.path, "session_id": self._registry.id_of(address)}
        query = _single_values(request.query)
        params = await self._params(operation, request.path, query, body)
        follow_up = getattr(params, operation.follow_up) if operation.follow_up else None
        if follow_up is not None:
            self._guard.require(caller, follow_up, OPERATIONS[follow_up].scope)
        if_stop = _if_stop(request.if_stop)
        call.params = params
        # A thousand long-polls keep their requests, so drop the texts that are converted now.
        request.query, request.body = (), b""
        return Understood(request.id, caller, operation, params, if_stop, request.format)

    async def _params(
        self,
        operation: Operation,
        path: Mapping[str, str],
        query: Mapping[str, str],
        sent: bytes | Mapping[str, Any],
    ) -> Params:
        session = self._registry.sessions.get(path.get("session_id", ""))
        root = UNSET if session is None else session.state.config.project_root

        def read() -> tuple[Mapping[str, Any], Examined[Params]]:
            body = parse_json(sent) if isinstance(sent, bytes) else sent
            return body, examine(operation.params, path, query, body, root)

        if len(sent) <= _READ_AT_ONCE_BYTES:
            body, examined = read()
        else:
            # One body at a time: several threads would compete with the event loop for the GIL.
            async with self._reading:
                body, examined = await asyncio.to_thread(read)
        if examined.params is not None:
            return examined.params
        if session is None and "session_id" in path:
            # An unknown session is refused before wrong fields.
            self._registry.get(path["session_id"])
        is_whole = len(examined.fields) < MOST_PROBLEMS
        if operation.on_refusal is not None and session is not None and is_whole:
            await _REFUSAL_CHECKS[operation.on_refusal](session, body, examined.fields)
        raise examined.refusal(by_query=not operation.takes_body)


def _single_values(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in pairs:
        if name in found:
            raise RelayError(
                Code.INVALID_PARAMETER,
                f"The parameter {name[:100]} is given twice",
                "Give it once.",
                errors=[Problem(name[:100], "given twice", value)],
            )
        found[name] = value
    return found


def _if_stop(given: str | int | None) -> int | None:
    if given is None or isinstance(given, int):
        return given
    if given.isascii() and given.isdigit() and len(given) <= _LONGEST_NUMBER_DIGITS:
        return int(given)
    raise RelayError(
        Code.INVALID_PARAMETER,
        f"The header If-Stop is not a number: {given[:100]!r}",
        "Send the stop_id of the stop that you have seen, as If-Stop: 7.",
        errors=[Problem("If-Stop", "must be a number", given[:100])],
    )
