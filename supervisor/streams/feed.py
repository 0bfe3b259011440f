"""The feed of a session: wakes its streams when there is more, and keeps the encoded batches.

Streams of one session are mostly at the same cursor, at the end. The first that reads a batch there
encodes it, and the others send the same bytes. A stream that lags behind reads for itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from typing import Final, Literal, Protocol

from msgspec import Struct

from debug_relay.supervisor.sessions.mirror import Session

# A program that prints all the time wakes the streams fifty times a second, not with every line.
_PACE_SECONDS: Final = 0.02
_KEPT: Final = 8  # Encoded batches of a session: one for each filter that is in use.


class Encoded(Struct, frozen=True):
    """A batch in the form in which it is sent."""

    data: bytes
    cursor: str  # after this batch
    messages: int
    dropped: int  # messages lost before the first
    behind: int  # messages that are still to come
    has_more: bool


class Reader(Protocol):
    """A stream, which is woken when its session has written something."""

    def wake(self) -> None: ...

    def read_last(self) -> None:
        """Read what is left; the session's files may be removed afterwards."""


class Followed(Protocol):
    """Something that streams follow until it is closed."""

    @property
    def is_closed(self) -> bool: ...

    def join(self, reader: Reader) -> None: ...

    def leave(self, reader: Reader) -> None: ...

    def end(self) -> tuple[Literal["deleted", "shutdown"], str]: ...


class RelayFeed:
    """The feed of sockets that follow no session: nothing wakes them but the relay's stop."""

    def __init__(self) -> None:
        self.is_closed = False
        self._readers: set[Reader] = set()

    def join(self, reader: Reader) -> None:
        self._readers.add(reader)

    def leave(self, reader: Reader) -> None:
        self._readers.remove(reader)

    def end(self) -> tuple[Literal["deleted", "shutdown"], str]:
        return "shutdown", "The relay stops"

    def close(self) -> None:
        self.is_closed = True
        for reader in self._readers:
            reader.read_last()


class Feed:
    def __init__(self, session: Session) -> None:
        self.session = session
        self._readers: set[Reader] = set()
        self._kept: dict[Hashable, Encoded] = {}
        self._last_wake = 0.0
        self._wake_timer: asyncio.TimerHandle | None = None

    @property
    def is_closed(self) -> bool:
        return self.session.closed

    def end(self) -> tuple[Literal["deleted", "shutdown"], str]:
        """Why the streams end, and the words for it."""
        if self.session.left_by_relay:
            return "shutdown", f"The relay stops; the next one may have {self.session.id} again"
        return "deleted", f"{self.session.id} is deleted"

    @property
    def has_readers(self) -> bool:
        return bool(self._readers)

    def join(self, reader: Reader) -> None:
        if not self._readers:
            self.session.listeners.add(self._heard)
            self.session.use.attend()
        self._readers.add(reader)

    def leave(self, reader: Reader) -> None:
        self._readers.remove(reader)
        if self._readers:
            return
        self.session.listeners.discard(self._heard)
        self._kept.clear()
        if self._wake_timer is not None:
            self._wake_timer.cancel()
            self._wake_timer = None
        self.session.use.leave()

    def encoded(self, key: Hashable, read: Callable[[], Encoded]) -> Encoded:
        """The batch of this key, read and encoded by the first stream that needs it."""
        found = self._kept.get(key)
        if found is None:
            found = read()
            while len(self._kept) >= _KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = found
        return found

    def _heard(self) -> None:
        self._kept.clear()  # there may be more now
        if self.session.closed:
            for reader in self._readers:
                reader.read_last()
        elif self._wake_timer is None:
            loop = asyncio.get_running_loop()
            delay = self._last_wake + _PACE_SECONDS - time.monotonic()
            self._wake_timer = loop.call_later(max(delay, 0), self._wake_all)

    def _wake_all(self) -> None:
        self._wake_timer = None
        self._last_wake = time.monotonic()
        for reader in self._readers:
            reader.wake()
