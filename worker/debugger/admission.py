"""Decides which connections to the listener for debug servers are admitted: by uid, then by token.

The token is the first thing that a program sends. Nothing else is read before the token is right:
no message of a stranger is decoded, kept or believed. Connections that have not sent it yet are
bounded in number for each uid, in bytes by the token's length, and in time.

The kernel gives the peer's uid first, because with the token alone every local user could occupy
places here. Our own user and root may always send a token. Any other uid may if a process of the
program runs as it at that moment: the program may have changed its uid, or may be another user's
that we attach to. The uid only keeps strangers away; the token proves that it is the right process
of that user. Where the kernel reports no uids, as in some sandboxes, the token alone decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import os
import secrets
import socket
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from debug_relay.protocol.system.peers import kernel_reports, peer_uid

log = logging.getLogger("debug_relay.worker")

# A child process waits this long for us, and we for its token and for each answer of its
# authorization: on a busy machine both are slow.
CHILD_WAITS_SECONDS: Final = 15.0
# Connections of one user that wait to be admitted. The children of a pool come all at once, but
# each sends the token as soon as it has connected.
MOST_WAITING: Final = 64
_LOOK_SECONDS: Final = 0.05  # The pause between two looks at whether a token has arrived.
_MOST_LOGGED: Final = 100  # Users whose refused connections are logged.


class Admission:
    def __init__(self, uids_of_program: Callable[[], Iterable[int]]) -> None:
        """`uids_of_program` gives the uids of the program's processes now."""
        self._uids_of_program = uids_of_program
        self.token = secrets.token_hex(32)
        self._uids: frozenset[int] = frozenset()
        self._look: asyncio.Task[None] | None = None
        # The tasks of connections without a token yet, by uid, oldest first. All uids that no
        # process of the program runs as share one list.
        self._waiting: dict[int | None, list[asyncio.Task[None]]] = {}
        self._told: set[int | None] = set()
        self._refused = 0

    def begin(self) -> None:
        self._uids = self._awaited()

    def close(self) -> None:
        if self._look is not None:
            self._look.cancel()
        if self._refused > 1:
            log.warning("adapter.refused_in_all", extra={"fields": {"count": self._refused}})
        self._refused = 0

    async def admits(self, peer: socket.socket) -> bool:
        """Whether the peer has sent the token. No more than the token's 64 bytes are read."""
        uid = peer_uid(peer)
        if uid is None:
            if kernel_reports(peer):
                return self._refuse(uid, "no process holds the other end")
            uid = os.geteuid()  # the token alone decides
        try:
            async with asyncio.timeout(CHILD_WAITS_SECONDS):
                with self._place(uid):
                    if not await self._is_awaited(uid):
                        return self._refuse(uid, "the program does not run as this user")
                    if not hmac.compare_digest(await self._first_bytes(peer), self.token.encode()):
                        return self._refuse(uid, "it does not know the token")
        except (TimeoutError, OSError) as error:
            return self._refuse(uid, str(error) or f"no token within {CHILD_WAITS_SECONDS:g} s")
        return True

    def _refuse(self, uid: int | None, reason: str) -> bool:
        """Log the refusal once for each uid; otherwise a refused user could fill the log."""
        self._refused += 1
        if uid not in self._told and len(self._told) < _MOST_LOGGED:
            self._told.add(uid)
            log.warning("adapter.refused", extra={"fields": {"uid": uid, "reason": reason}})
        return False

    @contextlib.contextmanager
    def _place(self, uid: int) -> Iterator[None]:
        """Hold a place. If none is free, the connection that has waited longest loses its place:
        a program sends its token at once, so the oldest one is not our program.
        """
        task = asyncio.current_task()
        assert task is not None
        row = self._waiting.setdefault(uid if uid in self._uids else None, [])
        if len(row) >= MOST_WAITING:
            row.pop(0).cancel()
            self._refuse(uid, f"{MOST_WAITING} others of it wait already")
        row.append(task)
        try:
            yield
        finally:
            with contextlib.suppress(ValueError):  # another connection took this place
                row.remove(task)

    async def _first_bytes(self, peer: socket.socket) -> bytes:
        """Read as many bytes as the token has; fewer if the peer sends no more."""
        loop, said = asyncio.get_running_loop(), b""
        while missing := len(self.token) - len(said):
            piece = await loop.sock_recv(peer, missing)
            if not piece:
                break
            said += piece
        return said

    # -- uids

    async def _is_awaited(self, uid: int) -> bool:
        """Whether a process of the program runs as this uid.

        Connections that arrive within a moment share one look at the processes, which takes time.
        """
        if uid not in self._uids:
            if self._look is None or self._look.done():
                self._look = asyncio.create_task(self._look_soon(), name="uids of the program")
            await asyncio.shield(self._look)
        return uid in self._uids

    async def _look_soon(self) -> None:
        await asyncio.sleep(_LOOK_SECONDS)
        self._uids = self._awaited()

    def _awaited(self) -> frozenset[int]:
        return frozenset((os.geteuid(), 0, *self._uids_of_program()))
