"""From an HTTP request to an operation and back: routing, parameters, envelope, errors.

The one place that catches `RelayError`. It knows the operations table and the guard, and asks
`handlers` for what is answered here and the session's worker for the rest.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
from aiohttp import web

from debug_relay.protocol import envelope, validate
from debug_relay.protocol.envelope import encode_json, error_body
from debug_relay.protocol.errors import ERRORS, Code, RelayError
from debug_relay.protocol.fields import Params
from debug_relay.protocol.frames import Caller, RequestHead
from debug_relay.protocol.operations import Operation
from debug_relay.protocol.program import Attach
from debug_relay.protocol.refusals import deleted_meanwhile, wrong_state
from debug_relay.protocol.state import State
from debug_relay.supervisor.body import read_body
from debug_relay.supervisor.connection import is_over_unix, request_uid
from debug_relay.supervisor.guard import Guard
from debug_relay.supervisor.handlers import Answer, Document, Handlers
from debug_relay.supervisor.idempotency import Finished, Kept
from debug_relay.supervisor.log import Log
from debug_relay.supervisor.registry import Registry
from debug_relay.supervisor.reply import Reply
from debug_relay.supervisor.router import BROKEN_ESCAPE, Router

_log: Final = Log(__name__)
_MARGIN: Final = 2.0  # the worker keeps its deadline; this much later it is held for dead
_RETRY_AFTER: Final = "1"
_RESERVED: Final = ("pretty", "format")
_LONGEST_ID: Final = 200


class Request(msgspec.Struct):
    """One request, as far as it has been understood."""

    id: str
    caller: Caller
    operation: Operation
    params: Params
    if_stop: int | None


class Front:
    def __init__(
        self, guard: Guard, router: Router, registry: Registry, handlers: Handlers, log_file: str
    ) -> None:
        self._guard = guard
        self._router = router
        self._registry = registry
        self._handlers = handlers
        self._log_file = log_file
        self._kept = Kept()

    async def __call__(self, http: web.BaseRequest) -> web.StreamResponse:
        request_id = _request_id(http)
        operation: Operation | None = None
        try:
            self._admit(http)
            match = self._router.match(http.method, http.raw_path)
            operation = match.operation
            request = await self._understood(http, request_id, match.operation, match.path_values)
            finished = await self._once(http, request)
        except RelayError as error:
            finished = _refusal(error, request_id)
        except (ConnectionError, TimeoutError):
            raise
        except Exception as error:
            finished = _refusal(self._mistake(operation, request_id, error), request_id)
        return Reply(
            _shown(finished, "pretty" in http.query),
            request_id=request_id,
            status=finished.status,
            content_type=finished.content_type,
            headers=finished.headers,
        )

    async def _once(self, http: web.BaseRequest, request: Request) -> Finished:
        """The answer; for a key that was used before, the one that it had then."""
        key = http.headers.get("Idempotency-Key")
        if not key or Code.IDEMPOTENCY_CONFLICT not in request.operation.errors:
            return await self._answer(request)

        async def make() -> Finished:
            try:
                return await self._answer(request)
            except RelayError as error:
                return _refusal(error, request.id)

        asked = encode_json(request.params)
        return await self._kept.once(request.caller.name, http.path, key, asked, make)

    async def close(self) -> None:
        await self._kept.close()

    def _admit(self, http: web.BaseRequest) -> None:
        headers = http.headers
        self._guard.request(
            headers.getall("Host", []),
            headers.getall("Origin", []),
            headers.get("Sec-Fetch-Site"),
            headers.get("Authorization"),
            over_unix=is_over_unix(http),
        )

    # -- understanding

    async def _understood(
        self,
        http: web.BaseRequest,
        request_id: str,
        operation: Operation,
        path: Mapping[str, str],
    ) -> Request:
        caller = self._guard.caller(request_uid(http), http.headers.get("X-Agent"))
        if operation.scope and operation.scope not in caller.scopes:
            raise RelayError(
                Code.INSUFFICIENT_SCOPE,
                f"{operation.name} needs the scope {operation.scope}",
                f"Use a token with the scope {operation.scope}; this one has "
                f"{', '.join(caller.scopes) or 'none'}.",
                scope=operation.scope,
            )
        body = await self._body(http)
        query = _query(http)
        if not operation.implemented:
            raise RelayError(
                Code.NOT_IMPLEMENTED,
                f"{operation.name} is not there yet in this version",
                operation=operation.name,
            )
        params = validate.convert(operation.params, path, query, body)
        return Request(request_id, caller, operation, params, _if_stop(http))

    async def _body(self, http: web.BaseRequest) -> dict[str, Any]:
        if http.method in ("GET", "HEAD"):
            return {}
        max_bytes = self._registry.settings.server.max_body_bytes
        body = await read_body(http, max_bytes=max_bytes)
        if body and not _is_json(http.headers.get("Content-Type", "")):
            sent = http.headers.get("Content-Type", "none")
            raise RelayError(
                Code.UNSUPPORTED_MEDIA_TYPE,
                f"The body's Content-Type is {sent[:100]}; bodies are JSON",
                "Send the header Content-Type: application/json.",
                content_type=sent[:100],
            )
        return validate.parse_json(body)

    # -- answering

    async def _answer(self, request: Request) -> Finished:
        handler = self._handlers.of(request.operation)
        if handler is None:
            return await self._forward(request)
        answer = await handler(request.params, request.caller)
        if isinstance(answer, Document):
            return Finished(200, answer.body, answer.content_type)
        status = request.operation.status
        if isinstance(answer, Answer):
            status, answer = answer.status, answer.result
        return Finished(status, envelope.success(encode_json(answer), request.id))

    async def _forward(self, request: Request) -> Finished:
        operation, params = request.operation, request.params
        session = self._registry.get(params.session_id)  # type: ignore[attr-defined]
        self._require(session.state.status, operation, session.id)
        deadline = self._deadline(operation, params)
        head = RequestHead(operation.name, request.id, request.caller, deadline, request.if_stop)
        if isinstance(params, Attach):
            self._registry.refuse_second_client(session, params)
        reply, payload = await session.forward(head, encode_json(params), deadline + _MARGIN)
        if session.deleting and operation.drives:
            raise deleted_meanwhile(session.id)
        wrap = envelope.success if reply.ok else envelope.failure
        return Finished(reply.status, wrap(payload, request.id))

    def _require(self, status: State, operation: Operation, session_id: str) -> None:
        """Refused here already by the mirror; the worker checks again."""
        if status is State.FAILED:
            raise self._registry.get(session_id).crashed(operation.name)
        # A pause may be asked for while the mirror still says paused, and so on: only what cannot
        # become right by waiting for a frame is refused here.
        if status not in operation.states:
            raise wrong_state(operation.name, status, operation.states, session_id)

    def _deadline(self, operation: Operation, params: Params) -> float:
        dap = self._registry.settings.dap
        work = dap.launch_timeout if operation.group == "program" else dap.request_timeout
        if operation.name == "evaluate":
            work += getattr(params, "timeout", None) or dap.evaluate_timeout
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
                errors=[{"field": name[:100], "message": "given twice", "value": value[:200]}],
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
            errors=[{"field": "query", "message": problem, "value": ascii(query[:200])}],
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
        return msgspec.json.format(finished.body, indent=2) + b"\n"
    return finished.body


def _refusal(error: RelayError, request_id: str) -> Finished:
    headers: dict[str, str] = {}
    if error.code is Code.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(error.details.get("allow", []))
    if error.code is Code.UNAUTHENTICATED:
        headers["WWW-Authenticate"] = "Bearer"
    if ERRORS[error.code].retry and error.status in (429, 503):
        headers["Retry-After"] = _RETRY_AFTER
    body = envelope.failure(error_body(error), request_id)
    return Finished(error.status, body, headers=headers)
