"""The listening TCP and Unix sockets, and the orderly end of all their connections."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from debug_relay.supervisor.access.guard import Guard
from debug_relay.supervisor.access.refusal_log import RefusalLog
from debug_relay.supervisor.http.acceptance import Acceptance, Counts, Limits
from debug_relay.supervisor.http.connection import Acceptor, Deadlines, Handler

_UNWIND_SECONDS: Final = 1.0  # A cancelled handler or a closed connection must be gone by then.


class Listener:
    """Owns the listening sockets and every connection that they have accepted."""

    def __init__(
        self,
        handler: Handler,
        guard: Guard,
        *,
        deadlines: Deadlines | None = None,
        limits: Limits | None = None,
        refused: RefusalLog | None = None,
    ) -> None:
        self._guard = guard
        self._refused = refused or RefusalLog()
        acceptance = Acceptance(guard, limits or Limits(), self._refused)
        self._acceptor = Acceptor(handler, acceptance, deadlines or Deadlines())
        self._servers: list[asyncio.Server] = []
        # Each socket's path with its inode, by which we recognise our own.
        self._paths: list[tuple[Path, int]] = []

    @property
    def counts(self) -> Counts:
        return self._acceptor.counts

    @property
    def open_connections(self) -> int:
        return len(self._acceptor.present)

    async def start_tcp(self, host: str, port: int) -> int:
        """Listens, and passes the port to the guard. With port 0 the kernel chooses it for the
        first address, and the others use the same one.
        """
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_UNWIND_SECONDS * 5):
            rows = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(row[4][0]) for row in rows))
        server = await loop.create_server(
            self._acceptor, addresses if port else addresses[:1], port, start_serving=False
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
            # The mode is set at the bind: afterwards anybody could already have connected.
            mask = os.umask(0o177)
            try:
                sock.bind(os.fspath(path))
            finally:
                os.umask(mask)
            sock.setblocking(False)
            loop = asyncio.get_running_loop()
            server = await loop.create_unix_server(self._acceptor, sock=sock)
        except BaseException:
            sock.close()
            raise
        self._paths.append((path, path.stat().st_ino))
        self._servers.append(server)

    async def stop(self, grace: float) -> None:
        """Accepts no more connections. Idle ones end now, others after their reply or `grace`."""
        self._acceptor.closing = True
        for server in self._servers:
            server.close()
        self._remove_paths()
        for connection in list(self._acceptor.present):
            connection.wind_down()
        await self._end_handlers(grace)
        for connection in list(self._acceptor.present):
            connection.force_close()
        if not await self._all_gone():
            for connection in list(self._acceptor.present):
                if connection.wire is not None:
                    connection.wire.abort()
            await self._all_gone()
        for server in self._servers:
            with suppress(TimeoutError):  # Python 3.12 waits for connections, which are gone by now
                await asyncio.wait_for(server.wait_closed(), _UNWIND_SECONDS)
        self._servers.clear()
        self._refused.close()

    async def _end_handlers(self, grace: float) -> None:
        serving = {c.serving for c in self._acceptor.present if c.serving is not None}
        if not serving:
            return
        _, late = await asyncio.wait(serving, timeout=grace)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=_UNWIND_SECONDS)

    async def _all_gone(self) -> bool:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._acceptor.empty.wait(), _UNWIND_SECONDS)
        return self._acceptor.empty.is_set()

    def _remove_paths(self) -> None:
        for path, inode in self._paths:
            with suppress(FileNotFoundError):
                if path.stat().st_ino == inode:
                    path.unlink()
        self._paths.clear()


def _clear_stale(path: Path) -> None:
    """Removes the socket of a relay that has ended; never one that answers, nor another file."""
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
