"""Reads the rows of a trace from their file, page by page.

The probe in the program writes the file (`probe/tracing/ring_writer.py`, layout in
`protocol.wire.ring_format`). This module only reads it, also while the probe writes and after the
program's end. It knows nothing of how a trace runs.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from msgspec import Struct

from debug_relay.protocol.wire.ring_format import (
    HEADER,
    PAD,
    RECORD,
    Place,
    RingCorrupt,
    RingHeader,
    record_facts,
    record_length,
    unpack_header,
    unpack_record,
)
from debug_relay.worker.storage.ring_writer import Ring

_LEAST: Final = 1 << 20
_MOST: Final = 32 << 20
_ROW_BYTES: Final = 1024


class RowPage(Struct):
    rows: list[tuple[int, bytes]]  # number from 1, JSON from the program
    places: list[Place]  # where each begins, and where the next one would
    dropped: int
    total: int


def make_file(path: Path, max_rows: int) -> None:
    """Creates a new, empty file with all blocks allocated: the program maps it, and a hole on a
    full disk would kill the program with SIGBUS.
    """
    capacity = min(max(max_rows * _ROW_BYTES, _LEAST), _MOST)
    Ring(path, capacity).close()
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.posix_fallocate(fd, 0, HEADER + capacity)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)


def header_of(path: Path) -> RingHeader:
    with open(path, "rb") as file:
        return unpack_header(file.read(RECORD * 2))


def read_page(path: Path, place: Place | None, limit: int, room: int) -> RowPage:
    """Rows from `place` on, limited by number and bytes; from the oldest row if there is no
    place.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _read(fd, place, limit, room)
    finally:
        os.close(fd)


def _read(fd: int, place: Place | None, limit: int, room: int) -> RowPage:
    header = _header(fd)
    position, expected = (place.position, place.entry) if place else (header.tail, 0)
    rows: list[tuple[int, bytes]] = []
    places: list[Place] = []
    while len(rows) < limit and room > 0:
        position = max(position, header.tail)
        if position >= header.head:
            break
        left = header.capacity - position % header.capacity
        fixed = b"" if left < RECORD else _bytes(fd, header, position, RECORD)
        if left < RECORD or (record_facts(fixed, 0)[1] == PAD and record_length(fixed) == left):
            position += left
            continue
        try:
            raw = _bytes(fd, header, position, min(record_length(fixed), left))
            record = unpack_record(raw, position)
        except RingCorrupt:
            header = _header(fd)
            if position >= header.tail:
                break  # damaged: nothing after it can be trusted
            continue
        rows.append((record.first_entry + 1, record.payload))
        places.append(Place(header.epoch, position, record.first_entry))
        room -= len(record.payload)
        position = record.end
    total = _header(fd).next_entry
    first = rows[0][0] - 1 if rows else expected
    end = rows[-1][0] if rows else max(expected, header.tail_entry)
    places.append(Place(header.epoch, position, end))
    return RowPage(rows, places, max(0, first - expected), total)


def _header(fd: int) -> RingHeader:
    return unpack_header(os.pread(fd, RECORD * 2, 0))


def _bytes(fd: int, header: RingHeader, position: int, length: int) -> bytes:
    return os.pread(fd, length, HEADER + position % header.capacity)
