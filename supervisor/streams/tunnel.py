"""The WebSocket `…/tunnel`: carries a debugger's bytes to the session's join port and back.

The bytes are those of a binary message, in either direction; an empty one ends its direction, as a
TCP connection that is shut for sending. Each side is read only as fast as the other one takes: the
next bytes of a debugger wait in its socket, those of the worker in the worker's.
"""

from __future__ import annotations

import asyncio
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from aiohttp import WSCloseCode, WSMsgType, web
from msgspec import Struct

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.supervisor.sessions.mirror import Session
from debug_relay.supervisor.streams.websocket import close_socket

PIECE_BYTES: Final = 64 * 1024  # One message to the debugger.
_MESSAGE_BYTES: Final = 1024 * 1024  # One message of the debugger.
_CONNECT_SECONDS: Final = 5.0  # The worker accepts a connection within this time.
_CLOSE_SECONDS: Final = 2.0  # A client's own close frame is waited for.
# A debugger may still send for this long after the worker has sent its last byte.
_LAST_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 1.0  # The pause between two looks at whether the caller may still do this.
# Silence of a client before a ping: proxies close connections that are silent for a minute.
_PING_SECONDS: Final = 25.0
# A client that is read and sends nothing for so long, not even pongs, has gone.
_GONE_SECONDS: Final = 90.0


class _End(Struct, frozen=True):
    code: int
    words: str


_OVER: Final = _End(WSCloseCode.OK, "The debugger's connection has ended")


async def serve_tunnel(
    http: web.BaseRequest, session: Session, admit: Callable[[], object], linger: float
) -> web.StreamResponse:
    """One tunnel until its end. `admit` raises when the caller may no longer have it."""
    reader, writer = await _connected(session)
    try:
        # aiohttp's own heartbeat would take a client for gone whose pong waits behind bytes that
        # the worker has not taken.
        socket = web.WebSocketResponse(
            timeout=_CLOSE_SECONDS, autoping=False, compress=False, max_msg_size=_MESSAGE_BYTES
        )
        await socket.prepare(http)
        end = await _Tunnel(socket, reader, writer, session, admit).run()
        if not socket.closed:
            await close_socket(http, socket, end.code, end.words, linger)
        return socket
    finally:
        writer.transport.abort()


async def _connected(session: Session) -> tuple[StreamReader, StreamWriter]:
    address = session.state.debugger
    if session.child is None or address is None:
        raise RelayError(
            Code.INVALID_SESSION_STATE,
            f"{session.id} is {session.state.status.value} and has no worker, so no debugger can "
            "join it",
            f"{call_of('restart')} runs its program again.",
            current_state=session.state.status.value,
        )
    parts = urlsplit(address.uri)
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            return await asyncio.open_connection(parts.hostname, parts.port, limit=PIECE_BYTES)
    except (OSError, TimeoutError) as error:
        raise RelayError(
            Code.WORKER_UNRESPONSIVE,
            f"The session's worker does not accept a debugger: {error or 'no answer'}",
        ) from None


class _Tunnel:
    def __init__(
        self,
        socket: web.WebSocketResponse,
        reader: StreamReader,
        writer: StreamWriter,
        session: Session,
        admit: Callable[[], object],
    ) -> None:
        self._socket = socket
        self._reader = reader
        self._writer = writer
        self._session = session
        self._admit = admit
        self._closed = asyncio.Event()  # the session's streams end
        self._sending = asyncio.Lock()
        self._heard = self._spoke = time.monotonic()
        self._is_reading = False

    async def run(self) -> _End:
        session = self._session
        session.listeners.add(self._look_at_session)
        session.use.attend()
        up = asyncio.create_task(self._up(), name=f"tunnel to {session.id}")
        down = asyncio.create_task(self._down(), name=f"tunnel from {session.id}")
        watch = asyncio.create_task(self._watch(), name=f"tunnel watch of {session.id}")
        try:
            return await self._until_over(up, down, watch)
        finally:
            for task in (up, down, watch):
                task.cancel()
            await asyncio.gather(up, down, watch, return_exceptions=True)
            session.listeners.discard(self._look_at_session)
            session.use.leave()

    async def _until_over(
        self,
        up: asyncio.Task[_End | None],
        down: asyncio.Task[None],
        watch: asyncio.Task[_End],
    ) -> _End:
        await asyncio.wait((up, down, watch), return_when=asyncio.FIRST_COMPLETED)
        if up.done() and not watch.done() and up.result() is None:
            # The debugger has sent its last byte and may still read.
            await asyncio.wait((down, watch), return_when=asyncio.FIRST_COMPLETED)
        elif down.done() and not watch.done() and not up.done():
            await asyncio.wait(
                (up, watch), timeout=_LAST_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
        if watch.done():
            return watch.result()
        return (up.result() if up.done() else None) or _OVER

    def _look_at_session(self) -> None:
        if self._session.closed:
            self._closed.set()

    # -- the two directions

    async def _up(self) -> _End | None:
        """Carry bytes to the worker. None: the debugger has sent its last one."""
        while True:
            self._is_reading = True
            message = await self._socket.receive()
            self._is_reading = False
            self._heard = time.monotonic()
            if message.type is WSMsgType.BINARY:
                if not message.data:
                    with suppress(OSError):  # the worker has closed its end
                        self._writer.write_eof()
                    return None
                try:
                    self._writer.write(message.data)
                    await self._writer.drain()
                except ConnectionError:
                    return _OVER
            elif message.type is WSMsgType.PING:
                await self._send(self._socket.pong, message.data)
            elif message.type is WSMsgType.TEXT:
                return _End(WSCloseCode.UNSUPPORTED_DATA, "Send bytes, in binary messages")
            elif message.type is not WSMsgType.PONG:
                return _OVER

    async def _down(self) -> None:
        """Carry bytes to the debugger, and tell it of the last one."""
        with suppress(ConnectionError):  # one of the two has left
            while piece := await self._reader.read(PIECE_BYTES):
                await self._send(self._socket.send_bytes, piece)
            await self._send(self._socket.send_bytes, b"")

    async def _send(self, how: Callable[[bytes], object], data: bytes) -> None:
        async with self._sending:
            self._spoke = time.monotonic()
            await how(data)  # type: ignore[misc]

    # -- what ends it from outside

    async def _watch(self) -> _End:
        self._look_at_session()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._closed.wait()
            if self._closed.is_set():
                return self._ended()
            try:
                self._admit()
            except RelayError as error:
                words = f"{error.code.value}: {error.message}"
                return _End(WSCloseCode.POLICY_VIOLATION, words)
            now = time.monotonic()
            if self._sending.locked():
                self._heard = now  # it takes what is sent, slowly: its pongs may wait, too
            if self._is_reading and now - self._heard > _GONE_SECONDS:
                return _End(WSCloseCode.GOING_AWAY, "The client has gone")
            silent = now - max(self._heard, self._spoke) > _PING_SECONDS
            if silent and not self._sending.locked():
                await self._send(self._socket.ping, b"")

    def _ended(self) -> _End:
        if self._session.left_by_relay:
            return _End(WSCloseCode.GOING_AWAY, "The relay stops; connect again")
        return _End(WSCloseCode.OK, f"{self._session.id} is deleted")
