"""From an HTTP request to an operation and back: routing, parameters, envelope, errors.

The one place that catches `RelayError`. It knows the operations table and the guard, and asks
`handlers` for what is answered here and the session's worker for the rest.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
from aiohttp import web
from msgspec import UNSET

from debug_relay.protocol.errors import ERRORS, Code, RelayError
from debug_relay.protocol.models.fields import Params
from debug_relay.protocol.models.program import Attach
from debug_relay.protocol.models.sessions import CreateSession, SessionState
from debug_relay.protocol.operations import OPERATIONS, Operation
from debug_relay.protocol.refusals import (
    MOST_PROBLEMS,
    Problem,
    refusal_of,
    stop_changed,
    wrong_state,
)
from debug_relay.protocol.rendering import text
from debug_relay.protocol.rendering.results import picture_of
from debug_relay.protocol.scopes import SCOPES
from debug_relay.protocol.secrets import hide_secrets
from debug_relay.protocol.state import State
from debug_relay.protocol.validation import params as validate
from debug_relay.protocol.validation.json_body import parse_json
from debug_relay.protocol.wire import envelope
from debug_relay.protocol.wire.envelope import encode_json, error_body
from debug_relay.protocol.wire.frames import Caller, RequestHead
from debug_relay.supervisor.access.audit import Audit, Deed, is_deed
from debug_relay.supervisor.access.guard import Guard
from debug_relay.supervisor.access.refusal_log import AT_THE_DOOR, Refused
from debug_relay.supervisor.http.bodies_in_flight import InFlight, Share
from debug_relay.supervisor.http.body import read_body
from debug_relay.supervisor.http.connection import is_over_unix, request_uid
from debug_relay.supervisor.http.content_negotiation import Format, wanted
from debug_relay.supervisor.http.reply import Reply
from debug_relay.supervisor.http.router import BROKEN_ESCAPE, Match, Router
from debug_relay.supervisor.log import Log
from debug_relay.supervisor.operations.breakpoint_batch import judge_sound_entries
from debug_relay.supervisor.operations.handlers import REQUEST_ID, Answer, Document, Handlers
from debug_relay.supervisor.operations.idempotency import Kept
from debug_relay.supervisor.operations.idempotency_store import Finished
from debug_relay.supervisor.processes.listing import Processes
from debug_relay.supervisor.sessions import retired_answers as aftermath
from debug_relay.supervisor.sessions.registry import Registry

_log: Final = Log(__name__)
_JSON: Final[Format] = "json"
_MARGIN: Final = 2.0  # the worker keeps its deadline; this much later it is held for dead
_RETRY_AFTER: Final = "1"
_READ_AT_ONCE: Final = 64 * 1024  # a longer body is read by a thread: it takes up to a second
_RESERVED: Final = ("pretty", "format")
_LONGEST_ID: Final = 200
_ABSOLUTE: Final = re.compile(r"https?://([^/?#]*)", re.IGNORECASE)


class Request(msgspec.Struct):
    """One request, as far as it has been understood."""

    id: str
    caller: Caller
    operation: Operation
    params: Params
    if_stop: int | None
    format: Format
    made: str | None = None  # the session that it has made


class _Attempt(msgspec.Struct):
    """One request, from its first byte on: as much as is known of it."""

    id: str
    began: float  # monotonic
    match: Match | None = None
    caller: Caller | None = None
    request: Request | None = None
    counted: bool = False  # among those who were refused at the door


class Front:
    def __init__(
        self,
        guard: Guard,
        router: Router,
        registry: Registry,
        handlers: Handlers,
        processes: Processes,
        kept: Kept,
        log_file: str,
        audit: Audit,
        refused: Refused,
    ) -> None:
        self._guard = guard
        self._router = router
        self._registry = registry
        self._handlers = handlers
        self._processes = processes
        self._log_file = log_file
        self._kept = kept
        self._audit = audit
        self._in_flight = InFlight()
        self._refused = refused
        self._reading = asyncio.Lock()

    async def __call__(self, http: web.BaseRequest) -> web.StreamResponse:
        attempt = _Attempt(_request_id(http), time.monotonic())
        REQUEST_ID.set(attempt.id)
        try:
            finished = await self._finished(http, attempt)
        except asyncio.CancelledError:
            # The client has left; what it asked for goes on.
            self._note(http, attempt, None)
            raise
        self._note(http, attempt, finished)
        return Reply(
            _shown(finished, "pretty" in http.query),
            request_id=attempt.id,
            status=finished.status,
            content_type=finished.content_type,
            headers=finished.headers,
        )

    async def _finished(self, http: web.BaseRequest, attempt: _Attempt) -> Finished:
        request_id, format = attempt.id, _JSON
        try:
            authority, target = _absolute_form(http.raw_path)
            self._admit(http, authority)
            format = wanted(http.raw_path, http.headers.get("Accept"))
            match = attempt.match = self._match(http, target)
            caller = attempt.caller = self._caller(http, match.operation.scope)
            with self._in_flight.share(request_uid(http)) as share:
                request = await self._understood(http, share, request_id, format, match, caller)
                attempt.request = request
                return await self._once(http, request)
        except RelayError as error:
            self._count(http, attempt, error)
            values = attempt.match.path_values if attempt.match is not None else {}
            return _refusal(error.about(values.get("session_id")), request_id, format)
        except (ConnectionError, TimeoutError):
            raise
        except Exception as error:
            operation = attempt.match.operation if attempt.match is not None else None
            return _refusal(self._mistake(operation, request_id, error), request_id, format)

    def _count(self, http: web.BaseRequest, attempt: _Attempt, error: RelayError) -> None:
        """Who was not let in, or may not look, is told of in the logs: once, and how often."""
        attempt.counted = error.code in AT_THE_DOOR
        is_deed_refused = attempt.match is not None and is_deed(attempt.match.operation)
        if attempt.counted or (error.code is Code.INSUFFICIENT_SCOPE and not is_deed_refused):
            caller = attempt.caller.name if attempt.caller is not None else None
            self._refused.request(
                error, request_uid(http), caller, attempt.id, http.method, http.path
            )

    def _note(self, http: web.BaseRequest, attempt: _Attempt, finished: Finished | None) -> None:
        """For the audit log; `finished` is None where nobody waited for the answer."""
        match, request = attempt.match, attempt.request
        if match is None or not is_deed(match.operation) or attempt.counted:
            return
        self._audit.note(
            Deed(
                operation=match.operation.name,
                request_id=attempt.id,
                uid=request_uid(http),
                caller=attempt.caller.name if attempt.caller is not None else None,
                session_id=(request and request.made) or match.path_values.get("session_id"),
                params=request.params if request is not None else None,
                status=finished.status if finished is not None else None,
                code=_code_of(finished) if finished is not None else None,
                seconds=time.monotonic() - attempt.began,
            )
        )

    async def _once(self, http: web.BaseRequest, request: Request) -> Finished:
        """The answer; for a key that was used before, the one that it had then."""
        key = http.headers.get("Idempotency-Key")
        if not key or Code.IDEMPOTENCY_CONFLICT not in request.operation.errors:
            return await self._answer(request)

        async def make() -> Finished:
            plain = msgspec.structs.replace(request, format=_JSON)
            try:
                return await self._answer(plain)
            except RelayError as error:
                if error.code is Code.SHUTTING_DOWN:
                    raise  # not kept: the next relay is asked again under the same key
                return _refusal(error.about(_session_of(request)), request.id, _JSON)
            finally:
                request.made = plain.made

        asked = encode_json(request.params)
        first = await self._kept.once(request.caller.name, http.path, key, asked, make)
        return _again(first, request)

    async def close(self) -> None:
        await self._kept.close()

    def _admit(self, http: web.BaseRequest, authority: str | None) -> None:
        headers = http.headers
        self._guard.request(
            headers.getall("Host", []),
            headers.getall("Origin", []),
            headers.get("Sec-Fetch-Site"),
            over_unix=is_over_unix(http),
            authority=authority,
        )

    def _match(self, http: web.BaseRequest, target: str) -> Match:
        try:
            return self._router.match(http.method, target)
        except RelayError:
            # Whoever may not call is told so, not which paths there are.
            self._caller(http, SCOPES[0])
            raise

    def _caller(self, http: web.BaseRequest, scope: str) -> Caller:
        headers = http.headers
        agent, given = headers.get("X-Agent"), headers.getall("Authorization", [])
        return self._guard.caller(request_uid(http), agent, given, scope)

    # -- understanding

    async def _understood(
        self,
        http: web.BaseRequest,
        share: Share,
        request_id: str,
        format: Format,
        match: Match,
        caller: Caller,
    ) -> Request:
        operation, path = match.operation, match.path_values
        self._guard.require(caller, operation.name, operation.scope)
        body = await self._body(http, share)
        query = _query(http)
        if not operation.implemented:
            raise RelayError(
                Code.NOT_IMPLEMENTED,
                f"{operation.name} is not there yet in this version",
                operation=operation.name,
            )
        params = await self._params(operation, path, query, body)
        if isinstance(params, CreateSession) and params.mode == "attach":
            self._guard.require(caller, "attach", OPERATIONS["attach"].scope)
        return Request(request_id, caller, operation, params, _if_stop(http), format)

    async def _params(
        self,
        operation: Operation,
        path: Mapping[str, str],
        query: Mapping[str, str],
        sent: bytes,
    ) -> Params:
        session = self._registry.sessions.get(path.get("session_id", ""))
        root = UNSET if session is None else session.state.config.project_root

        def read() -> tuple[dict[str, Any], validate.Examined[Params]]:
            body = parse_json(sent)
            return body, validate.examine(operation.params, path, query, body, root)

        if len(sent) <= _READ_AT_ONCE:
            body, examined = read()
        else:
            # One at a time: several would each take their turn of the interpreter before the loop.
            async with self._reading:
                body, examined = await asyncio.to_thread(read)
        if examined.params is not None:
            return examined.params
        if session is None and "session_id" in path:
            self._registry.get(path["session_id"])  # that there is none comes before the details
        is_whole = len(examined.fields) < MOST_PROBLEMS
        if operation.name == "set-breakpoints" and session is not None and is_whole:
            # What is wrong with the entries that are well formed is told in the same answer.
            await judge_sound_entries(session, body, examined.fields)
        raise examined.refusal(by_query=not operation.takes_body)

    async def _body(self, http: web.BaseRequest, share: Share) -> bytes:
        if http.method in ("GET", "HEAD"):
            return b""
        max_bytes = self._registry.settings.server.max_body_bytes
        body = await read_body(http, share, max_bytes=max_bytes)
        if body and not _is_json(http.headers.get("Content-Type", "")):
            sent = http.headers.get("Content-Type", "none")
            raise RelayError(
                Code.UNSUPPORTED_MEDIA_TYPE,
                f"The body's Content-Type is {sent[:100]}; bodies are JSON",
                "Send the header Content-Type: application/json.",
                content_type=sent[:100],
            )
        return body

    # -- answering

    async def _answer(self, request: Request) -> Finished:
        handler = self._handlers.of(request.operation)
        if handler is None:
            return await self._forward(request)
        answer = await handler(request.params, request.caller)
        if isinstance(answer, Document):
            return Finished(200, answer.body, answer.content_type)
        request.made = getattr(answer, "session_id", None)
        status = request.operation.status
        if isinstance(answer, Answer):
            status, answer = answer.status, answer.result
        return _written(request, status, answer)

    async def _forward(self, request: Request) -> Finished:
        operation, params = request.operation, request.params
        session = self._registry.get(params.session_id)  # type: ignore[attr-defined]
        session.require_there()
        self._require(session.state, operation, request.if_stop)
        await self._registry.settled(session)
        if session.child is None and session.state.status is State.TERMINATED:
            left = None
            if request.if_stop is None:  # which a worker compares
                left = await asyncio.to_thread(
                    aftermath.answer, session.folder, operation.name, params
                )
            if left is not None:
                session.touch()
                return _written(request, operation.status, left)
        deadline = self._deadline(operation, params)
        head = RequestHead(
            operation.name,
            request.id,
            request.caller,
            deadline,
            request.if_stop,
            format=request.format,
        )
        if isinstance(params, Attach):
            await self._processes.choose(params, session)
        asked = self._registry.asked(session, head, encode_json(params), deadline + _MARGIN)
        if session.sleeps:
            # It has to wake before anything is begun that would go on without its caller.
            asked = self._registry.undertakings.carry_out(asked)
        reply, payload = await asked
        session.require_there()
        if reply.content_type != "application/json":
            return Finished(reply.status, payload, reply.content_type)
        wrap = envelope.success if reply.ok else envelope.failure
        return Finished(reply.status, wrap(payload, request.id))

    def _require(self, known: SessionState, operation: Operation, if_stop: int | None) -> None:
        """Refused here already by the mirror; the worker checks again."""
        status, session_id = known.status, known.session_id
        if status is State.FAILED:
            raise self._registry.get(session_id).crashed(operation.name)
        if if_stop is not None and status is State.RUNNING and status not in operation.states:
            raise stop_changed(if_stop, status, known.stop_id, None, session_id)
        # A pause may be asked for while the mirror still says paused, and so on: only what cannot
        # become right by waiting for a frame is refused here.
        if status not in operation.states:
            raise wrong_state(operation.name, status, operation.states, session_id, known.program)

    def _deadline(self, operation: Operation, params: Params) -> float:
        dap = self._registry.settings.dap
        work = dap.launch_timeout if operation.group == "program" else dap.request_timeout
        if operation.name == "evaluate":
            work += getattr(params, "timeout", None) or dap.evaluate_timeout
        if operation.name == "trace":
            work += getattr(params, "timeout", 0.0)
        if isinstance(params, Attach):
            work += params.connect_timeout
        return work + float(getattr(params, "wait", 0.0) or 0.0) + 5.0

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


def _written(request: Request, status: int, answer: msgspec.Struct) -> Finished:
    data = encode_json(answer)
    if request.format == "json":
        return Finished(status, envelope.success(data, request.id))
    lines = picture_of(request.operation.result, data)
    return Finished(status, text.written(lines, request.format), text.CONTENT_TYPES[request.format])


def _absolute_form(target: str) -> tuple[str | None, str]:
    """`http://host/path`, as one writes to a proxy: the host in it, and the path."""
    found = _ABSOLUTE.match(target)
    return (found[1], target[found.end() :] or "/") if found else (None, target)


def _request_id(http: web.BaseRequest) -> str:
    given = http.headers.get("X-Request-ID", "")
    if given and len(given) <= _LONGEST_ID and given.isascii() and given.isprintable():
        return given
    return str(uuid.uuid4())


def _query(http: web.BaseRequest) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in _pairs(http.raw_path.partition("?")[2]):
        if name in _RESERVED:
            continue
        if name in found:
            raise RelayError(
                Code.INVALID_PARAMETER,
                f"The parameter {name[:100]} is given twice",
                "Give it once.",
                errors=[Problem(name[:100], "given twice", value)],
            )
        found[name] = value
    return found


def _pairs(query: str) -> list[tuple[str, str]]:
    try:
        if BROKEN_ESCAPE.search(query.encode("utf-8", "surrogateescape")):
            raise ValueError("a % that two hexadecimal digits do not follow")
        return parse_qsl(query, keep_blank_values=True, errors="strict")
    except ValueError as error:
        problem = "is not percent-encoded UTF-8"
        raise RelayError(
            Code.INVALID_PARAMETER,
            f"The query {problem}: {error}",
            "Encode names and values as UTF-8 and then with percent signs; a percent sign is %25.",
            errors=[Problem("query", problem, ascii(hide_secrets(query)[:200]))],
        ) from None


def _if_stop(http: web.BaseRequest) -> int | None:
    given = http.headers.get("If-Stop")
    if given is None:
        return None
    if given.isascii() and given.isdigit() and len(given) < 16:
        return int(given)
    raise RelayError(
        Code.INVALID_PARAMETER,
        f"The header If-Stop is no number: {given[:100]!r}",
        "Send the stop_id of the stop that you have seen, as If-Stop: 7.",
        errors=[{"field": "If-Stop", "message": "must be a number", "value": given[:100]}],
    )


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (
        kind.startswith("application/") and kind.endswith("+json")
    )


def _shown(finished: Finished, pretty: bool) -> bytes:
    if pretty and finished.content_type.startswith("application/json"):
        return msgspec.json.format(finished.body, indent=2).rstrip() + b"\n"
    return finished.body


def _again(first: Finished, request: Request) -> Finished:
    """A reply that was kept, under the id and in the format of the request that has it now."""
    ok, body = envelope.opened(first.body)
    if request.format == "json":
        wrap = envelope.success if ok else envelope.failure
        return msgspec.structs.replace(first, body=wrap(body, request.id))
    lines = picture_of(request.operation.result, body) if ok else text.failure(refusal_of(body))
    return msgspec.structs.replace(
        first,
        body=text.written(lines, request.format),
        content_type=text.CONTENT_TYPES[request.format],
    )


class _ErrorCode(msgspec.Struct):
    code: str


class _Failure(msgspec.Struct):
    error: _ErrorCode | None = None


def _code_of(finished: Finished) -> str | None:
    """Of a refusal, by worker or supervisor; text for people does not name it so."""
    if finished.status < 400 or not finished.content_type.startswith("application/json"):
        return None
    error = msgspec.json.decode(finished.body, type=_Failure).error
    return error.code if error is not None else None


def _session_of(request: Request) -> str | None:
    return getattr(request.params, "session_id", None)


def _refusal(error: RelayError, request_id: str, format: Format) -> Finished:
    headers: dict[str, str] = {}
    if error.code is Code.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(error.details.get("allow", []))
    if error.code is Code.UNAUTHENTICATED:
        headers["WWW-Authenticate"] = "Bearer"
    if ERRORS[error.code].retry and error.status in (429, 503):
        headers["Retry-After"] = _RETRY_AFTER
    if format != "json":
        body = text.written(text.failure(error), format)
        return Finished(error.status, body, text.CONTENT_TYPES[format], headers)
    body = envelope.failure(error_body(error), request_id)
    return Finished(error.status, body, headers=headers)
