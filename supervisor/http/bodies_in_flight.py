"""Bounds the memory of request bodies that are being received or not yet answered.

Each body has a bound of its own, but a thousand connections of one caller would still fill the
memory. Small bodies are not counted, so short calls are never refused because of other callers'
long ones.
"""

from __future__ import annotations

from collections import Counter
from types import TracebackType
from typing import Final

from debug_relay.protocol.errors import Code, RelayError

MOST_BYTES: Final = 96 * 1024 * 1024  # All request bodies that are in memory at one time.
# The request bodies of one user, or of one address elsewhere, that are in memory at one time.
MOST_BYTES_OF_A_SOURCE: Final = 64 * 1024 * 1024
# A body up to this size is always taken: as much waits in a connection's buffers anyway.
SMALL_BYTES: Final = 64 * 1024


class Share:
    """The bytes that one request has taken, until it is answered."""

    def __init__(self, all_of_it: InFlight, source: str) -> None:
        self._all = all_of_it
        self._source = source
        self._bytes = 0

    def grow(self, size: int) -> None:
        """Takes `size` more bytes, announced or received; raises RelayError if there is no room."""
        before, self._bytes = self._bytes, self._bytes + size
        if self._bytes > SMALL_BYTES:
            self._all.add(self._source, self._bytes - (before if before > SMALL_BYTES else 0))

    def __enter__(self) -> Share:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bytes > SMALL_BYTES:
            self._all.remove(self._source, self._bytes)


class InFlight:
    def __init__(self) -> None:
        self._by_source: Counter[str] = Counter()

    def share(self, source: str) -> Share:
        """The share of a request."""
        return Share(self, source)

    def add(self, source: str, size: int) -> None:
        self._by_source[source] += size
        # A single body is accepted, however large the settings allow it to be.
        is_alone = self._by_source.total() == size
        if is_alone:
            return
        for taken, most, whose in (
            (self._by_source[source], MOST_BYTES_OF_A_SOURCE, f" of {source}"),
            (self._by_source.total(), MOST_BYTES, ""),
        ):
            if taken > most:
                raise RelayError(
                    Code.TOO_MUCH_IN_FLIGHT,
                    f"Requests{whose} that are not answered yet have bodies of {taken - size} "
                    f"bytes; with this one it would be more than {most}.",
                    "Send it again when some are answered; up to "
                    f"{SMALL_BYTES} bytes are always taken.",
                    bytes_in_flight=taken - size,
                    max_bytes=most,
                )

    def remove(self, source: str, size: int) -> None:
        self._by_source[source] -= size
        if not self._by_source[source]:
            del self._by_source[source]
