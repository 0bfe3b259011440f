"""Sends changes to the programs: to each in their order, also while it answers nobody.

A call into C that keeps the interpreter keeps the program from answering. The caller does not wait
for that: the change is on its way, and `late` says which ones a program has not taken yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from msgspec import Struct

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.worker.debugger.connection import LOOK_SECONDS, DebugServer, ServerLost
from debug_relay.worker.debugger.hub import Hub

log = logging.getLogger("debug_relay.worker")

# A program that has not taken a change within this time is late. A child is asked side by side, and
# has `LOOK_SECONDS`.
_TAKEN_SECONDS: Final = 3.0

NO_ANSWER: Final = (
    "the program does not answer now, as in a call into C that keeps the interpreter; it takes "
    "{what} as soon as it answers"
)

Send = Callable[[DebugServer], Awaitable[None]]


class _Late(Struct, frozen=True):
    """A change that a program has not taken yet."""

    server: DebugServer
    ids: frozenset[str]


class ProgramChanges:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._late: dict[asyncio.Task[None], _Late] = {}
        # Called with the ids of a late change when the program has taken it, or has ended.
        self.taken: Callable[[Collection[str]], None] = lambda ids: None

    async def make(
        self, send: Send, ids: Collection[str] = (), *, to: Collection[DebugServer] | None = None
    ) -> None:
        """Send a change, of the breakpoints with these ids, to the programs.

        Returns when each has taken it or is late; raises if one has refused it.
        """
        chosen = self._hub.taking_changes() if to is None else to
        sending = {
            asyncio.create_task(self._send(server, send), name="change"): server
            for server in chosen
        }
        if not sending:
            return
        try:
            await asyncio.gather(*(self._in_time(task, of) for task, of in sending.items()))
        finally:
            # Also if the caller was cancelled: a part of the change may be in the program.
            for task, server in sending.items():
                if not task.done():
                    self._late[task] = _Late(server, frozenset(ids))
                    task.add_done_callback(self._is_taken)
        errors = [(of, task.exception()) for task, of in sending.items() if task.done()]
        for server, error in errors:
            if error is not None and not (server.is_child and server.lost):
                raise error

    async def _in_time(self, task: asyncio.Task[None], server: DebugServer) -> None:
        seconds = LOOK_SECONDS if server.is_child else _TAKEN_SECONDS
        await asyncio.wait({task}, timeout=0 if self.is_late(server) else seconds)

    async def _send(self, server: DebugServer, send: Send) -> None:
        # A lock gives turns in order: an older change never undoes a newer one.
        async with server.changing:
            while True:
                try:
                    return await send(server)
                except RelayError as error:
                    if error.code is not Code.DEBUGPY_TIMEOUT:
                        raise
                # It has the request, but not those that follow it. Sent again as soon as it
                # answers, and not before: nothing piles up in its connection.
                try:
                    await server.post("threads")
                except ServerLost:
                    return

    def _is_taken(self, task: asyncio.Task[None]) -> None:
        late = self._late.pop(task)
        if task.cancelled():
            return
        if (error := task.exception()) and not late.server.lost:
            log.warning("change.failed", extra={"fields": {"error": str(error)[:200]}})
        if late.ids:
            self.taken(late.ids)

    def is_late(self, server: DebugServer) -> bool:
        """Whether this process has not taken all changes: it answers nothing now."""
        return any(late.server is server for late in self._late.values())

    def answering(self, servers: Collection[DebugServer]) -> list[DebugServer]:
        """The servers that are not late."""
        return [server for server in servers if not self.is_late(server)]

    def has_taken(self, id: str) -> bool:
        """Whether the program has taken all changes of this breakpoint. Its children do not count:
        the breakpoint is in force without them.
        """
        return not any(id in late.ids for late in self._late.values() if not late.server.is_child)

    async def close(self) -> None:
        for task in list(self._late):
            task.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)
