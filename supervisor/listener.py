"""The doors: TCP and Unix listeners, connections with deadlines and bounds, replies as bytes.

A connection is admitted by its uid before a byte of it is read; whatever HTTP does wrong is
answered here, in the envelope. What a request means is the handler's affair.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import stat
import sys
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, cast

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import HttpProcessingError

from debug_relay.protocol.envelope import error_body, failure
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.version import MAX_BODY_BYTES
from debug_relay.supervisor.guard import Guard
from debug_relay.supervisor.log import Log
from debug_relay.supervisor.peer import AnySocket, has_left

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

JSON_TYPE: Final = "application/json; charset=utf-8"
_ONE_WRITE: Final = 64 * 1024
_UNWIND_SECONDS: Final = 1.0  # for a cancelled handler or a closed transport to be gone
_LOGGED_UIDS: Final = 256
_FIRST_LOOK_SECONDS: Final = 0.01
_REASONS: Final = {status.value: status.phrase for status in HTTPStatus}
_log: Final = Log(__name__)


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds."""

    head: float = 10.0  # from the first wait, or the first byte, to the last header
    idle: float = 75.0  # between requests of a connection
    send: float = 30.0  # without a piece of the reply being taken
    linger: float = 2.0  # reading on after a refusal, so that the client gets to see it
    look: float = 0.5  # between looks whether a half-closed client is still there


@dataclass(frozen=True, slots=True)
class Limits:
    connections: int = 2048
    connections_per_uid: int = 1024
    line_bytes: int = 8190
    headers: int = 128


@dataclass(slots=True)
class Counts:
    accepted: int = 0
    refused_peer: int = 0
    refused_limit: int = 0
    malformed: int = 0
    slow_head: int = 0


class Reply(web.StreamResponse):
    """Finished bytes, with their head in one write where they are few."""

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
        transport.write(head + body[:_ONE_WRITE])
        for at in range(_ONE_WRITE, len(body), _ONE_WRITE):
            await _taken(request, transport)
            transport.write(body[at : at + _ONE_WRITE])
        if transport.get_write_buffer_size():
            await _taken(request, transport)
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Everything has been written by `prepare`."""

    def _head(self, request: web.BaseRequest) -> bytes:
        lines = [f"HTTP/1.1 {self.status} {_REASONS.get(self.status, '')}"]
        for name, value in self._fields.items():
            if "\r" in value or "\n" in value or "\0" in value:
                raise ValueError(f"the header {name} holds a line break")
            lines.append(f"{name}: {value}")
        lines.append(f"Content-Length: {len(self._finished)}")
        if not self._keep_alive:
            lines.append("Connection: close")
        elif request.version < HttpVersion11:
            lines.append("Connection: keep-alive")
        lines.append("\r\n")
        return "\r\n".join(lines).encode("utf-8", "surrogateescape")


async def _taken(request: web.BaseRequest, transport: asyncio.Transport) -> None:
    """Backpressure, with a bound: a client that asks and never reads must not hold our memory."""
    try:
        async with asyncio.timeout(_connection(request).deadlines.send):
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


def request_uid(request: web.BaseRequest) -> int:
    """The uid with which the request's connection was admitted."""
    return _connection(request).uid


def is_over_unix(request: web.BaseRequest) -> bool:
    return _connection(request).over_unix


async def read_body(
    request: web.BaseRequest, max_bytes: int = MAX_BODY_BYTES, deadline: float = 30.0
) -> bytes:
    """The whole body, or a RelayError after whose reply the connection is closed."""
    try:
        return await _bounded_body(request, max_bytes, deadline)
    except RelayError:
        # What is still to come of this body must not be taken for the next request.
        _connection(request).last = True
        raise


async def _bounded_body(request: web.BaseRequest, max_bytes: int, deadline: float) -> bytes:
    declared = request.content_length or 0
    if declared > max_bytes:
        raise _too_large(max_bytes, declared)
    _require_plain(request)
    try:
        async with asyncio.timeout(None if request.content.is_eof() else deadline):
            return await _collected(request, max_bytes)
    except TimeoutError:
        raise RelayError(
            Code.REQUEST_TIMEOUT,
            f"The body of {request.method} did not arrive within {deadline:g} seconds.",
            "Send the whole body at once; Content-Length must be its exact length.",
            received_bytes=request.content.total_bytes,
            announced_bytes=request.content_length,
        ) from None
    except (web.RequestPayloadError, HttpProcessingError) as error:
        raise RelayError(
            Code.INVALID_REQUEST,
            "The body is not framed as its headers say.",
            "Send it with Content-Length, or in well-formed chunks.",
            problem=str(error)[:200],
        ) from error


async def _collected(request: web.BaseRequest, max_bytes: int) -> bytes:
    content = request.content
    expects = request.version >= HttpVersion11 and request.headers.get("Expect", "").lower()
    if expects == "100-continue" and not content.is_eof() and request.transport is not None:
        # curl holds back bodies over 1 MB for this line, and waits a whole second for it.
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    pieces, size = [], 0
    while piece := await content.readany():
        size += len(piece)
        if size > max_bytes:
            raise _too_large(max_bytes, None)
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _too_large(max_bytes: int, announced: int | None) -> RelayError:
    size = f"{announced} bytes" if announced else f"more than {max_bytes} bytes"
    return RelayError(
        Code.REQUEST_TOO_LARGE,
        f"The body has {size}; at most {max_bytes} are taken.",
        f"Send at most {max_bytes} bytes, or raise [server] max_body_bytes.",
        max_bytes=max_bytes,
        announced_bytes=announced,
    )


def _require_plain(request: web.BaseRequest) -> None:
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding.lower() != "identity":
        raise RelayError(
            Code.UNSUPPORTED_MEDIA_TYPE,
            f"The body is encoded as {encoding[:100]}; bodies are plain JSON.",
            "Send the body uncompressed, without a Content-Encoding header.",
        )


class _Door(web.Server):
    """What all connections share: who may be there, how many, and how long for what."""

    def __init__(
        self, handler: Handler, guard: Guard, deadlines: Deadlines, limits: Limits
    ) -> None:
        super().__init__(handler, handler_cancellation=True)
        self.guard, self.deadlines, self.limits = guard, deadlines, limits
        self.counts = Counts()
        self.present: set[_Connection] = set()
        self.empty = asyncio.Event()
        self.empty.set()
        self.closing = False
        self._by_uid: Counter[int] = Counter()
        self._logged: set[tuple[int, str]] = set()

    def __call__(self) -> _Connection:
        return _Connection(self, self._loop)

    def admit(self, connection: _Connection, sock: AnySocket) -> bool:
        if self.closing:
            return False
        if len(self.present) >= self.limits.connections:
            self.counts.refused_limit += 1
            return False
        uid, refusal = self.guard.connection(sock)
        if refusal is not None:
            self.counts.refused_peer += 1
            self._log_once(uid, refusal)
            return False
        if self._by_uid[uid] >= self.limits.connections_per_uid:
            self.counts.refused_limit += 1
            self._log_once(uid, f"{self.limits.connections_per_uid} connections are open")
            return False
        self.counts.accepted += 1
        connection.uid = uid
        self._by_uid[uid] += 1
        self.present.add(connection)
        self.empty.clear()
        return True

    def leave(self, connection: _Connection) -> None:
        if connection not in self.present:
            return
        self.present.remove(connection)
        self._by_uid[connection.uid] -= 1
        if not self._by_uid[connection.uid]:
            del self._by_uid[connection.uid]
        if not self.present:
            self.empty.set()

    def _log_once(self, uid: int, reason: str) -> None:
        # Once per uid: whoever is refused could otherwise fill the log.
        if (uid, reason) not in self._logged and len(self._logged) < _LOGGED_UIDS:
            self._logged.add((uid, reason))
            _log.warning("connection.refused", uid=uid, reason=reason)


class _Connection(web.RequestHandler):
    __slots__ = (
        "_deaf",
        "_door",
        "_half_closed",
        "_has_head_bytes",
        "_head_timer",
        "_look_timer",
        "deadlines",
        "last",
        "over_unix",
        "uid",
        "wire",
    )  # fmt: skip

    def __init__(self, door: _Door, loop: asyncio.AbstractEventLoop) -> None:
        limits = door.limits
        super().__init__(
            door,
            loop=loop,
            keepalive_timeout=door.deadlines.idle,
            access_log=None,  # type: ignore[arg-type]  # None is "no access log" there
            logger=logging.getLogger(__name__),
            max_line_size=limits.line_bytes,
            max_field_size=limits.line_bytes,
            max_headers=limits.headers,
            lingering_time=door.deadlines.linger,
            auto_decompress=False,
        )
        self._door = door
        self.deadlines = door.deadlines
        self.uid = -1
        self.over_unix = False
        self.last = False  # close after the reply that is being made
        self.wire: asyncio.Transport | None = None
        self._deaf = False
        self._half_closed = False
        self._has_head_bytes = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._look_timer: asyncio.TimerHandle | None = None

    @property
    def serving(self) -> asyncio.Task[None] | None:
        return self._task_handler

    @property
    def _is_waiting(self) -> bool:
        return self._waiter is not None and not self._waiter.done()

    def wind_down(self) -> None:
        """Ends an idle connection now and a busy one with the reply that is being made."""
        self.last = True
        if self._is_waiting or not self._request_count:
            self.force_close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        wire = cast("asyncio.Transport", transport)
        sock = wire.get_extra_info("socket")
        # Before the transport reads: a stranger's bytes never reach the parser.
        if not self._door.admit(self, sock):
            wire.abort()
            return
        self.wire = wire
        self.over_unix = sock.family == socket.AF_UNIX
        super().connection_made(transport)
        self._start_head_timer()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._door.leave(self)
        self._stop_head_timer()
        if self._look_timer is not None:
            self._look_timer.cancel()
        self.wire = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        super().data_received(data)
        if not self._is_waiting:
            self._stop_head_timer()
        elif data:
            self._has_head_bytes = True
            self._start_head_timer()

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio's meaning: stay open?
        request, wire = self._current_request, self.wire
        is_whole = request is None or request.content.is_eof()
        is_stream = self._upgraded or self._payload_parser is not None
        if wire is None or self._deaf or self._is_waiting or is_stream or not is_whole:
            return False
        if has_left(wire.get_extra_info("socket")):
            return False
        self._half_closed = True
        self._look_later(_FIRST_LOOK_SECONDS)
        return True

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        if not isinstance(resp, web.StreamResponse) or isinstance(resp, web.HTTPException):
            resp = self._in_envelope(request, resp)
        if request.content.exception() is not None:
            # aiohttp would read on, meet the exception again and log it as our mistake.
            request.content.feed_eof()
            self.last = True
        if self.last or (self._half_closed and not self._messages):
            resp.force_close()
        result = await super().finish_response(request, resp, start_time)
        if self._deaf:
            await self._linger()
        if self.last and request.content.is_eof():
            self.close()  # `last` may have come while the reply was on its way
        return result

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The last resort: HTTP that is none, and what the handler let through."""
        exc = exc or sys.exception()
        if request.writer.output_size > 0 or isinstance(exc, ConnectionError):
            raise ConnectionResetError("the reply cannot be completed") from exc
        if isinstance(exc, HttpProcessingError):
            self._door.counts.malformed += 1
            self._deaf = True
            reply = error_reply(self._not_http(message or exc.message), _new_id())
        else:
            reply = error_reply(_mistake(request, exc or RuntimeError(message)), _new_id())
        reply.force_close()
        return reply

    def _in_envelope(self, request: web.BaseRequest, resp: Any) -> web.StreamResponse:
        if isinstance(resp, web.HTTPException) and 400 <= resp.status < 500:
            text = resp.text or resp.reason
            return error_reply(RelayError(Code.INVALID_REQUEST, f"{text[:200]}."), _new_id())
        return error_reply(_mistake(request, TypeError(f"the handler gave {resp!r}")), _new_id())

    def _not_http(self, problem: str) -> RelayError:
        return RelayError(
            Code.INVALID_REQUEST,
            "What arrived is no HTTP/1.1 request within the relay's limits.",
            f"Send plain HTTP, for example: curl -s {self._door.guard.address}/api/v1/health; "
            f"a line may have {self._door.limits.line_bytes} bytes, "
            f"a request {self._door.limits.headers} headers.",
            problem=problem[:200],
        )

    async def _linger(self) -> None:
        """Closing on unread bytes resets the connection and may take our reply with it."""
        if self.wire is not None and self.wire.can_write_eof():
            with suppress(OSError):  # the client was quicker
                self.wire.write_eof()
        await asyncio.sleep(self.deadlines.linger)  # the client's leaving cancels this

    def _start_head_timer(self) -> None:
        if self._head_timer is None:
            self._head_timer = self._loop.call_later(self.deadlines.head, self._head_is_late)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        self._has_head_bytes = False

    def _head_is_late(self) -> None:
        self._head_timer = None
        if not self._is_waiting or self.wire is None:
            return
        self._door.counts.slow_head += 1
        if self._has_head_bytes:
            seconds = self.deadlines.head
            late = RelayError(
                Code.REQUEST_TIMEOUT,
                f"The headers were not complete within {seconds:g} seconds.",
                "Send the request line, the headers and the empty line behind them at once.",
            )
            self.wire.write(_unasked(late))
        self.force_close()

    def _look_later(self, delay: float) -> None:
        delay = min(delay, self.deadlines.look)
        self._look_timer = self._loop.call_later(delay, self._look, delay)

    def _look(self, delay: float) -> None:
        # After the end of its data the kernel tells nothing more of the client until we write.
        if self.wire is None:
            return
        if self._is_waiting:
            self.force_close()
        elif has_left(self.wire.get_extra_info("socket")):
            self.wire.abort()
        else:
            self._look_later(delay * 2)


def _connection(request: web.BaseRequest) -> _Connection:
    return cast("_Connection", request.protocol)


def _new_id() -> str:
    return str(uuid.uuid4())


def _unasked(error: RelayError) -> bytes:
    """A whole reply to a request that never became one."""
    request_id = _new_id()
    body = failure(error_body(error), request_id)
    head = (
        f"HTTP/1.1 {error.status} {_REASONS[error.status]}\r\nContent-Type: {JSON_TYPE}\r\n"
        f"X-Request-ID: {request_id}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def _mistake(request: web.BaseRequest, exc: BaseException) -> RelayError:
    error_id = _new_id()
    _log.exception("request.failed", exc, error_id=error_id, method=request.method)
    return RelayError(
        Code.INTERNAL_ERROR,
        "The relay made a mistake while it answered.",
        f"Report error_id {error_id}; the relay's log has the traceback under it.",
        error_id=error_id,
        exception=type(exc).__name__,
    )


class Listener:
    """Owns the listening sockets and every connection that came through them."""

    def __init__(
        self,
        handler: Handler,
        guard: Guard,
        *,
        deadlines: Deadlines | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._guard = guard
        self._door = _Door(handler, guard, deadlines or Deadlines(), limits or Limits())
        self._servers: list[asyncio.Server] = []
        self._paths: list[tuple[Path, int]] = []  # with the inode, which tells ours from another's

    @property
    def counts(self) -> Counts:
        return self._door.counts

    @property
    def open_connections(self) -> int:
        return len(self._door.present)

    async def start_tcp(self, host: str, port: int) -> int:
        """Listens, and tells the guard which port it is. With port 0 the first address counts."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_UNWIND_SECONDS * 5):
            rows = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(row[4][0]) for row in rows))
        server = await loop.create_server(
            self._door, addresses if port else addresses[:1], port, start_serving=False
        )
        self._servers.append(server)
        bound = int(server.sockets[0].getsockname()[1])
        self._guard.serve_on(bound)
        await server.start_serving()
        return bound

    async def start_unix(self, path: str | Path) -> None:
        path = Path(path)
        _clear_stale(path)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # At the bind, not after it: between the two anybody could connect.
            mask = os.umask(0o177)
            try:
                sock.bind(os.fspath(path))
            finally:
                os.umask(mask)
            sock.setblocking(False)
            loop = asyncio.get_running_loop()
            server = await loop.create_unix_server(self._door, sock=sock)
        except BaseException:
            sock.close()
            raise
        self._paths.append((path, path.stat().st_ino))
        self._servers.append(server)

    async def stop(self, grace: float) -> None:
        """No new connections; idle ones end now, others with their reply, at most `grace` on."""
        self._door.closing = True
        for server in self._servers:
            server.close()
        self._remove_paths()
        for connection in list(self._door.present):
            connection.wind_down()
        await self._end_handlers(grace)
        for connection in list(self._door.present):
            connection.force_close()
        if not await self._all_gone():
            for connection in list(self._door.present):
                if connection.wire is not None:
                    connection.wire.abort()
            await self._all_gone()
        for server in self._servers:
            with suppress(TimeoutError):  # 3.12 waits for connections, which are gone by now
                await asyncio.wait_for(server.wait_closed(), _UNWIND_SECONDS)
        self._servers.clear()

    async def _end_handlers(self, grace: float) -> None:
        serving = {c.serving for c in self._door.present if c.serving is not None}
        if not serving:
            return
        _, late = await asyncio.wait(serving, timeout=grace)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=_UNWIND_SECONDS)

    async def _all_gone(self) -> bool:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._door.empty.wait(), _UNWIND_SECONDS)
        return self._door.empty.is_set()

    def _remove_paths(self) -> None:
        for path, inode in self._paths:
            with suppress(FileNotFoundError):
                if path.stat().st_ino == inode:
                    path.unlink()
        self._paths.clear()


def _clear_stale(path: Path) -> None:
    """Removes the socket of a relay that is gone; one that answers, or a file, stays."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(errno.EEXIST, "there is something other than a socket", str(path))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        refused = probe.connect_ex(os.fspath(path)) == errno.ECONNREFUSED
    if not refused:
        raise OSError(errno.EADDRINUSE, "another relay listens there", str(path))
    path.unlink()
