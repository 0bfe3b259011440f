"""The HTTP front: turns HTTP requests into plain requests for `dispatch`, and answers into replies.

It refuses foreign Hosts and Origins, and reads bodies within their bounds. Dispatch decides what a
request means, who may send it, and what the answer is.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Awaitable, Callable
from typing import Final, Protocol
from urllib.parse import parse_qsl

from aiohttp import web

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.refusals import Problem
from debug_relay.protocol.secrets import hide_secrets
from debug_relay.supervisor.access.guard import Guard, lease_key
from debug_relay.supervisor.access.tickets import ticket_in
from debug_relay.supervisor.config.settings import Settings
from debug_relay.supervisor.http.bodies_in_flight import InFlight, Share
from debug_relay.supervisor.http.body import read_body
from debug_relay.supervisor.http.connection import (
    is_over_unix,
    remote_address,
    request_source,
    request_uid,
)
from debug_relay.supervisor.http.content_negotiation import wanted
from debug_relay.supervisor.http.reply import Reply
from debug_relay.supervisor.http.router import BROKEN_ESCAPE, Router
from debug_relay.supervisor.operations.answers import Finished
from debug_relay.supervisor.operations.dispatch import Dispatch
from debug_relay.supervisor.operations.request import Request
from debug_relay.supervisor.page.document import (
    CONTENT_TYPE,
    DOORSTEP,
    DOORSTEP_HEADERS,
    HEADERS,
    PAGE,
    has_doorstep,
    wants_page,
)
from debug_relay.supervisor.streams.service import Streams
from debug_relay.supervisor.streams.websocket import is_upgrade

_RESERVED: Final = ("pretty", "format")
_ID_CHARACTERS: Final = 200  # The header X-Request-Id.
_ABSOLUTE: Final = re.compile(r"https?://([^/?#]*)", re.IGNORECASE)


class ProtocolServer(Protocol):
    """The server of a protocol of its own, such as MCP, within HTTP."""

    async def serve(
        self, http: web.BaseRequest, request: Request, read: Callable[[], Awaitable[bytes]]
    ) -> web.StreamResponse:
        """Sends the answer; raises RelayError if the caller may not have it."""


class Front:
    def __init__(
        self,
        guard: Guard,
        router: Router,
        dispatch: Dispatch,
        streams: Streams,
        mcp: ProtocolServer,
        settings: Callable[[], Settings],
    ) -> None:
        self._guard = guard
        self._router = router
        self._dispatch = dispatch
        self._streams = streams
        self._mcp = mcp
        self._settings = settings
        self._in_flight = InFlight()

    async def __call__(self, http: web.BaseRequest) -> web.StreamResponse:
        request = _request(http)
        answer = self._answering(http, request)
        finished = answer if isinstance(answer, Finished) else await answer
        if not isinstance(finished, Finished):
            return finished
        reply = Reply(
            finished.body,
            request_id=request.id,
            status=finished.status,
            content_type=finished.content_type,
            headers=finished.headers,
        )
        if is_upgrade(http):
            reply.force_close()  # the parser expects no further request of such a client
        return reply

    def _answering(
        self, http: web.BaseRequest, request: Request
    ) -> Finished | Awaitable[Finished | web.StreamResponse]:
        """A refusal or a page at once, or else who answers. Thousands of requests may wait for that
        answer, so this is no coroutine of its own.
        """
        try:
            authority, target = _absolute_form(http.raw_path)
            self._admit(http, authority)
            if wants_page(http.method, target.partition("?")[0], http.headers.get("Accept")):
                return Finished(200, PAGE, CONTENT_TYPE, HEADERS)
            request.format = wanted(http.raw_path, http.headers.get("Accept"))
            self._read(http, target, request)
        except Exception as error:
            refused = self._dispatch.refuse(request, error)
            by_site = isinstance(error, RelayError) and "sec_fetch_site" in error.details
            if by_site and has_doorstep(http.method, http.path, http.headers):
                return Finished(refused.status, DOORSTEP, CONTENT_TYPE, DOORSTEP_HEADERS)
            return refused
        operation = request.operation
        if operation is not None and operation.kind == "mcp":
            return self._serve_mcp(http, request)
        if operation is not None and operation.streams:
            return self._streams.serve(http, request)
        if http.method in ("GET", "HEAD"):
            return self._dispatch.perform(request)
        return self._perform_with_body(http, request)

    async def _perform_with_body(self, http: web.BaseRequest, request: Request) -> Finished:
        with self._in_flight.share(request_source(http)) as share:
            request.body = lambda: self._body(http, share)
            return await self._dispatch.perform(request)

    async def _serve_mcp(
        self, http: web.BaseRequest, request: Request
    ) -> Finished | web.StreamResponse:
        request.format = "json"
        with self._in_flight.share(request_source(http)) as share:
            try:
                return await self._mcp.serve(http, request, lambda: self._body(http, share))
            except RelayError as error:
                return self._dispatch.refuse(request, error)

    def _admit(self, http: web.BaseRequest, authority: str | None) -> None:
        headers = http.headers
        self._guard.check_request(
            headers.getall("Host", []),
            headers.getall("Origin", []),
            headers.get("Sec-Fetch-Site"),
            over_unix=is_over_unix(http),
            authority=authority,
        )

    def _read(self, http: web.BaseRequest, target: str, request: Request) -> None:
        """Reads operation, path values and query. Only callers with a right learn what is wrong
        with them.
        """
        try:
            request.operation, request.path = self._router.match(http.method, target)
            request.query = _query(http)
        except RelayError as error:
            request.misread = error

    async def _body(self, http: web.BaseRequest, share: Share) -> bytes:
        body = await read_body(http, share, max_bytes=self._settings().server.max_body_bytes)
        if body and not _is_json(http.headers.get("Content-Type", "")):
            sent = http.headers.get("Content-Type", "none")
            raise RelayError(
                Code.UNSUPPORTED_MEDIA_TYPE,
                f"The body's Content-Type is {sent[:100]}; bodies are JSON",
                "Send the header Content-Type: application/json.",
                content_type=sent[:100],
            )
        return body


def _request(http: web.BaseRequest) -> Request:
    """The request's plain values; the operation is looked up only after the Host is checked."""
    headers = http.headers
    return Request(
        id=_request_id(http),
        uid=request_uid(http),
        address=remote_address(http),
        operation=None,
        agent=headers.get("X-Agent"),
        front=headers.get("X-Human-Front"),
        key=lease_key(headers.get("X-Lease-Key")),
        authorization=headers.getall("Authorization", ()),
        ticket=ticket_in(headers.get("Sec-WebSocket-Protocol", "")),
        if_stop=headers.get("If-Stop"),
        idempotency_key=headers.get("Idempotency-Key"),
        pretty="?" in http.raw_path and "pretty" in http.query,
        asked=(http.method, http.path),
    )


def _absolute_form(target: str) -> tuple[str | None, str]:
    """The host and the path of `http://host/path`, a target that clients send to proxies."""
    found = _ABSOLUTE.match(target)
    return (found[1], target[found.end() :] or "/") if found else (None, target)


def _request_id(http: web.BaseRequest) -> str:
    given = http.headers.get("X-Request-ID", "")
    if given and len(given) <= _ID_CHARACTERS and given.isascii() and given.isprintable():
        return given
    return str(uuid.uuid4())


def _query(http: web.BaseRequest) -> list[tuple[str, str]]:
    query = http.raw_path.partition("?")[2]
    if not query:
        return []
    try:
        if BROKEN_ESCAPE.search(query.encode("utf-8", "surrogateescape")):
            raise ValueError("a % that two hexadecimal digits do not follow")
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict")
    except ValueError as error:
        problem = "is not percent-encoded UTF-8"
        raise RelayError(
            Code.INVALID_PARAMETER,
            f"The query {problem}: {error}",
            "Encode names and values as UTF-8 and then with percent signs; a percent sign is %25.",
            errors=[Problem("query", problem, ascii(hide_secrets(query)[:200]))],
        ) from None
    return [pair for pair in pairs if pair[0] not in _RESERVED]


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (
        kind.startswith("application/") and kind.endswith("+json")
    )
