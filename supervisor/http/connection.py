"""One client's connection: its deadlines, its end, and the answer to malformed HTTP.

`acceptance.py` decides beforehand whether the connection is accepted. The handler knows what a
request means.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.system.peers import AnySocket, has_disconnected
from debug_relay.supervisor.access.guard import UNKNOWN_UID
from debug_relay.supervisor.http.acceptance import Acceptance, Peer
from debug_relay.supervisor.http.reply import error_reply, new_id, unasked
from debug_relay.supervisor.log import Log

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

# The first look at whether a caller who waits for an answer has hung up.
_FIRST_LOOK_SECONDS: Final = 0.01
_NOBODY: Final = Peer(UNKNOWN_UID, "")  # until the connection is accepted
_log: Final = Log(__name__)


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds."""

    head: float = 10.0  # from the connection or the first byte to the last header
    idle: float = 75.0  # between requests of a connection
    send: float = 30.0  # without a piece of the reply being taken
    linger: float = 2.0  # we read on after a refusal, so that the client receives it
    look: float = 0.5  # between checks whether a half-closed client is still there


class Acceptor(web.Server):
    """Makes a `Connection` for each accepted socket, and knows those that are open."""

    def __init__(self, handler: Handler, acceptance: Acceptance, deadlines: Deadlines) -> None:
        super().__init__(handler, handler_cancellation=True)
        self.acceptance, self.deadlines = acceptance, deadlines
        self.counts = acceptance.counts
        self.present: set[Connection] = set()
        self.empty = asyncio.Event()
        self.empty.set()
        self.closing = False

    def __call__(self) -> Connection:
        return Connection(self, self._loop)

    def admit(self, connection: Connection, sock: AnySocket) -> bool:
        peer = None if self.closing else self.acceptance.accept(sock)
        if peer is None:
            return False
        connection.peer = peer
        self.present.add(connection)
        self.empty.clear()
        return True

    def leave(self, connection: Connection) -> None:
        if connection not in self.present:
            return
        self.present.remove(connection)
        self.acceptance.release(connection.peer)
        if not self.present:
            self.empty.set()


class _Messages(list[Any]):
    """Requests that are read and not served yet, most often none: aiohttp's own empty deque weighs
    760 bytes in each connection.
    """

    __slots__ = ()

    def popleft(self) -> Any:
        return self.pop(0)


class Connection(web.RequestHandler):
    __slots__ = (
        "_acceptor",
        "_deaf",
        "_end_timer",
        "_half_closed",
        "_has_head_bytes",
        "_head_timer",
        "_look_timer",
        "deadlines",
        "last",
        "over_unix",
        "peer",
        "wire",
    )  # fmt: skip

    def __init__(self, acceptor: Acceptor, loop: asyncio.AbstractEventLoop) -> None:
        limits = acceptor.acceptance.limits
        super().__init__(
            acceptor,
            loop=loop,
            keepalive_timeout=acceptor.deadlines.idle,
            access_log=None,  # type: ignore[arg-type]  # None is "no access log" there
            logger=logging.getLogger(__name__),
            max_line_size=limits.line_bytes,
            max_field_size=limits.line_bytes,
            max_headers=limits.headers,
            lingering_time=acceptor.deadlines.linger,
            auto_decompress=False,
        )
        self._messages = _Messages()  # type: ignore[assignment]
        self._acceptor = acceptor
        self.deadlines = acceptor.deadlines
        self.peer = _NOBODY
        self.over_unix = False
        self.last = False  # close after the reply that is being made
        self.wire: asyncio.Transport | None = None
        self._deaf = False
        self._half_closed = False
        self._has_head_bytes = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._look_timer: asyncio.TimerHandle | None = None
        self._end_timer: asyncio.TimerHandle | None = None

    @property
    def serving(self) -> asyncio.Task[None] | None:
        return self._task_handler

    @property
    def _is_waiting(self) -> bool:
        return self._waiter is not None and not self._waiter.done()

    def wind_down(self) -> None:
        """Ends an idle connection now, a busy one after its reply."""
        self.last = True
        if self._is_waiting or not self._request_count:
            self.force_close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        wire = cast("asyncio.Transport", transport)
        sock = wire.get_extra_info("socket")
        # Before the transport reads: a stranger's bytes never reach the parser.
        if not self._acceptor.admit(self, sock):
            wire.abort()
            return
        self.wire = wire
        self.over_unix = sock.family == socket.AF_UNIX
        super().connection_made(transport)
        self._start_head_timer()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._acceptor.leave(self)
        self._stop_head_timer()
        for timer in (self._look_timer, self._end_timer):
            if timer is not None:
                timer.cancel()
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
        if wire is None or self._deaf or self._is_waiting or is_stream:
            return False
        if has_disconnected(wire.get_extra_info("socket")):
            return False
        if not is_whole:
            self._end_body(request)
        self._half_closed = True
        self._look_later(_FIRST_LOOK_SECONDS)
        return True

    def _bound_last_bytes(self, _: asyncio.Task[None]) -> None:
        """Abort the transport in a while: it is closed, but waits for a client that may never read
        the rest.
        """
        if self.wire is not None and self.wire.get_write_buffer_size():
            self._end_timer = self._loop.call_later(self.deadlines.send, self.wire.abort)

    async def _drain_helper(self) -> None:
        """Wait until the client has taken enough; a wait that times out disturbs no other one.

        aiohttp has one future for all of them, and a wait that is cancelled would cancel it: each
        later one would then seem to be cancelled too.
        """
        if self.wire is None or not self._paused:
            await super()._drain_helper()
            return
        if self._drain_waiter is None:
            self._drain_waiter = self._loop.create_future()
        await asyncio.shield(self._drain_waiter)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        if not isinstance(resp, web.StreamResponse) or isinstance(resp, web.HTTPException):
            resp = self._in_envelope(request, resp)
        if request.content.exception() is not None:
            # aiohttp would continue reading, get the exception again and log it as our mistake.
            request.content.feed_eof()
            self.last = True
        if self.last or (self._half_closed and not self._messages):
            resp.force_close()
        result = await super().finish_response(request, resp, start_time)
        if self.wire is not None and self.wire.get_write_buffer_size() and self.serving is not None:
            self.serving.add_done_callback(self._bound_last_bytes)
        if self._deaf:
            await self._linger()
        if self.last and request.content.is_eof():
            self.close()  # `last` may have been set while the reply was being sent
        return result

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answers malformed HTTP, and errors that the handler did not catch."""
        exc = exc or sys.exception()
        if request.writer.output_size > 0 or isinstance(exc, ConnectionError):
            raise ConnectionResetError("the reply cannot be completed") from exc
        if isinstance(exc, HttpProcessingError):
            self._acceptor.counts.malformed += 1
            self._deaf = True
            reply = error_reply(self._not_http(message or exc.message), new_id())
        else:
            reply = error_reply(_mistake(request, exc or RuntimeError(message)), new_id())
        reply.force_close()
        return reply

    def _in_envelope(self, request: web.BaseRequest, resp: Any) -> web.StreamResponse:
        if isinstance(resp, web.HTTPException) and 400 <= resp.status < 500:
            text = resp.text or resp.reason
            return error_reply(RelayError(Code.INVALID_REQUEST, f"{text[:200]}."), new_id())
        return error_reply(_mistake(request, TypeError(f"the handler gave {resp!r}")), new_id())

    def _not_http(self, problem: str) -> RelayError:
        address = self._acceptor.acceptance.guard.address
        limits = self._acceptor.acceptance.limits
        return RelayError(
            Code.INVALID_REQUEST,
            "The data received is not an HTTP/1.1 request within the relay's limits.",
            f"Send plain HTTP, for example: curl -s {address}/api/v1/health; "
            f"a line may have {limits.line_bytes} bytes, a request {limits.headers} headers.",
            problem=problem[:200],
        )

    async def _linger(self) -> None:
        """Reads on for a while: closing with unread bytes would reset the connection, and the reply
        might be lost.
        """
        self._end_writing()
        await asyncio.sleep(self.deadlines.linger)  # cancelled when the client closes

    def _end_writing(self) -> None:
        if self.wire is not None and self.wire.can_write_eof():
            with suppress(OSError):  # the client has closed first
                self.wire.write_eof()

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
        self._acceptor.counts.slow_head += 1
        if not self._has_head_bytes:
            self.force_close()
        else:
            seconds = self.deadlines.head
            late = RelayError(
                Code.REQUEST_TIMEOUT,
                f"The headers were not complete within {seconds:g} seconds.",
                "Send the request line, the headers and the empty line behind them at once.",
            )
            self.wire.write(unasked(late))
            self._end_writing()
            self._deaf = True
            # In aiohttp's own attribute: a lost connection, or `wind_down`, cancels that task.
            self._head_timer = self._loop.call_later(self.deadlines.linger, self.force_close)

    def _end_body(self, request: web.BaseRequest | None) -> None:
        """Makes the body's reader fail, because the rest of the body cannot arrive any more."""
        self.last = True
        if request is not None and request.content.exception() is None:
            request.content.set_exception(
                web.RequestPayloadError("the client ended the body before its announced end")
            )

    def _look_later(self, delay: float) -> None:
        delay = min(delay, self.deadlines.look)
        self._look_timer = self._loop.call_later(delay, self._look, delay)

    def _look(self, delay: float) -> None:
        # After the client has closed its sending half, the kernel reports nothing until we write.
        if self.wire is None:
            return
        request = self._current_request
        if self._is_waiting:
            self.force_close()
        elif request is not None and not request.content.is_eof():
            # The client's end came before the request was handed to us.
            self._end_body(request)
            self._look_later(delay * 2)
        elif has_disconnected(self.wire.get_extra_info("socket")):
            self.wire.abort()
        else:
            self._look_later(delay * 2)


def connection_of(request: web.BaseRequest) -> Connection:
    return cast("Connection", request.protocol)


def request_source(request: web.BaseRequest) -> str:
    """The name under which this request's connection shares bounds."""
    return connection_of(request).peer.source


def request_uid(request: web.BaseRequest) -> int:
    """The uid of the process that has opened the request's connection."""
    return connection_of(request).peer.uid


def remote_address(request: web.BaseRequest) -> str | None:
    """The IP address at the other end, where the kernel names no user."""
    connection = connection_of(request)
    if connection.peer.uid != UNKNOWN_UID or connection.wire is None:
        return None
    peer = connection.wire.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else None


def is_over_unix(request: web.BaseRequest) -> bool:
    return connection_of(request).over_unix


def _mistake(request: web.BaseRequest, exc: BaseException) -> RelayError:
    error_id = new_id()
    _log.exception("request.failed", exc, error_id=error_id, method=request.method)
    return RelayError(
        Code.INTERNAL_ERROR,
        "The relay made a mistake while it answered.",
        f"Report error_id {error_id}; the relay's log has the traceback under it.",
        error_id=error_id,
        exception=type(exc).__name__,
    )
