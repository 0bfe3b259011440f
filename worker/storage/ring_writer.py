"""The writer's end of a ring file; `protocol.wire.ring_format` defines the layout.

It owns the file and its mapped header page. Data is written with `pwrite`, so that a large ring is
not resident. It must not know what the records mean, nor who reads them.
"""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path
from typing import Final

from debug_relay.protocol.system.files import replacing
from debug_relay.protocol.wire.ring_format import (
    AT_HEAD,
    AT_MARK,
    AT_NEXT_ENTRY,
    AT_TAIL,
    AT_TAIL_ENTRY,
    HEADER,
    PAD,
    RECORD,
    Place,
    RingCorrupt,
    RingHeader,
    pack_header,
    pack_record,
    pad_record,
    record_facts,
    unpack_header,
)

MIN_CAPACITY_BYTES: Final = 1024  # The smallest ring.
# A problem of the disk alone: the record is counted as lost, and the session continues.
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
# The oldest data that is read at once to find the ends of its records.
_WINDOW_BYTES: Final = 16 * 1024


class Ring:
    """One ring file, open for appending, from one thread only."""

    def __init__(
        self, path: Path, capacity: int, max_entries: int = 0, *, goes_on: bool = False
    ) -> None:
        """`goes_on`: keep the records that an earlier writer left, whatever the ring's capacity
        was.
        """
        if capacity < MIN_CAPACITY_BYTES:
            raise ValueError(f"a ring of {capacity} bytes; {MIN_CAPACITY_BYTES} is the least")
        self.lost = 0  # entries that could not be written to the disk
        self._max_entries = max_entries
        self._window_start, self._window = 0, b""
        found = _found(path) if goes_on else None
        self.is_new = found is None
        if found is None:
            epoch = int.from_bytes(os.urandom(6), "little") | 1
            header = RingHeader(capacity, epoch, 0, 0, 0, 0, 0)
            found = _create(path, header), header
        self._fd, header = found
        self._capacity, self._epoch = header.capacity, header.epoch
        self._tail, self._tail_entry = header.tail, header.tail_entry
        self._head, self._next_entry = header.head, header.next_entry
        try:
            self._page = mmap.mmap(self._fd, HEADER)
        except BaseException:
            os.close(self._fd)
            raise
        # Items of a cast view are written with one aligned store each; struct's "<Q" writes byte by
        # byte.
        self._fields = memoryview(self._page).cast("Q")

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def head(self) -> int:
        return self._head

    @property
    def next_entry(self) -> int:
        return self._next_entry

    @property
    def entries(self) -> int:
        """The number of entries in the ring."""
        return self._next_entry - self._tail_entry

    @property
    def end(self) -> Place:
        """The position of a reader that has seen everything."""
        return Place(self._epoch, self._head, self._next_entry)

    def append(
        self,
        payload: bytes,
        *,
        time_us: int,
        category: int,
        entries: int = 1,
        meta: bytes = b"",
        flags: int = 0,
    ) -> int:
        """Write one record; the number of its first entry."""
        if self._fd < 0:
            raise ValueError("the ring is closed")
        first = self._next_entry
        raw = pack_record(first, entries, time_us, category, payload, meta, flags)
        if len(raw) > self._capacity // 2:
            raise ValueError(f"a record of {len(raw)} bytes in a ring of {self._capacity}")
        room = self._capacity - self._head % self._capacity
        start = self._head if len(raw) <= room else self._head + room
        end = start + len(raw)
        most = max(self._max_entries - entries, 0) if self._max_entries else None
        self._drop(end - self._capacity, most)
        written = (start == self._head or self._write_pad(room)) and self._write(raw, start)
        self._next_entry = first + entries
        self._set(AT_NEXT_ENTRY, self._next_entry)
        if written:
            self._head = end
            self._set(AT_HEAD, end)
        else:
            self.lost += entries
        return first

    def trim(self, entries: int) -> None:
        """Drop the oldest records until no more than `entries` entries are kept."""
        self._drop(0, entries)

    def set_mark(self, number: int) -> None:
        self._set(AT_MARK, number)

    def clear(self) -> None:
        self._tail, self._tail_entry = self._head, self._next_entry
        self._publish_tail()

    def close(self) -> None:
        if self._fd < 0:
            return
        self._fields.release()
        self._page.close()
        os.close(self._fd)
        self._fd = -1

    def _set(self, at: int, value: int) -> None:
        self._fields[at // 8] = value

    def _publish_tail(self) -> None:
        self._set(AT_TAIL_ENTRY, self._tail_entry)
        self._set(AT_TAIL, self._tail)

    def _write_pad(self, room: int) -> bool:
        return room < RECORD or self._write(pad_record(room), self._head)

    def _write(self, raw: bytes, position: int) -> bool:
        try:
            written = os.pwrite(self._fd, raw, HEADER + position % self._capacity)
        except OSError as error:
            if error.errno in _NO_ROOM:
                return False
            raise
        # A short write on a full disk: the bytes are beyond the head, where no reader looks.
        return written == len(raw)

    def _drop(self, lowest: int, most: int | None) -> None:
        """Drops the oldest records: those that begin before `lowest`, and until at most `most`
        entries are left.
        """
        before = self._tail
        while self._tail < self._head and (
            self._tail < lowest or (most is not None and self.entries > most)
        ):
            self._drop_oldest()
        if self._tail != before:
            self._publish_tail()

    def _drop_oldest(self) -> None:
        room = self._capacity - self._tail % self._capacity
        if room < RECORD:
            self._tail += room
            return
        length, category, first, entries = self._outline(room)
        after = first + entries if category != PAD else self._tail_entry
        sound = length <= min(room, self._head - self._tail)
        self._tail += length
        if sound and self._tail < self._head and self._tail_entry <= after <= self._next_entry:
            self._tail_entry = after
        else:
            # It was the last record; or another process wrote into the file, and we cannot find
            # the records' ends any more.
            self._tail, self._tail_entry = self._head, self._next_entry

    def _outline(self, room: int) -> tuple[int, int, int, int]:
        """Facts of the oldest record. Its bytes never change while it is kept, so a cached window
        is fine.
        """
        at = self._tail - self._window_start
        if not 0 <= at <= len(self._window) - RECORD:
            length = max(RECORD, min(_WINDOW_BYTES, room, self._head - self._tail))
            place = HEADER + self._tail % self._capacity
            self._window_start, at = self._tail, 0
            # A truncated file reads as zeros, which is not a valid record.
            self._window = os.pread(self._fd, length, place).ljust(RECORD, b"\0")
        return record_facts(self._window, at)


def _found(path: Path) -> tuple[int, RingHeader] | None:
    """The existing ring, if its header is consistent."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        header = unpack_header(os.pread(fd, HEADER, 0))
        is_sound = (
            header.capacity >= MIN_CAPACITY_BYTES
            and os.fstat(fd).st_size == HEADER + header.capacity
            and header.tail <= header.head <= header.tail + header.capacity
            and header.tail_entry <= header.next_entry
            and max(header.epoch, header.mark, header.head, header.next_entry) < 1 << 62
        )
    except (OSError, RingCorrupt):
        is_sound = False
    if is_sound:
        return fd, header
    os.close(fd)
    return None


def _create(path: Path, header: RingHeader) -> int:
    """A new file at `path`, complete before it gets that name; it replaces any existing file."""
    with replacing(path, fsync=False) as fd:
        os.ftruncate(fd, HEADER + header.capacity)
        # We write the header instead of only mapping it: a store into a hole on a full disk would
        # raise SIGBUS.
        if os.pwrite(fd, pack_header(header), 0) != HEADER:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
