"""Sends replies as finished bytes, and waits until the client has taken them.

This module knows how HTTP/1.1 frames a body, not what a reply is about.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, cast

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter

from debug_relay.protocol.errors import RelayError
from debug_relay.protocol.wire.envelope import error_body, failure

if TYPE_CHECKING:  # connection.py imports this module
    from debug_relay.supervisor.http.connection import Connection

JSON_TYPE: Final = "application/json; charset=utf-8"
_ONE_WRITE_BYTES: Final = 64 * 1024  # One write of a reply to its connection.
_REASONS: Final = {status.value: status.phrase for status in HTTPStatus}


class Reply(web.StreamResponse):
    """A reply of finished bytes; a short body is written together with the head."""

    def __init__(
        self,
        body: bytes,
        *,
        request_id: str,
        status: int = 200,
        content_type: str = JSON_TYPE,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status=status)
        self._finished = body
        self._fields = {
            "Content-Type": content_type,
            "X-Request-ID": request_id,
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            **(headers or {}),
        }

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        if self._eof_sent:
            return None
        transport = request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has left")
        if self._keep_alive is None:
            self._keep_alive = request.keep_alive
        head = self._head(request)
        body = b"" if request.method == "HEAD" else self._finished
        self._eof_sent = True
        request.writer.output_size += len(head) + len(body)
        transport.write(head + body[:_ONE_WRITE_BYTES])
        for at in range(_ONE_WRITE_BYTES, len(body), _ONE_WRITE_BYTES):
            await _taken(request, transport)
            transport.write(body[at : at + _ONE_WRITE_BYTES])
        if transport.get_write_buffer_size():
            await _taken(request, transport)
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Does nothing: `prepare` has written everything."""

    def _head(self, request: web.BaseRequest) -> bytes:
        lines = [f"HTTP/1.1 {self.status} {_REASONS.get(self.status, '')}"]
        for name, value in self._fields.items():
            if "\r" in value or "\n" in value or "\0" in value:
                raise ValueError(f"the header {name} contains a line break")
            lines.append(f"{name}: {value}")
        lines.append(f"Content-Length: {len(self._finished)}")
        if not self._keep_alive:
            lines.append("Connection: close")
        elif request.version < HttpVersion11:
            lines.append("Connection: keep-alive")
        lines.append("\r\n")
        return "\r\n".join(lines).encode("utf-8", "surrogateescape")


async def _taken(request: web.BaseRequest, transport: asyncio.Transport) -> None:
    """Waits until the client has read, within a bound: it must not hold our memory for ever."""
    try:
        async with asyncio.timeout(cast("Connection", request.protocol).deadlines.send):
            await request.writer.drain()
    except TimeoutError:
        transport.abort()
        raise ConnectionResetError("the client does not read its reply") from None
    if transport.is_closing():
        raise ConnectionResetError("the client has left")


def error_reply(
    error: RelayError, request_id: str, headers: Mapping[str, str] | None = None
) -> Reply:
    body = failure(error_body(error), request_id)
    return Reply(body, request_id=request_id, status=error.status, headers=headers)


def unasked(error: RelayError) -> bytes:
    """The bytes of a reply for a connection on which no request could be read."""
    request_id = new_id()
    body = failure(error_body(error), request_id)
    head = (
        f"HTTP/1.1 {error.status} {_REASONS[error.status]}\r\nContent-Type: {JSON_TYPE}\r\n"
        f"X-Request-ID: {request_id}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def new_id() -> str:
    return str(uuid.uuid4())
