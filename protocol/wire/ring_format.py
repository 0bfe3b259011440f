"""The layout of a ring file, which the worker writes and the supervisor reads. Sans I/O.

It also defines a reader's place in a ring, which callers carry as an opaque cursor.

A ring has one writer, any number of readers and a fixed size. Positions are absolute: they grow for
ever, and `position % capacity` is the place in the file. A record never crosses the end of the data
area; a PAD record fills the rest there, or the rest is too small for a header and skipped.

    header (HEADER bytes, one page): magic, then the fields of `RingHeader`
    data   (capacity bytes): records, each a fixed part followed by meta and payload

The writer moves `tail` *before* it overwrites old records and publishes `head` *after* the new one
is complete. So a reader copies bytes first and reads `tail` afterwards: records behind that tail
may be torn and are discarded. Every record has a checksum too, except a PAD, which a reader
recognises because it ends exactly at the end of the data area.

Only `tail` and `head` are consistent with each other. `tail_entry` and `next_entry` are separate
stores: a reader may see them one record ahead, so it counts what it missed by the records' numbers.
"""

from __future__ import annotations

import base64
import zlib
from struct import Struct as Layout
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

MAGIC: Final = b"DRRING\x00\x01"
HEADER: Final = 4096

# Offsets of the header's fields; 8 bytes each, so that each is written in one store.
AT_CAPACITY: Final = 8
AT_EPOCH: Final = 16
AT_TAIL: Final = 24
AT_TAIL_ENTRY: Final = 32
AT_MARK: Final = 40  # a number for the writer's own use, published last
AT_HEAD: Final = 48
AT_NEXT_ENTRY: Final = 56

PAD: Final = 255  # the category of a record that only fills the rest of the data area
_LAYOUT: Final = Layout("<IIQQBBHI")
RECORD: Final = _LAYOUT.size  # 32
_HEADER_FIELDS: Final = Layout("<8sQQQQQQQ")


class RingHeader(Struct):
    capacity: int
    epoch: int  # distinguishes a ring from a later one at the same path
    tail: int  # position of the oldest record
    tail_entry: int  # number of its first entry
    mark: int
    head: int  # position where the next record will begin
    next_entry: int  # number that its first entry will have


class Record(Struct):
    position: int
    first_entry: int
    entries: int
    time_us: int
    category: int
    flags: int
    meta: bytes
    payload: bytes

    @property
    def end(self) -> int:
        return self.position + RECORD + len(self.meta) + len(self.payload)


class RingCorrupt(Exception):
    """The bytes at this position are not a record: torn, overwritten or damaged."""


class ForeignCursor(ValueError):
    """A cursor of another session, or of output where events are read."""


_Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class Place(Struct, array_like=True, frozen=True):
    """A position at which a reader continues in one ring."""

    epoch: _Number = 0
    position: _Number = 0
    entry: _Number = 0  # number of the next entry to read
    offset: _Number = 0  # byte offset of that entry in the record's payload


def output_owner(session_id: str) -> str:
    """The owner name for a cursor over the output; `events_owner` does the same for events."""
    return f"output of {session_id}"


def events_owner(session_id: str) -> str:
    return f"events of {session_id}"


def pack_cursor(owner: str, *places: Place) -> str:
    """`owner` names what is read, such as the output of one session; the cursor is valid only for
    that.
    """
    raw = msgspec.json.encode((_tag(owner), *places))
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def unpack_cursor(owner: str, cursor: str, count: int) -> tuple[Place, ...]:
    """The places in a cursor; ValueError if it is malformed, ForeignCursor if it has another
    owner.
    """
    raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True)
    tag, *rest = msgspec.json.decode(raw, type=list[Any])
    places = msgspec.convert(rest, tuple[Place, ...])
    if tag != _tag(owner):
        raise ForeignCursor(owner)
    if len(places) != count:
        raise ValueError(f"{len(places)} places instead of {count}")
    return places


def _tag(owner: str) -> int:
    return zlib.crc32(owner.encode())


def pack_header(header: RingHeader) -> bytes:
    return _HEADER_FIELDS.pack(
        MAGIC,
        header.capacity,
        header.epoch,
        header.tail,
        header.tail_entry,
        header.mark,
        header.head,
        header.next_entry,
    ).ljust(HEADER, b"\0")


def unpack_header(raw: bytes) -> RingHeader:
    if len(raw) < _HEADER_FIELDS.size:
        raise RingCorrupt("the header is cut short")
    magic, *fields = _HEADER_FIELDS.unpack_from(raw)
    if magic != MAGIC:
        raise RingCorrupt("not a ring file")
    return RingHeader(*fields)


def pack_record(
    first_entry: int,
    entries: int,
    time_us: int,
    category: int,
    payload: bytes,
    meta: bytes = b"",
    flags: int = 0,
) -> bytes:
    """The bytes of one record; `pad_record` shows the order of the fixed part by example."""
    body = meta + payload
    fixed = (len(body), 0, first_entry, time_us, category, flags, len(meta), entries)
    crc = zlib.crc32(body, zlib.crc32(_LAYOUT.pack(*fixed)))
    return b"".join((_LAYOUT.pack(fixed[0], crc, *fixed[2:]), body))


def record_length(raw: bytes) -> int:
    """The total number of bytes of the record with this fixed part."""
    return RECORD + int.from_bytes(raw[:4], "little")


def record_facts(raw: bytes, at: int) -> tuple[int, int, int, int]:
    """From the fixed part at `at`: total length, category, first entry, entries."""
    length, _, first_entry, _, category, _, _, entries = _LAYOUT.unpack_from(raw, at)
    return RECORD + length, category, first_entry, entries


def unpack_record(raw: bytes, position: int) -> Record:
    if len(raw) < RECORD:
        raise RingCorrupt("a record is cut short")
    length, crc, first_entry, time_us, category, flags, meta_length, entries = _LAYOUT.unpack_from(
        raw
    )
    body = raw[RECORD : RECORD + length]
    fixed = (length, 0, first_entry, time_us, category, flags, meta_length, entries)
    if len(body) != length or zlib.crc32(body, zlib.crc32(_LAYOUT.pack(*fixed))) != crc:
        raise RingCorrupt(f"the record at {position} does not match its checksum")
    return Record(
        position, first_entry, entries, time_us, category, flags, body[:meta_length],
        body[meta_length:],
    )  # fmt: skip


def pad_record(room: int) -> bytes:
    """Fills `room` bytes at the end of the data area; `room` is at least RECORD."""
    return _LAYOUT.pack(room - RECORD, 0, 0, 0, PAD, 0, 0, 0)
