"""Dispatch: turns a request of any front into a finished answer.

It decides who the caller is, whether the caller may send the request, what it means and who answers
it, and keeps the reply if the request has an Idempotency-Key. Every front builds a `Request` and
gets a `Finished` answer. Nothing here reads a socket, parses a path or knows aiohttp; only some
names of headers are those of HTTP. What differs between operations is in their rows: scope, states,
deadline, preparation. Only this module turns a `RelayError` into an answer.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Struct

from debug_relay.protocol.calls import filled
from debug_relay.protocol.errors import ERRORS, Code, RelayError
from debug_relay.protocol.models.execution import TraceRows
from debug_relay.protocol.models.fields import Params
from debug_relay.protocol.models.sessions import SessionState
from debug_relay.protocol.operations import OPERATIONS, Operation, RefusalCheck
from debug_relay.protocol.refusals import (
    MOST_PROBLEMS,
    Problem,
    not_for_native,
    stop_changed,
    wrong_state,
)
from debug_relay.protocol.rendering import output_withheld, text
from debug_relay.protocol.rendering.results import render_json
from debug_relay.protocol.scopes import READS_OUTPUT, SCOPES
from debug_relay.protocol.state import State
from debug_relay.protocol.trace_pages import turn_to_columns
from debug_relay.protocol.validation.json_body import parse_json
from debug_relay.protocol.validation.params import Examined, examine
from debug_relay.protocol.wire import envelope
from debug_relay.protocol.wire.envelope import encode_json, error_body
from debug_relay.protocol.wire.frames import Caller
from debug_relay.supervisor.access.audit import Audit, AuditedCall, is_audited
from debug_relay.supervisor.access.guard import Guard
from debug_relay.supervisor.access.refusal_log import BEFORE_AUTHENTICATION, RefusalLog
from debug_relay.supervisor.log import Log
from debug_relay.supervisor.operations.breakpoint_batch import verify_sound_entries
from debug_relay.supervisor.operations.handlers import (
    REQUEST_ID,
    Answer,
    Document,
    Handlers,
)
from debug_relay.supervisor.operations.idempotency import Idempotency
from debug_relay.supervisor.operations.idempotency_store import Finished
from debug_relay.supervisor.operations.kept_reply import kept_again
from debug_relay.supervisor.operations.metrics import Metrics
from debug_relay.supervisor.operations.worker_calls import FORMAT, WorkerCalls
from debug_relay.supervisor.sessions import retired_answers
from debug_relay.supervisor.sessions.mirror import Session
from debug_relay.supervisor.sessions.registry import Registry

Format = Literal["json", "text", "markdown"]
Check = Callable[[Session, Mapping[str, Any], list[Problem]], Awaitable[None]]

_log: Final = Log(__name__)
_RETRY_AFTER: Final = "1"
# A longer body is parsed in a thread, because that takes up to a second.
_READ_AT_ONCE_BYTES: Final = 64 * 1024
_LONGEST_NUMBER_DIGITS: Final = 15  # The header If-Stop.
_REFUSAL_CHECKS: Final[Mapping[RefusalCheck, Check]] = {
    "verify-sound-entries": verify_sound_entries
}


class Request(Struct, kw_only=True):
    """A request as a front has read it. Nothing of it is believed yet."""

    id: str
    uid: int  # the caller's, from the kernel
    address: str | None = None  # the caller's, if the kernel names no uid
    operation: Operation | None  # None: there is no such operation, as `misread` says
    path: Mapping[str, str] = {}
    query: Sequence[tuple[str, str]] = ()
    # A function reads the rest of the body; it is called once the caller is known to be allowed to
    # send anything.
    body: bytes | Mapping[str, Any] | Callable[[], Awaitable[bytes]] = b""
    # The part that the front could not read. Only a caller with some right learns of it.
    misread: RelayError | None = None
    agent: str | None = None  # X-Agent
    front: str | None = None  # X-Human-Front
    key: str = ""  # the hash of X-Lease-Key
    authorization: Sequence[str] = ()
    ticket: str | None = None  # a page opens a WebSocket with it
    ticketed: str | None = None  # the hash of the token that the ticket stood for
    if_stop: str | int | None = None
    idempotency_key: str | None = None
    format: Format = "json"
    pretty: bool = False
    asked: tuple[str, str] | None = None  # verb and path in the caller's own words, for the log


class _Call(Struct):
    """One request, with the facts that are known by now."""

    request: Request
    began: float  # monotonic
    caller: Caller | None = None
    params: Params | None = None
    created: str | None = None  # the id of the session that it has created
    not_admitted: bool = False  # by Host, Origin or token: the refusal log counts these
    refused_with: str | None = None  # the code of a refusal of ours

    @property
    def session_id(self) -> str | None:
        return self.created or self.request.path.get("session_id")


class _Understood(Struct):
    """A request whose caller is allowed to make it, and whose parameters are sound."""

    id: str
    caller: Caller
    operation: Operation
    params: Params
    if_stop: int | None
    format: Format
    created: str | None = None


class Opened(Struct, frozen=True):
    """A stream that the caller may have. Its front sends it."""

    operation: Operation
    session: Session | None  # None: the stream belongs to no session
    params: Params
    caller: Caller


class Dispatch:
    def __init__(
        self,
        guard: Guard,
        registry: Registry,
        handlers: Handlers,
        worker_calls: WorkerCalls,
        kept: Idempotency,
        log_file: str,
        audit: Audit,
        refused: RefusalLog,
        metrics: Metrics,
    ) -> None:
        self._guard = guard
        self._registry = registry
        self._handlers = handlers
        self._worker_calls = worker_calls
        self._kept = kept
        self._log_file = log_file
        self._audit = audit
        self._refused = refused
        self._metrics = metrics
        self._reading = asyncio.Lock()

    async def perform(self, request: Request) -> Finished:
        """The answer or refusal. It is cancelled when the caller leaves."""
        call = _Call(request, time.monotonic())
        REQUEST_ID.set(request.id)
        FORMAT.set(request.format)
        try:
            finished = await self._finished(call)
        except asyncio.CancelledError:
            # The caller has left; an operation that `finishes` continues.
            self._note(call, None)
            raise
        # A front writes a short answer in this turn of the event loop. We count and note the call
        # in the next turn: its caller does not wait for that.
        asyncio.get_running_loop().call_soon(self._note, call, finished)
        return _pretty(finished) if request.pretty else finished

    async def open(self, request: Request) -> Opened | Finished:
        """The requested stream, or the refusal."""
        call = _Call(request, time.monotonic())
        session = None
        try:
            if request.ticket is not None:
                ticket = self._guard.tickets.redeem(request.ticket, request.uid)
                request.ticketed, request.key = ticket.token, ticket.key
            understood = await self._understood(call)
            if understood.operation.on_session:
                session = self._registry.get(request.path["session_id"])
                session.require_there()
        except Exception as error:
            finished = self._refusal(call, error)
            self._note(call, finished)
            return finished
        self._note(call, Finished(101, b"", ""))
        return Opened(understood.operation, session, understood.params, understood.caller)

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
        session = self._registry.sessions.get(request.path["session_id"])
        debugger = session.state.debugger if session is not None else None
        return debugger is not None and self._guard.shows(request.authorization, debugger.token)

    def refuse(self, request: Request, error: Exception) -> Finished:
        """The answer to a request that a front refuses."""
        call = _Call(request, time.monotonic())
        finished = self._refusal(call, error)
        self._count_answer(call, finished)
        return finished

    async def close(self) -> None:
        await self._kept.close()

    async def _finished(self, call: _Call) -> Finished:
        try:
            return await self._once(call, await self._understood(call))
        except (ConnectionError, TimeoutError):
            raise
        except Exception as error:
            return self._refusal(call, error)

    def _refusal(self, call: _Call, error: Exception) -> Finished:
        request = call.request
        if not isinstance(error, RelayError):
            error = self._mistake(request.operation, request.id, error)
        else:
            self._count(call, error)
            error = error.for_session(request.path.get("session_id"))
        call.refused_with = error.code.value
        return _refusal(error, request.id, request.format)

    def _count(self, call: _Call, error: RelayError) -> None:
        """Passes refusals of unauthenticated or unauthorised callers to the refusal log."""
        request = call.request
        operation = request.operation
        call.not_admitted = error.code in BEFORE_AUTHENTICATION
        has_audit_line = operation is not None and is_audited(operation)
        lacks_scope = error.code is Code.INSUFFICIENT_SCOPE
        if call.not_admitted or (lacks_scope and not has_audit_line):
            caller = call.caller.name if call.caller is not None else None
            self._refused.request(
                error, request.uid, request.address, caller, request.id, *_asked(request)
            )

    def _note(self, call: _Call, finished: Finished | None) -> None:
        """Counts the request and writes the audit log; `finished` is None if the caller left before
        the answer.
        """
        operation = call.request.operation
        if finished is not None:
            self._count_answer(call, finished)
        if operation is None or not is_audited(operation) or call.not_admitted:
            return
        self._audit.note(
            AuditedCall(
                operation=operation.name,
                request_id=call.request.id,
                uid=call.request.uid,
                address=call.request.address,
                caller=call.caller.name if call.caller is not None else None,
                session_id=call.session_id,
                params=call.params,
                status=finished.status if finished is not None else None,
                code=_code_of(finished) if finished is not None else None,
                seconds=time.monotonic() - call.began,
            )
        )

    def _count_answer(self, call: _Call, finished: Finished) -> None:
        operation, status = call.request.operation, finished.status
        seconds = time.monotonic() - call.began
        code = None
        if status >= HTTPStatus.BAD_REQUEST:
            code = call.refused_with or _code_of(finished) or f"status {status}"
        elif operation is not None and operation.name == "attach":
            self._metrics.count_attach(seconds)
        name = operation.name if operation is not None else "unknown"
        self._metrics.count(name, status, seconds, code)

    def _mistake(
        self, operation: Operation | None, request_id: str, error: Exception
    ) -> RelayError:
        error_id = uuid.uuid4().hex[:12]
        name = operation.name if operation else None
        _log.exception(
            "request.failed", error, error_id=error_id, operation=name, request_id=request_id
        )
        return RelayError(
            Code.INTERNAL_ERROR,
            f"The relay made a mistake: {type(error).__name__}",
            f"Report error_id {error_id} with the traceback in {self._log_file}.",
            error_id=error_id,
            exception=type(error).__name__,
            operation=name,
            log_file=self._log_file,
        )

    # -- understanding

    async def _understood(self, call: _Call) -> _Understood:
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
        return _Understood(request.id, caller, operation, params, if_stop, request.format)

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

    # -- answering

    async def _once(self, call: _Call, understood: _Understood) -> Finished:
        """The answer; for a key that was used before, the answer that it had then."""
        key, operation = call.request.idempotency_key, understood.operation
        try:
            if key and Code.IDEMPOTENCY_CONFLICT in operation.errors:
                return await self._answer_to_key(call.request, key, understood)
            answering = self._answer(understood)
            if operation.finishes:
                return await self._registry.background.carry_out(answering)
            return await answering
        finally:
            call.created = understood.created

    async def _answer_to_key(self, request: Request, key: str, understood: _Understood) -> Finished:
        operation = understood.operation

        async def answer() -> Finished:
            plain = msgspec.structs.replace(understood, format="json")
            try:
                return await self._answer(plain)
            except RelayError as error:
                if error.code is Code.SHUTTING_DOWN:
                    raise  # not kept: the caller may repeat the request at the next relay
                session_id = getattr(understood.params, "session_id", None)
                return _refusal(error.for_session(session_id), understood.id, "json")
            finally:
                understood.created = plain.created

        path = filled(operation.path, dict(request.path))
        body = encode_json(understood.params)
        first = await self._kept.once(understood.caller.name, path, key, body, answer)
        return kept_again(first, understood.id, understood.format, operation.result)

    async def _answer(self, understood: _Understood) -> Finished:
        operation = understood.operation
        handler = self._handlers.of(operation)
        if handler is None:
            return await self._forward(understood)
        answer = await handler(understood.params, understood.caller)
        if isinstance(answer, Document):
            if answer.text is not None and understood.format != "json":
                return Finished(200, answer.text.encode(), text.CONTENT_TYPES[understood.format])
            return Finished(200, answer.body, answer.content_type, answer.headers)
        understood.created = getattr(answer, "session_id", None)
        status = operation.status
        if isinstance(answer, Answer):
            status, answer = answer.status, answer.result
        if READS_OUTPUT not in understood.caller.scopes:
            answer = output_withheld.in_result(answer)
        return _written(understood, status, answer)

    async def _forward(self, understood: _Understood) -> Finished:
        """The worker's answer, as bytes that we do not decode."""
        operation, params, if_stop = understood.operation, understood.params, understood.if_stop
        session = self._registry.get(params.session_id)  # type: ignore[attr-defined]
        session.require_there()
        self._require_state(session.state, operation, if_stop)
        await self._registry.retirement_over(session)
        if session.child is None and session.state.status is State.TERMINATED:
            left = None
            if if_stop is None:  # only a worker can compare it
                left = await asyncio.to_thread(
                    retired_answers.answer, session, operation.name, params
                )
            if left is not None:
                session.touch()
                if understood.format == "json" and getattr(params, "shape", "") == "columns":
                    assert isinstance(left, TraceRows)
                    turn_to_columns(left)
                return _written(understood, operation.status, left)
        reply, payload = await self._worker_calls.forward(
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


def _asked(request: Request) -> tuple[str, str]:
    if request.asked is not None:
        return request.asked
    operation = request.operation
    return (operation.verb, operation.path) if operation is not None else ("", "")


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
        errors=[{"field": "If-Stop", "message": "must be a number", "value": given[:100]}],
    )


def _written(understood: _Understood, status: int, answer: Struct) -> Finished:
    data = encode_json(answer)
    if understood.format == "json":
        return Finished(status, envelope.success(data, understood.id))
    lines = render_json(understood.operation.result, data)
    content_type = text.CONTENT_TYPES[understood.format]
    return Finished(status, text.encode_lines(lines, understood.format), content_type)


def _pretty(finished: Finished) -> Finished:
    if not finished.content_type.startswith("application/json"):
        return finished
    body = msgspec.json.format(finished.body, indent=2).rstrip() + b"\n"
    return msgspec.structs.replace(finished, body=body)


class _ErrorCode(Struct):
    code: str


class _Failure(Struct):
    error: _ErrorCode | None = None


def _code_of(finished: Finished) -> str | None:
    """The error code of a refusal; None if the reply is text."""
    if finished.status < 400 or not finished.content_type.startswith("application/json"):
        return None
    error = msgspec.json.decode(finished.body, type=_Failure).error
    return error.code if error is not None else None


def _refusal(error: RelayError, request_id: str, format: Format) -> Finished:
    headers: dict[str, str] = {}
    if error.code is Code.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(error.details.get("allow", []))
    if error.code is Code.UNAUTHENTICATED:
        headers["WWW-Authenticate"] = "Bearer"
    if ERRORS[error.code].retry and error.status in (429, 503):
        headers["Retry-After"] = _RETRY_AFTER
    if format != "json":
        body = text.encode_lines(text.render_error(error), format)
        return Finished(error.status, body, text.CONTENT_TYPES[format], headers)
    body = envelope.failure(error_body(error), request_id)
    return Finished(error.status, body, headers=headers)
