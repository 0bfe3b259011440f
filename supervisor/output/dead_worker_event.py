"""Appends an event to the ring of a dead worker, which could not write it.

A ring has one writer. Once the worker's pidfd has reported its end, that is the supervisor. It
writes with `pwrite` in the order of `protocol.wire.ring_format` and maps nothing: a file that
another program has truncated costs an error here, not the relay's process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from debug_relay.protocol.models.output_events import EVENT_NUMBERS, EventType, seq_meta
from debug_relay.protocol.wire.envelope import encode_json, timestamp
from debug_relay.protocol.wire.ring_format import (
    AT_HEAD,
    AT_MARK,
    AT_NEXT_ENTRY,
    AT_TAIL,
    AT_TAIL_ENTRY,
    HEADER,
    RECORD,
    Place,
    RingHeader,
    pack_record,
    pad_record,
)
from debug_relay.supervisor.log import Log
from debug_relay.supervisor.output.ring_reader import Walk, read_header

_log: Final = Log(__name__)
_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def append(ring: Path, seq: int, type: EventType, body: Mapping[str, Any]) -> bool:
    """Appends the event; whether it succeeded. A full disk leaves the ring as it was."""
    event = {"seq": seq, "type": type, "timestamp": timestamp(), "body": body}
    try:
        fd = os.open(ring, _FLAGS)
    except OSError as error:
        _log.warning("events.not_written", path=ring, error=str(error))
        return False
    try:
        header = read_header(fd)
        if header is not None:
            _append(fd, header, seq, EVENT_NUMBERS[type], encode_json(event))
        return header is not None
    except OSError as error:
        _log.warning("events.not_written", path=ring, error=str(error))
        return False
    finally:
        os.close(fd)


def _append(fd: int, header: RingHeader, seq: int, category: int, payload: bytes) -> None:
    now = time.time_ns() // 1000
    first = header.next_entry
    raw = pack_record(first, 1, now, category, payload, seq_meta(seq))
    room = header.capacity - header.head % header.capacity
    start = header.head if len(raw) <= room else header.head + room
    end = start + len(raw)
    # The tail moves before anything is overwritten, the head after all is written, the mark last.
    if end - header.capacity > header.tail:
        tail, tail_entry = _first_from(fd, header, end - header.capacity)
        _set(fd, AT_TAIL_ENTRY, tail_entry)
        _set(fd, AT_TAIL, tail)
    if start != header.head and room >= RECORD:
        _write(fd, pad_record(room), HEADER + header.head % header.capacity)
    _write(fd, raw, HEADER + start % header.capacity)
    _set(fd, AT_NEXT_ENTRY, first + 1)
    _set(fd, AT_HEAD, end)
    _set(fd, AT_MARK, seq)


def _first_from(fd: int, header: RingHeader, lowest: int) -> tuple[int, int]:
    """The oldest record that does not begin before `lowest`: its position and its first entry."""
    oldest = Place(header.epoch, header.tail, header.tail_entry)
    walk = Walk(fd, oldest, None, is_short=False)
    while (record := walk.find()) is not None:
        if record.position >= lowest:
            return record.position, record.first_entry
        walk.take()
    return header.head, header.next_entry


def _set(fd: int, at: int, value: int) -> None:
    _write(fd, value.to_bytes(8, "little"), at)


def _write(fd: int, data: bytes, at: int) -> None:
    if os.pwrite(fd, data, at) != len(data):
        raise OSError("the disk took a part of it only")
