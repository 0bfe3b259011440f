"""The connection to a session's worker: opened again if it is lost, and watched.

A worker that is stopped looks alive in every other way, so it must answer heartbeats.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from debug_relay.protocol.errors import RelayError
from debug_relay.protocol.wire.frames import NewsHead
from debug_relay.supervisor.log import Log
from debug_relay.supervisor.sessions.worker_link import Link, LinkLost, unanswered
from debug_relay.supervisor.workers.child_process import Child

_log: Final = Log(__name__)
HEARTBEAT_SECONDS: Final = 2.0  # The longest pause between two looks at a worker.
# A worker answers a heartbeat within this time, or the heartbeat counts as missed.
_SILENT_SECONDS: Final = 5.0
_SILENT_BEATS: Final = 3  # Missed heartbeats in a row after which all waiting requests fail.
# A request waits this long for a worker that is known not to answer.
KNOWN_SILENT_SECONDS: Final = 2.0


class WorkerConnection:
    def __init__(
        self,
        session_id: str,
        socket: Path,
        on_news: Callable[[NewsHead], None],
        on_end: Callable[[int | None], None],
    ) -> None:
        """`on_end` gets the exit status of a worker that has ended, if it is known."""
        self._session_id = session_id
        self._socket = socket
        self._on_news = on_news
        self._on_end = on_end
        self.child: Child | None = None
        self.link: Link | None = None
        self.unresponsive = False
        self._watching: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()

    async def connect(self, child: Child, timeout: float) -> None:
        """Connects to the worker and learns its state; raises OSError, LinkLost or TimeoutError.

        From now on the worker is watched, also if it could not be reached: it may be stopped.
        """
        self.child = child
        self._watching = asyncio.create_task(self._watch(child), name=f"watch {self._session_id}")
        await self._open(child, timeout)

    async def _open(self, child: Child, timeout: float) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout), self._opening:
            if self.link is not None and not self.link.lost:
                return  # both the heartbeat and a request may have found no link
            _, link = await loop.create_unix_connection(
                lambda: Link(self._on_news, self.note_end, child.pid),
                str(self._socket),
            )
            try:
                hello = await link.hello
                if hello.session_id != self._session_id:
                    raise LinkLost(f"the worker has the session {hello.session_id}")
                self.link = link
                await link.ping(timeout)
            except BaseException:
                link.close()
                raise

    async def _watch(self, child: Child) -> None:
        """Sends heartbeats, because a worker that is stopped looks alive in every other way."""
        heard, beats = time.monotonic(), 0
        while not await child.wait(HEARTBEAT_SECONDS):
            try:
                if self.link is None or self.link.lost:
                    await self._open(child, _SILENT_SECONDS)
                else:
                    await self.link.ping(_SILENT_SECONDS)
                self._set_unresponsive(False)
                heard, beats = time.monotonic(), 0
            except (RelayError, TimeoutError):
                self._set_unresponsive(True)
                beats += 1
                if self.link is not None:
                    silent = time.monotonic() - heard
                    self.link.fail_silent(silent, all=beats >= _SILENT_BEATS)
            except (LinkLost, OSError):
                continue  # the worker may be ending; its pidfd shows it
        self.lost()

    def _set_unresponsive(self, unresponsive: bool) -> None:
        if self.unresponsive != unresponsive:
            self.unresponsive = unresponsive
            _log.warning(
                "worker.responsive", session_id=self._session_id, responsive=not unresponsive
            )

    def note_end(self) -> None:
        """Notices a worker that has ended, before the next heartbeat would."""
        if self.child is not None and self.child.ended:
            self.lost()

    def lost(self) -> None:
        """The worker has ended."""
        if self.child is None:
            return
        exit_status = self.child.exit_status
        self.child.close()
        self.child = None
        self.unresponsive = False  # it has ended, so it is not silent
        if self.link is not None:
            self.link.close()
        self._on_end(exit_status)

    async def reached(self, child: Child, operation: str) -> Link:
        """The link; it is opened again if it was lost and the worker lives."""
        if self.link is None or self.link.lost:
            try:
                await self._open(child, KNOWN_SILENT_SECONDS)
            except TimeoutError:
                raise unanswered(operation, KNOWN_SILENT_SECONDS) from None
        assert self.link is not None
        return self.link

    async def close(self) -> None:
        """Closes the link and stops watching; the worker continues."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if self.link is not None:
            self.link.close()
        if self.child is not None:
            self.child.close()
