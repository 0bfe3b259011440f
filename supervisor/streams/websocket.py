"""WebSockets: the handshake, one task that writes and one that reads, and how they close.

The upgrade of a refused caller is accepted, and the socket closed with 1008 before any data: a
browser or a library shows the close code and reason, but not the status of a refused upgrade.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Final

import msgspec
from aiohttp import WSCloseCode, WSMsgType, web

from debug_relay.supervisor.access.tickets import TICKET_PREFIX
from debug_relay.supervisor.operations.answers import Finished
from debug_relay.supervisor.streams import forms
from debug_relay.supervisor.streams.commands import Commands
from debug_relay.supervisor.streams.stream import End, Patience, Reason, Stream

_CLOSE_SECONDS: Final = 2.0  # We wait this long for a client's own close frame.
_MESSAGE_BYTES: Final = 256 * 1024  # One command.
_LOG_MESSAGE_BYTES: Final = 1024  # A message to `…/logs`, which takes none; some clients greet.
_MESSAGES_A_SECOND: Final = 100  # Messages of a client that are read.
_BURST: Final = 200  # Messages that are read at once after a silence.
_REASON_BYTES: Final = 123  # A close frame has no room for a longer reason.
_TRY_AGAIN_LATER: Final = WSCloseCode.TRY_AGAIN_LATER
_CODES: Final[dict[Reason, int]] = {
    "deleted": WSCloseCode.OK,
    "shutdown": WSCloseCode.GOING_AWAY,
    "too_slow": _TRY_AGAIN_LATER,
    "refused": WSCloseCode.POLICY_VIOLATION,
}


def is_upgrade(http: web.BaseRequest) -> bool:
    return http.headers.get("Upgrade", "").strip().lower() == "websocket"


async def refuse_socket(
    http: web.BaseRequest, finished: Finished, patience: Patience
) -> web.StreamResponse:
    """Accept the upgrade and close the socket before any data."""
    socket = _socket(http, _LOG_MESSAGE_BYTES)
    await socket.prepare(http)
    is_busy = finished.status in (429, 503)  # too many streams, or the relay stops
    code = _TRY_AGAIN_LATER if is_busy else WSCloseCode.POLICY_VIOLATION
    await close_socket(http, socket, code, _words(finished.body), patience.linger)
    return socket


class _Ear:
    """Knows since when the client owes an answer to a ping. It owes none while we do not read: its
    pong may wait behind commands.
    """

    def __init__(self) -> None:
        self.is_listening = False
        self._pinged: float | None = None

    def listen(self) -> None:
        self.is_listening, self._pinged = True, None

    def pinged(self) -> None:
        if self._pinged is None:
            self._pinged = time.monotonic()

    def silence(self) -> float:
        """Seconds since the first ping that the client has not answered."""
        if self._pinged is None or not self.is_listening:
            return 0.0
        return time.monotonic() - self._pinged


async def serve_socket(
    http: web.BaseRequest,
    stream: Stream,
    session_id: str | None,
    commands: Commands | None,
    patience: Patience,
) -> web.StreamResponse:
    """Serve one socket until its end. Without commands the client only follows."""
    socket = _socket(http, _LOG_MESSAGE_BYTES if commands is None else _MESSAGE_BYTES)
    await socket.prepare(http)
    ear = _Ear()
    writing = asyncio.create_task(
        _write(http, socket, stream, session_id, commands is not None, ear, patience),
        name=f"socket of {session_id or 'the relay'}",
    )
    try:
        await _read(socket, commands, ear)
        if stream.end is not None:  # the writer sends the last message
            await writing
    finally:
        writing.cancel()
        if commands is not None:
            await commands.close()
        with suppress(asyncio.CancelledError, ConnectionError):  # the client may be gone
            await writing
    return socket


def _socket(http: web.BaseRequest, most_bytes: int) -> web.WebSocketResponse:
    # Compression would take a quarter of a megabyte for each socket. aiohttp's own heartbeat would
    # take a slow client for gone, without a last message: the ping waits behind all that it reads.
    return web.WebSocketResponse(
        timeout=_CLOSE_SECONDS,
        autoping=False,
        compress=False,
        max_msg_size=most_bytes,
        protocols=_chosen(http.headers.get("Sec-WebSocket-Protocol", "")),
    )


def _chosen(offered: str) -> list[str]:
    """The subprotocol that the client gets. Without one it would close, and aiohttp would log all
    that were offered, tickets too."""
    names = [name for name in map(str.strip, offered.split(",")) if name]
    return sorted(names, key=lambda name: name.startswith(TICKET_PREFIX))[:1]


async def _write(
    http: web.BaseRequest,
    socket: web.WebSocketResponse,
    stream: Stream,
    session_id: str | None,
    is_debug: bool,
    ear: _Ear,
    patience: Patience,
) -> None:
    """Send everything except pongs and close frames."""

    async def send(data: bytes) -> None:
        if socket.closed or http.transport is None:
            raise ConnectionResetError("the client has left")
        if not data and ear.silence() > patience.gone:
            http.transport.abort()
            raise ConnectionResetError("the client has gone")
        if not data:
            ear.pinged()
        http.transport.write(data or forms.PING)
        await http.writer.drain()

    end = await stream.run(send)
    if http.transport is None:
        return
    last = _last_message(end, session_id, is_debug)
    if last and not socket.closed:
        http.transport.write(last)
    await close_socket(http, socket, _CODES[end.reason], end.message, patience.linger)


def _last_message(end: End, session_id: str | None, is_debug: bool) -> bytes:
    """The last message. A caller that lost its right gets only the close frame."""
    if end.reason == "refused":
        return b""
    return forms.debug_end(session_id, end) if is_debug else forms.log_end(end)


async def _read(socket: web.WebSocketResponse, commands: Commands | None, ear: _Ear) -> None:
    """Read messages of the client, at most `_MESSAGES_A_SECOND`: others wait in its socket."""
    allowed, then = float(_BURST), time.monotonic()
    while True:
        ear.listen()
        message = await socket.receive()
        ear.is_listening = False
        if message.type in (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR):
            return
        now = time.monotonic()
        allowed = min(allowed + (now - then) * _MESSAGES_A_SECOND, _BURST) - 1
        then = now
        if message.type is WSMsgType.PING:
            await socket.pong(message.data)
        elif message.type is WSMsgType.TEXT and commands is not None:
            await commands.take(message.data.encode("utf-8", "surrogatepass"))
        elif message.type is WSMsgType.BINARY and commands is not None:
            await commands.take(message.data)
        if allowed < 0:
            await asyncio.sleep(-allowed / _MESSAGES_A_SECOND)


async def close_socket(
    http: web.BaseRequest,
    socket: web.WebSocketResponse,
    code: int,
    reason: str,
    linger: float,
) -> None:
    """Close the socket. A client that does not read its last message within `linger` seconds is
    disconnected.
    """
    words = reason.encode()[:_REASON_BYTES].decode("utf-8", "ignore").encode()
    try:
        async with asyncio.timeout(linger):
            await socket.close(code=code, message=words)
    except TimeoutError:
        if http.transport is not None:
            http.transport.abort()


class _ErrorPart(msgspec.Struct):
    code: str = ""
    message: str = ""


class _Failure(msgspec.Struct):
    error: _ErrorPart


def _words(body: bytes) -> str:
    """Code and message of a refusal that was made for HTTP."""
    error = msgspec.json.decode(body, type=_Failure).error
    return f"{error.code}: {error.message}"
