"""The session's join port: a TCP listener on loopback for IDEs and tunnels.

The kernel says which user is at the other end of each connection; only the worker's own user and
root are served. A stock IDE cannot send a secret, so none is required. The session's token is for
callers from elsewhere, who come by the relay's WebSocket. The worker owns the listener, so it
outlives every supervisor.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable
from typing import Final

from debug_relay.protocol.system.peers import peer_uid

log = logging.getLogger("debug_relay.worker")

# Connections that are served at one time: IDEs, tunnels, and programs that only probe the port.
MOST_CONNECTIONS: Final = 32
# The reader of one connection holds at most twice this many bytes that nobody has taken.
_READER_BYTES: Final = 256 * 1024
# Connections that wait to be accepted.
_MOST_PENDING: Final = 64
_MOST_LOGGED: Final = 100  # Users whose refused connections are logged.

# A client has this long to read what it was sent last, such as the answer to `disconnect`.
_LAST_SECONDS: Final = 2.0

Serve = Callable[[StreamReader, StreamWriter], Awaitable[None]]


class JoinListener:
    """Listens from the worker's start until its end. `serve` of `listen` gets the plain bytes of
    each admitted connection, whatever protocol they are.
    """

    def __init__(self) -> None:
        self.uri = ""  # empty until the worker listens
        self.token = secrets.token_urlsafe(32)
        self.clients: list[str] = []  # the names of those who have joined
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.Task[None], StreamWriter] = {}
        self._told: set[int | None] = set()

    async def listen(self, serve: Serve) -> None:
        async def admit(reader: StreamReader, writer: StreamWriter) -> None:
            refusal = self._refusal(writer)
            if refusal is not None:
                self._refuse(writer, *refusal)
                return
            task = asyncio.current_task()
            assert task is not None
            self._serving[task] = writer
            try:
                await serve(reader, writer)
            except (ConnectionError, asyncio.CancelledError):
                pass  # the client has left, or the worker ends
            except Exception:
                log.exception("join.failed")  # a defect of ours must end this connection alone
            finally:
                await _closed(writer)
                del self._serving[task]

        self._server = await asyncio.start_server(
            admit, "127.0.0.1", 0, limit=_READER_BYTES, backlog=_MOST_PENDING
        )
        port = self._server.sockets[0].getsockname()[1]
        self.uri = f"tcp://127.0.0.1:{port}"

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        self.uri = ""
        serving = list(self._serving)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    def _refusal(self, writer: StreamWriter) -> tuple[int | None, str] | None:
        """Why this connection is not served: the uid at its other end, and the reason."""
        uid = peer_uid(writer.get_extra_info("socket"))
        if uid not in (os.geteuid(), 0):
            reason = "no process holds the other end" if uid is None else "another user"
            return uid, reason
        if len(self._serving) >= MOST_CONNECTIONS:
            return uid, f"{MOST_CONNECTIONS} connections are served already"
        return None

    def _refuse(self, writer: StreamWriter, uid: int | None, reason: str) -> None:
        """Close the connection before a byte is read. It is logged once for each uid; otherwise a
        refused user could fill the log.
        """
        writer.transport.abort()
        if uid not in self._told and len(self._told) < _MOST_LOGGED:
            self._told.add(uid)
            log.warning("join.refused", extra={"fields": {"uid": uid, "reason": reason}})


async def _closed(writer: StreamWriter) -> None:
    """Close the connection, when all is sent or the client has had its time."""
    writer.close()
    try:
        async with asyncio.timeout(_LAST_SECONDS):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        pass  # it has left, or does not read
    finally:
        writer.transport.abort()
