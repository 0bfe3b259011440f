"""One stream: its client's place in the session's rings, and the end of the stream.

The ring files are the only queue. A stream has a cursor and reads the next batch when its client
has taken the last one, so a client that reads slowly or not at all costs the session nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Literal

from msgspec import Struct

from debug_relay.protocol.errors import RelayError
from debug_relay.supervisor.streams.feed import Encoded, Followed

Reason = Literal["deleted", "shutdown", "too_slow", "refused"]


_HEARTBEAT_SECONDS: Final = 15.0  # Silence of a stream before a heartbeat.
_SEND_SECONDS: Final = 30.0  # A client has this long to take one batch.
_BEHIND_SECONDS: Final = 30.0  # A client may be too many messages behind for this long.
_MOST_BEHIND: Final = 4096  # Messages by which a client that had caught up may be behind.
_OUTBOX_BYTES: Final = 256 * 1024  # Results not taken by a client before we read no more of it.
_LINGER_SECONDS: Final = 5.0  # A client has this long to take the last message.
# A WebSocket's client that answers no ping for so long has gone. A slow one may have megabytes to
# read before it sees the ping.
_GONE_SECONDS: Final = 90.0


class Patience(Struct, frozen=True):
    """How long a stream waits for its client, in seconds, and how far behind the client may be."""

    heartbeat: float = _HEARTBEAT_SECONDS
    send: float = _SEND_SECONDS
    behind: float = _BEHIND_SECONDS
    most_behind: int = _MOST_BEHIND
    linger: float = _LINGER_SECONDS
    gone: float = _GONE_SECONDS


class End(Struct, frozen=True):
    """Why a stream ends, and what its client needs to resume it."""

    reason: Reason
    message: str
    cursor: str | None
    missed: int = 0  # messages that the client has not seen


class Stream:
    def __init__(
        self,
        feed: Followed,
        cursor: str | None,
        read: Callable[[str | None], Encoded],
        admit: Callable[[], object],
        patience: Patience,
    ) -> None:
        self.cursor = cursor
        self.end: End | None = None
        self._feed = feed
        self._read = read
        self._admit = admit  # raises when the caller may no longer read
        self._patience = patience
        # A list and a future: a deque, and the one inside asyncio.Event, weigh 760 bytes each.
        self._outbox: list[bytes] = []
        self._outbox_bytes = 0  # results that the client has not taken
        self._room: asyncio.Future[None] | None = None
        self._is_over = False
        self._is_awake = False
        self._waiting: asyncio.Future[None] | None = None
        self._last: Encoded | None = None  # read when the session ended
        self._is_live = False  # has reached the end once
        self._behind_since: float | None = None

    def put(self, data: bytes) -> None:
        """Send this after the next batch: events come before the result that they led to."""
        self._outbox.append(data)
        self._outbox_bytes += len(data)
        self.wake()

    async def has_room(self) -> None:
        """Wait until the client has taken its results: one that only sends commands would fill our
        memory. Only the one task that reads commands waits here.
        """
        while self._outbox_bytes > _OUTBOX_BYTES and not self._is_over:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    def _make_room(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def wake(self) -> None:
        self._is_awake = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def read_last(self) -> None:
        if self._last is None:
            self._last = self._read(self.cursor)
        self.wake()

    async def run(self, send: Callable[[bytes], Awaitable[None]]) -> End:
        """Send batches until the stream ends. `send` returns when the client has taken them; an
        empty one is a heartbeat.
        """
        self._feed.join(self)
        try:
            if self._feed.is_closed:
                self.read_last()
            while self.end is None:
                self.end = await self._turn(send)
            return self.end
        finally:
            self._feed.leave(self)
            self._is_over = True
            self._make_room()

    async def _turn(self, send: Callable[[bytes], Awaitable[None]]) -> End | None:
        self._is_awake = False
        try:
            # A token that was revoked is invalid at once, also for a stream that is open.
            self._admit()
        except RelayError as error:
            return End("refused", f"{error.code.value}: {error.message}", self.cursor)
        before, last = self.cursor, self._last
        batch = last if last is not None else self._read(before)
        self.cursor = batch.cursor
        if not await self._sent(send, batch.data):
            return self._too_slow()
        if last is not None:
            return self._ended(batch.behind)
        if batch.has_more and batch.cursor != before:
            await asyncio.sleep(0)
            return self._too_slow() if self._lags(batch.behind) else None
        self._is_live, self._behind_since = True, None
        if not await self._woken() and not await self._sent(send, b"", heartbeat=True):
            return self._too_slow()
        return None

    async def _sent(
        self, send: Callable[[bytes], Awaitable[None]], data: bytes, heartbeat: bool = False
    ) -> bool:
        """Send; returns whether the client has taken the data in time."""
        data = b"".join((data, *self._outbox)) if self._outbox else data
        self._outbox.clear()
        if not data and not heartbeat:
            return True
        try:
            async with asyncio.timeout(self._patience.send):
                await send(data)
        except TimeoutError:
            return False
        self._outbox_bytes = sum(map(len, self._outbox))
        if self._outbox_bytes <= _OUTBOX_BYTES:
            self._make_room()
        return True

    def _lags(self, behind: int) -> bool:
        """Whether a client that was at the end once has been too far behind for too long."""
        if not self._is_live or behind <= self._patience.most_behind:
            self._behind_since = None
            return False
        now = time.monotonic()
        if self._behind_since is None:
            self._behind_since = now
        return now - self._behind_since > self._patience.behind

    async def _woken(self) -> bool:
        """Whether there is something to do before the next heartbeat."""
        if self._is_awake:
            return True
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._patience.heartbeat):
                    await self._waiting
        finally:
            self._waiting = None
        return self._is_awake

    def _too_slow(self) -> End:
        ahead = self._read(self.cursor)
        missed = ahead.dropped + ahead.messages + ahead.behind
        message = f"The client reads too slowly: {missed} messages wait for it"
        return End("too_slow", message, self.cursor, missed)

    def _ended(self, missed: int) -> End:
        reason, message = self._feed.end()
        return End(reason, message, self.cursor, missed)
