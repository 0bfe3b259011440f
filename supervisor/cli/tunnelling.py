"""The near end of a session's tunnel: what `debug-relay tunnel` does while it runs.

It carries bytes between a local connection, or stdin and stdout, and the relay's WebSocket. Each
side is read only as fast as the other one takes.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from debug_relay.protocol.system import peers
from debug_relay.supervisor.cli.client import terminal
from debug_relay.supervisor.cli.client.address import Address
from debug_relay.supervisor.cli.exit_codes import FAILED, OK

if TYPE_CHECKING:
    import aiohttp

_PIECE_BYTES: Final = 64 * 1024  # One message to the relay.
_MESSAGE_BYTES: Final = 1024 * 1024  # One message of the relay.
_CONNECT_SECONDS: Final = 30.0  # The relay answers the upgrade within this time.
_CLOSE_SECONDS: Final = 2.0  # The relay's own close frame is waited for.
_MOST_PENDING: Final = 16  # Local connections that wait to be accepted.
_NORMAL_CLOSURE: Final = 1000  # WebSocket's code of an end without a fault.
_NO_SESSION: Final = ("SESSION_NOT_FOUND", "SESSION_EXPIRED")


class _Far(NamedTuple):
    """The relay's end."""

    http: aiohttp.ClientSession
    url: str


async def carry(
    at: Address, headers: dict[str, str], session: str, place: tuple[str, int] | None, anyone: bool
) -> int:
    """Serve `place`, or stdin and stdout if it is None; returns the exit code. `anyone`: other
    users may connect, too.
    """
    import aiohttp

    connector = aiohttp.UnixConnector(at.socket) if at.scheme == "unix" else aiohttp.TCPConnector()
    scheme = "https" if at.scheme == "https" else "http"
    host = f"[{at.host}]" if ":" in at.host else at.host
    where = host if at.scheme == "unix" else f"{host}:{at.port}"
    url = f"{scheme}://{where}{at.path}/sessions/{session}/tunnel"
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
    async with aiohttp.ClientSession(
        connector=connector, headers=headers, timeout=timeout, auto_decompress=False
    ) as http:
        far = _Far(http, url)
        if place is None:
            trouble = await _through_stdio(far)
            return FAILED if trouble else OK
        if await _refused(far):
            return FAILED
        return await _listen(far, place, anyone)


async def _refused(far: _Far) -> str:
    """Why the relay does not give us this session's tunnel. It opens one that carries nothing, so
    that a wrong name, address or token is told at once and not to the first debugger.
    """
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            return await _through(far, _Nobody(), _Nobody())
    except TimeoutError:
        return _complain(f"the session does not answer within {_CONNECT_SECONDS:g} s")


# -- the near end


async def _listen(far: _Far, place: tuple[str, int], anyone: bool) -> int:
    """Serve connections until the session is gone, or this command is interrupted."""
    over = asyncio.Event()
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        try:
            if not anyone and not _is_ours(writer.get_extra_info("socket")):
                writer.transport.abort()
                return
            trouble = await _through(far, reader, writer)
            if trouble.startswith(_NO_SESSION):
                over.set()
        finally:
            serving.discard(task)
            writer.close()

    try:
        server = await asyncio.start_server(
            serve, *place, limit=_PIECE_BYTES, backlog=_MOST_PENDING
        )
    except OSError as error:
        terminal.complain(f"debug-relay tunnel: cannot listen on {place[0]}:{place[1]}: {error}")
        return FAILED
    host, port = server.sockets[0].getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    sys.stdout.write(f"listening on {shown}:{port}\n")
    sys.stdout.flush()
    try:
        await over.wait()
    finally:
        server.close()
        for task in list(serving):
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
    return FAILED


def _is_ours(peer: socket.socket) -> bool:
    """Whether the kernel says that it is our own user or root; where it cannot say, yes."""
    if not peers.available():
        return True
    uid = peers.peer_uid(peer)
    if uid in (os.geteuid(), 0):
        return True
    if uid is not None:
        terminal.complain(f"debug-relay tunnel: refused a connection of uid {uid}")
    return uid is None and not peers.kernel_reports(peer)


async def _through_stdio(far: _Far) -> str:
    standard = (0, 1)
    blocking = [os.get_blocking(fd) for fd in standard]
    for fd in standard:
        os.set_blocking(fd, False)
    try:
        return await _through(far, _Stdin(), _Stdout())
    finally:
        # A terminal is shared with the shell.
        for fd, before in zip(standard, blocking, strict=True):
            os.set_blocking(fd, before)


class _Reader(Protocol):
    async def read(self, most: int, /) -> bytes: ...


class _Writer(Protocol):
    def write(self, data: bytes, /) -> None: ...

    async def drain(self) -> None: ...

    def write_eof(self) -> None: ...


class _Nobody:
    """A debugger that leaves before it has said anything."""

    async def read(self, most: int, /) -> bytes:
        return b""

    def write(self, data: bytes, /) -> None:
        """Nothing is read."""

    async def drain(self) -> None:
        """Nothing waits."""

    def write_eof(self) -> None:
        """Nothing is open."""


class _Stdin:
    """Standard input. asyncio's own pipes take a socket for closed that is input and output at
    once, which is what gdb gives us.
    """

    async def read(self, most: int, /) -> bytes:
        while True:
            try:
                return os.read(0, most)
            except BlockingIOError:
                loop = asyncio.get_running_loop()
                await _ready(0, loop.add_reader, loop.remove_reader)


class _Stdout:
    def __init__(self) -> None:
        self._waiting = b""

    def write(self, data: bytes, /) -> None:
        self._waiting += data

    async def drain(self) -> None:
        """Return when all is written."""
        while self._waiting:
            try:
                self._waiting = self._waiting[os.write(1, self._waiting) :]
            except BlockingIOError:
                loop = asyncio.get_running_loop()
                await _ready(1, loop.add_writer, loop.remove_writer)

    def write_eof(self) -> None:
        if stat.S_ISSOCK(os.fstat(1).st_mode):
            with socket.socket(fileno=os.dup(1)) as peer:
                peer.shutdown(socket.SHUT_WR)
        else:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.close(nowhere)


async def _ready(
    fd: int, watch: Callable[[int, Callable[[], None]], None], forget: Callable[[int], object]
) -> None:
    is_ready = asyncio.Event()
    watch(fd, is_ready.set)
    try:
        await is_ready.wait()
    finally:
        forget(fd)


# -- one connection


async def _through(far: _Far, reader: _Reader, writer: _Writer) -> str:
    """Carry one connection to its end; why it failed, empty if it did not."""
    import aiohttp

    try:
        ws = await far.http.ws_connect(
            far.url,
            max_msg_size=_MESSAGE_BYTES,
            timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_SECONDS),
        )
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        return _complain(f"the relay does not open the tunnel: {error or type(error).__name__}")
    up = asyncio.create_task(_up(ws, reader))
    down = asyncio.create_task(_down(ws, writer))
    try:
        await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
        # A debugger that has sent its last byte may still read, and a relay that takes no more says
        # why.
        is_refused = up.done() and up.exception() is not None
        await asyncio.wait((down,), timeout=_CLOSE_SECONDS if is_refused else None)
        why = down.result() if down.done() else ""
    except ConnectionError:
        why = ""  # the debugger has left
    finally:
        up.cancel()
        down.cancel()
        await asyncio.gather(up, down, return_exceptions=True)
        await ws.close()
    return _complain(why) if why else ""


async def _up(ws: aiohttp.ClientWebSocketResponse, reader: _Reader) -> None:
    while piece := await reader.read(_PIECE_BYTES):
        await ws.send_bytes(piece)
    await ws.send_bytes(b"")


async def _down(ws: aiohttp.ClientWebSocketResponse, writer: _Writer) -> str:
    import aiohttp

    while True:
        message = await ws.receive()
        if message.type is aiohttp.WSMsgType.BINARY and message.data:
            writer.write(message.data)
            await writer.drain()
        elif message.type is aiohttp.WSMsgType.BINARY:
            with suppress(OSError, NotImplementedError):
                writer.write_eof()
        elif message.type is not aiohttp.WSMsgType.TEXT:
            break
    code = ws.close_code
    if code == _NORMAL_CLOSURE:
        return ""
    return f"{message.extra or 'the connection to the relay broke'} (code {code})"


def _complain(why: str) -> str:
    terminal.complain(f"debug-relay tunnel: {why}")
    return why
