"""Batches for streams: the next messages after a cursor, each with a cursor.

A page has one cursor for all its entries. A stream may break between any two messages, so each
message carries the cursor after it, and a reader that resumes there misses and repeats nothing.
Like pages, batches are read from the ring files and do not need a worker.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

from msgspec import Struct

from debug_relay.protocol.models.output_events import (
    CATEGORY_NUMBERS,
    EVENT_NUMBERS,
    OutputEntry,
    seq_of,
)
from debug_relay.protocol.wire.envelope import timestamp_of
from debug_relay.protocol.wire.ring_format import Place, Record, RingHeader, pack_cursor
from debug_relay.supervisor.output.pages import (
    CATEGORY_NAMES,
    EventPages,
    OutputPages,
    earliest,
    numbers,
    origin_of,
    places,
)
from debug_relay.supervisor.output.ring_reader import Walk, opened, read_header

_T = TypeVar("_T")

# A slow client holds one batch and what its socket buffers.
_BATCH_BYTES: Final = 64 * 1024
_BATCH_MESSAGES: Final = 500  # One batch, so that reading it takes milliseconds.
_EVENT_NAMES: Final = {number: name for name, number in EVENT_NUMBERS.items()}
_OUTPUT: Final = EVENT_NUMBERS["output"]


class Batch(Struct, Generic[_T]):
    messages: list[tuple[_T, str]]  # each with the cursor after it
    next_cursor: str
    dropped: int  # lost between the cursor and the first message
    behind: int  # entries that are still to come
    has_more: bool  # the next batch can be read at once


class RawEvent(Struct):
    seq: int
    type: str
    payload: bytes  # the event as JSON


def output_batch(
    pages: OutputPages, cursor: str | None, category: str | None
) -> Batch[OutputEntry]:
    """A batch of output. Lines that were printed together are one entry, up to a batch's bytes."""
    (place,) = places(pages.owner, cursor, 1)
    wanted = None if category is None else numbers("category", [category], CATEGORY_NUMBERS)
    messages: list[tuple[OutputEntry, str]] = []
    room = _BATCH_BYTES
    with opened(pages.path) as fd:
        # The ring's mark is the first entry after a deletion: nothing before it counts as lost.
        walk = Walk(fd, place, wanted, mark_is_entry=True)
        while len(messages) < _BATCH_MESSAGES and room > 0:
            record = walk.find(until_gap=bool(messages))
            if record is None:
                break
            start, end, lines, entry = _next_piece(record, walk.place.offset, room)
            if end < len(record.payload):
                walk.take_part(lines, end)
            else:
                walk.take()
            room -= end - start
            messages.append((entry, pack_cursor(pages.owner, walk.place)))
        behind = _behind(read_header(fd), walk.place)
        return Batch(
            messages,
            pack_cursor(pages.owner, walk.place),
            walk.dropped,
            behind,
            has_more=walk.place.position < walk.head or walk.unfinished,
        )


def _next_piece(record: Record, start: int, room: int) -> tuple[int, int, int, OutputEntry]:
    """The whole lines from `start` on that fit: where they begin and end, and their number."""
    payload = record.payload
    end = len(payload)
    if end - start > room:
        end = payload.rfind(b"\n", start, start + room) + 1
        if end <= start:  # one line alone is longer
            end = _end_of_line(payload, start)
    text: str | None
    try:
        text = payload[start:end].decode("utf-8")
    except UnicodeDecodeError as error:
        # The lines before the first one that is not UTF-8; that one alone is sent as base64.
        bad = payload.rfind(b"\n", start, start + error.start) + 1
        end = bad if bad > start else _end_of_line(payload, start)
        text = payload[start:end].decode("utf-8") if bad > start else None
    origin = origin_of(record.meta)
    entry = OutputEntry(
        category=CATEGORY_NAMES.get(record.category, "console"),
        output=base64.b64encode(payload[start:end]).decode("ascii") if text is None else text,
        timestamp=timestamp_of(record.time_us / 1e6),
        source=origin.source,
        line=origin.line,
        pid=origin.pid,
        encoding="base64" if text is None else None,
    )
    return start, end, sum(1 for _ in _lines(payload, start, end)), entry


def _end_of_line(payload: bytes, start: int) -> int:
    return payload.find(b"\n", start) + 1 or len(payload)


def _lines(payload: bytes, start: int, end: int) -> Iterator[int]:
    while start < end:
        start = _end_of_line(payload, start)
        yield start


def event_batch(
    pages: EventPages, cursor: str | None, types: frozenset[int] | None, last: int
) -> Batch[RawEvent]:
    """A batch of events. `last` bounds it to the state that callers see: the file may be ahead."""
    state_place, output_place = places(pages.owner, cursor, 2)
    messages: list[tuple[RawEvent, str]] = []
    room = _BATCH_BYTES
    with opened(pages.state_path) as state_fd, opened(pages.output_path) as output_fd:
        header = read_header(state_fd)
        # The mark is read first: every event up to it is in the rings by now.
        mark = min(header.mark, last) if header else 0
        state, output = Walk(state_fd, state_place, types), Walk(output_fd, output_place, types)
        walks = [state] if types is None or types - {_OUTPUT} else []
        if types is None or _OUTPUT in types:
            walks.append(output)
        while len(messages) < _BATCH_MESSAGES and room > 0:
            walk = earliest(walks, mark)
            if walk is None:
                break
            record = walk.take()
            room -= len(record.payload)
            event = RawEvent(
                seq_of(record.meta), _EVENT_NAMES.get(record.category, "session"), record.payload
            )
            messages.append((event, pack_cursor(pages.owner, state.place, output.place)))
        has_more = earliest(walks, mark) is not None or any(w.unfinished for w in walks)
        return Batch(
            messages,
            pack_cursor(pages.owner, state.place, output.place),
            state.dropped + output.dropped,
            max(mark - messages[-1][0].seq, 0) if messages and has_more else 0,
            has_more,
        )


def event_numbers(types: str | None) -> frozenset[int] | None:
    """The numbers of a comma-separated list of types."""
    if not types:
        return None
    return numbers("types", {name.strip() for name in types.split(",")}, EVENT_NUMBERS)


def _behind(header: RingHeader | None, place: Place) -> int:
    if header is None or header.epoch != place.epoch:
        return 0
    return max(header.next_entry - place.entry, 0)
