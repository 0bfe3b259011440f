"""Reads records from a ring file with `pread` while its writer continues.

It knows the reader's position and what the reader has missed, but not what the records mean.
Neither a fast writer nor a damaged file makes it loop or raise.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from debug_relay.protocol.wire.ring_format import (
    HEADER,
    PAD,
    RECORD,
    Place,
    Record,
    RingCorrupt,
    RingHeader,
    record_facts,
    unpack_header,
    unpack_record,
)

_HEADER_BYTES: Final = 64  # The part of a ring's header that is in use.
_BLOCK_BYTES: Final = 16 * 1024  # One read of a ring's data.
_MOST_ATTEMPTS: Final = 16  # Attempts of one walk after which damage or a faster writer ends it.
_SCAN_RECORDS: Final = 2000  # Records that one walk looks at, wanted or not.
_SCAN_BYTES: Final = 4 << 20  # Data that one walk looks at, wanted or not.


class Walk:
    """One reading of a ring, from a position onwards."""

    def __init__(
        self,
        fd: int | None,
        place: Place,
        wanted: frozenset[int] | None,
        *,
        mark_is_entry: bool = False,
        is_short: bool = True,
    ) -> None:
        self.dropped = 0
        # True if there may be more records, but this walk has reached its bound.
        self.unfinished = False
        self._fd = fd
        self._wanted = wanted
        self._record: Record | None = None
        self._block_start, self._block = 0, b""
        header = read_header(fd)
        self._header = header or RingHeader(RECORD, place.epoch, 0, 0, 0, 0, 0)
        self._records = _SCAN_RECORDS if is_short else sys.maxsize
        # At most one lap, however fast the writer is.
        self._bytes = _SCAN_BYTES if is_short else self._header.capacity
        if header and (place.epoch != header.epoch or place.position > header.head):
            first = header.mark if mark_is_entry else 0
            place = Place(header.epoch, header.tail, first)
        self.place = place

    def find(self, until_gap: bool = False) -> Record | None:
        """The next wanted record, without taking it; unwanted ones before it are skipped. With
        `until_gap` the walk ends before a gap of lost records, so that the next walk reports it.
        """
        while (record := self._peek()) is not None:
            if until_gap and record.first_entry > self.place.entry:
                return None
            if self._wanted is None or record.category in self._wanted:
                return record
            self.take()
        return None

    @property
    def head(self) -> int:
        """The end of the ring when we last read its header."""
        return self._header.head

    def take(self) -> Record:
        """Takes the found record, or the rest of it after `take_part`."""
        record = self._found()
        after = max(self.place.entry, record.first_entry + record.entries)
        self.place = Place(self.place.epoch, record.end, after)
        self._record = None
        return record

    def take_part(self, entries: int, offset: int) -> None:
        """Takes the next `entries` entries of the found record, which end at `offset`."""
        record = self._found()
        entry = max(self.place.entry, record.first_entry) + entries
        self.place = Place(self.place.epoch, record.position, entry, offset)

    def _found(self) -> Record:
        record = self._record
        if record is None:
            raise LookupError("a record is taken before it is found")
        self.dropped += max(0, record.first_entry - self.place.entry)
        return record

    def _peek(self) -> Record | None:
        """The next record; None at the end of the ring or, with `unfinished`, at our bound."""
        if self._record is not None or self.unfinished:
            return self._record
        for _ in range(_MOST_ATTEMPTS):
            if self.place.position < self._header.tail:
                self._go(self._header.tail)
            if self.place.position >= self._header.head:
                return None
            if self._records <= 0 or self._bytes <= 0:
                break
            room = self._header.capacity - self.place.position % self._header.capacity
            try:
                self._record = self._read(room)
            except RingCorrupt:
                self._recover(room)
                continue
            if self._record is not None:
                self._records -= 1
                self._bytes -= len(self._record.payload)
                return self._record
            self._go(self.place.position + room)
        self.unfinished = True
        return None

    def _go(self, position: int) -> None:
        self.place = Place(self.place.epoch, position, self.place.entry)

    def _read(self, room: int) -> Record | None:
        """The record here; None if a pad fills the rest of the data area."""
        if room < RECORD:
            return None
        at = self._load(RECORD, room)
        length, category, _, _ = record_facts(self._block, at)
        if category == PAD and length == room:
            return None
        at = self._load(length, room)
        return unpack_record(self._block[at : at + length], self.place.position)

    def _load(self, length: int, room: int) -> int:
        """The index of the next `length` bytes in the block; reads another block if needed."""
        position = self.place.position
        at = position - self._block_start
        if 0 <= at <= len(self._block) - length:
            return at
        # We do not read beyond the head: those bytes belong to the previous lap.
        size = min(max(length, _BLOCK_BYTES), room, self._header.head - position)
        if self._fd is None or length > size:
            raise RingCorrupt(f"{length} bytes at {position} do not fit")
        block = os.pread(self._fd, size, HEADER + position % self._header.capacity)
        self._refresh()
        # The writer moves the tail before it overwrites anything: if the tail is not beyond our
        # position, the bytes are intact.
        if self._header.tail > position or len(block) < length:
            raise RingCorrupt(f"the record at {position} was overwritten")
        self._block_start, self._block = position, block
        return 0

    def _refresh(self) -> None:
        header = read_header(self._fd)
        if header is None:
            raise RingCorrupt("the header is gone")
        self._header = header

    def _recover(self, room: int) -> None:
        """Continues at the tail if the writer has overtaken us; else behind the damaged record, or
        at the ring's end if the record's length is bad.
        """
        header = read_header(self._fd) or self._header
        self._header = header
        position = self.place.position
        if position < header.tail:
            return
        at = position - self._block_start
        length = 0
        if 0 <= at <= len(self._block) - RECORD:
            length = record_facts(self._block, at)[0]
        sound = RECORD <= length <= min(room, header.head - position)
        self._go(position + length if sound else header.head)


@contextmanager
def opened(path: Path) -> Iterator[int | None]:
    try:
        # O_NONBLOCK: a FIFO in place of the ring would block its readers for ever.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        yield None  # nothing is written yet, or the session's files are removed
        return
    try:
        yield fd if stat.S_ISREG(os.fstat(fd).st_mode) else None
    finally:
        os.close(fd)


def read_header(fd: int | None) -> RingHeader | None:
    """The header as it is now; None if there is no ring."""
    if fd is None:
        return None
    # The fields are not copied at one moment: the writer may change some in between. Then their
    # order is wrong, and we read again.
    for _ in range(_MOST_ATTEMPTS):
        try:
            header = unpack_header(os.pread(fd, _HEADER_BYTES, 0))
        except RingCorrupt:
            return None
        if header.capacity < RECORD or max(header.epoch, header.mark, header.head) >= 1 << 63:
            return None
        if header.tail <= header.head <= header.tail + header.capacity:
            return header
    return None
