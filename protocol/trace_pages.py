"""Pages of a trace's rows, from the ring file that the probe writes.

The worker reads them while the program lives, and the supervisor after the session's worker has
retired. This module does no I/O: callers pass a function that reads bytes of the file. The layout
is in `protocol.wire.ring_format`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Struct

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.execution import Execution, TraceRow, TraceRows
from debug_relay.protocol.models.fields import Location
from debug_relay.protocol.models.retired_session import TraceRecord
from debug_relay.protocol.models.run import RunTrace
from debug_relay.protocol.state import State
from debug_relay.protocol.wire.envelope import encode_json
from debug_relay.protocol.wire.ring_format import (
    HEADER,
    PAD,
    RECORD,
    Place,
    RingCorrupt,
    RingHeader,
    pack_cursor,
    record_facts,
    record_length,
    unpack_cursor,
    unpack_header,
    unpack_record,
)

FILE: Final = "trace.ring"  # in the session's run directory
# The rows on one page of a trace, both as they are answered and in the file.
_PAGE_BYTES: Final = 1 << 20
_MOST_BYTES: Final = 64 << 20  # The last rows of a trace that are read at once.
Read = Callable[[int, int], bytes]  # a number of bytes of the file, from an offset on


HEAD_ROWS: Final = 3  # The first rows that stand before the last ones.


class PageSize(Struct, frozen=True):
    """How much a page may hold."""

    rows: int
    characters: int = _PAGE_BYTES  # the rows in the answer
    bytes: int = _PAGE_BYTES  # the rows in the file


def in_json(row: TraceRow) -> int:
    """How many characters a row takes in a reply."""
    return len(encode_json(row).decode()) + 1


def in_columns(row: TraceRow) -> int:
    """How many characters a row takes as a list of what differs from row to row."""
    cells = [row.seq, row.line, row.hit, *row.values.values(), *row.changed.items()]
    return len(encode_json([*cells, *row.was.values(), row.returned]).decode()) + 1


def turn_to_columns(recorded: TraceRows | RunTrace) -> None:
    """Tell the names once: rows become lists of values, and what all rows have alike is one value.

    `values` and `was` of a captured expression are columns of their own.
    """
    rows = [_cells(row) for row in recorded.rows if isinstance(row, TraceRow)]
    names = list(dict.fromkeys(name for row in rows for name in row))
    same = {name: rows[0][name] for name in names if _is_alike(rows, name)}
    recorded.columns = [name for name in names if name not in same]
    recorded.same = same
    recorded.rows = [[row.get(name) for name in recorded.columns] for row in rows]


def _cells(row: TraceRow) -> dict[str, Any]:
    facts: dict[str, Any] = msgspec.to_builtins(row)
    values, was = facts.pop("values", {}), facts.pop("was", {})
    facts |= {name if name not in facts else f"values.{name}": one for name, one in values.items()}
    return facts | {f"was.{name}": one for name, one in was.items()}


def _is_alike(rows: list[dict[str, Any]], name: str) -> bool:
    return len(rows) > 1 and all(name in row and row[name] == rows[0][name] for row in rows)


Measure = Callable[[TraceRow], int]


def fitted(rows: list[TraceRow], budget: int, measure: Measure) -> tuple[list[TraceRow], int]:
    """The rows that the budget allows: all, or the first few and the last ones; and how many stand
    before the gap, 0 if there is none.
    """
    sizes = [measure(row) for row in rows]
    if sum(sizes) <= budget:
        return rows, 0
    room, head = budget, 0
    while head < min(HEAD_ROWS, len(rows)) and sizes[head] <= room // 4:
        room -= sizes[head]
        head += 1
    first = len(rows)
    while first > head and (sizes[first - 1] <= room or first == len(rows)):
        first -= 1
        room -= sizes[first]
    return rows[:head] + rows[first:], head


def page_of(
    read: Read,
    session_id: str,
    trace: TraceRecord,
    cursor: str | None,
    most: PageSize,
    now: Execution,
    measure: Measure = in_json,
) -> TraceRows:
    """The rows from `cursor` on; `now` is where the program is. Raises RingCorrupt if the file is
    not a ring.
    """
    owner = f"trace of {session_id}"
    place = _place(read, owner, cursor) if cursor else None
    page = _read(read, place, most.rows, most.bytes)
    rows: list[TraceRow] = []
    room = most.characters
    for number, raw in page.rows:
        row = _row(trace, number, raw)
        room -= measure(row)
        if room < 0:
            break
        rows.append(row)
    last = page.places[len(rows)]
    left = page.total - last.entry
    return TraceRows(
        **{name: getattr(now, name) for name in Execution.__struct_fields__},
        rows=list(rows),
        ended=trace.ended,
        total=page.total,
        left_out=left,
        dropped=page.dropped,
        next_cursor=pack_cursor(owner, last) if left or trace.ended is None else None,
        has_more=left > 0,
        warnings=trace.warnings,
    )


def ending_of(
    read: Read,
    session_id: str,
    trace: TraceRecord,
    most: PageSize,
    now: Execution,
    measure: Measure = in_json,
) -> TraceRows:
    """The first rows of a trace and its last ones; the cursor reads on behind the first."""
    header, places = header_of(read), _places(read)
    start = len(places)
    while start and len(places) - start < most.rows:
        if header.head - places[start - 1].position > most.bytes and start < len(places):
            break
        start -= 1
    raw = _read(read, places[start], len(places) - start, _MOST_BYTES).rows if places else []
    before = min(HEAD_ROWS, start)
    if before:
        raw = _read(read, places[0], before, _MOST_BYTES).rows + raw
    rows, head = fitted([_row(trace, *one) for one in raw], most.characters, measure)
    left = len(places) - len(rows)
    head = head or (before if left else 0)
    onwards = places[head] if left else Place(header.epoch, header.head, header.next_entry)
    return TraceRows(
        **{name: getattr(now, name) for name in Execution.__struct_fields__},
        rows=list(rows),
        ended=trace.ended,
        total=header.next_entry,
        left_out=left,
        head=head,
        dropped=header.next_entry - len(places),
        next_cursor=pack_cursor(f"trace of {session_id}", onwards)
        if left or trace.ended is None
        else None,
        has_more=left > 0,
        warnings=trace.warnings,
    )


def _places(read: Read) -> list[Place]:
    """The places of all rows in the file, by their heads alone."""
    header = header_of(read)
    position, found = header.tail, list[Place]()
    while position < header.head:
        left = header.capacity - position % header.capacity
        fixed = b"" if left < RECORD else _bytes(read, header, position, RECORD)
        if left < RECORD or _is_pad(fixed, left):
            position += left
            continue
        try:
            length = min(record_length(fixed), left)
        except RingCorrupt:
            break
        found.append(Place(header.epoch, position, header.tail_entry + len(found)))
        position += length
    return found


def nothing_was_traced(status: State) -> RelayError:
    return RelayError(
        Code.INVALID_SESSION_STATE,
        "Nothing was traced in this session",
        f"{call_of('trace')} first.",
        current_state=status.value,
    )


def _row(trace: TraceRecord, number: int, raw: bytes) -> TraceRow:
    row = msgspec.json.decode(raw)
    thread = trace.threads.get(row.pop("thread"))
    if (after := row.pop("after", None)) is not None:
        path, line, function = after
        row["after"] = Location(path=path, line=line, column=1, function=function)
    return TraceRow(seq=number, thread_id=thread, **row)


def _place(read: Read, owner: str, cursor: str) -> Place:
    try:
        (place,) = unpack_cursor(owner, cursor, 1)
    except (ValueError, msgspec.MsgspecError):
        place = None
    if place is not None and place.epoch == header_of(read).epoch:
        return place
    problem = "is of an earlier trace" if place else "is not one that this endpoint returned"
    raise RelayError(
        Code.INVALID_PARAMETER,
        f"cursor {cursor[:80]!r} {problem}",
        "Use next_cursor of an earlier reply as it is, or leave cursor out for the first row.",
        errors=[{"field": "cursor", "message": problem, "value": cursor[:200]}],
    )


# -- the file


class _Page(Struct):
    rows: list[tuple[int, bytes]]  # number from 1, JSON from the program
    places: list[Place]  # where each begins, and where the next one would
    dropped: int
    total: int


def header_of(read: Read) -> RingHeader:
    header = unpack_header(read(RECORD * 2, 0))
    if header.capacity < RECORD:
        raise RingCorrupt("the header names no capacity")
    return header


def _read(read: Read, place: Place | None, limit: int, room: int) -> _Page:
    """Rows from `place` on, limited by number and bytes; from the oldest row if there is no
    place. The probe may write meanwhile.
    """
    header = header_of(read)
    position, expected = (place.position, place.entry) if place else (header.tail, 0)
    rows: list[tuple[int, bytes]] = []
    places: list[Place] = []
    while len(rows) < limit and room > 0:
        position = max(position, header.tail)
        if position >= header.head:
            break
        left = header.capacity - position % header.capacity
        fixed = b"" if left < RECORD else _bytes(read, header, position, RECORD)
        if left < RECORD or _is_pad(fixed, left):
            position += left
            continue
        try:
            raw = _bytes(read, header, position, min(record_length(fixed), left))
            record = unpack_record(raw, position)
        except RingCorrupt:
            header = header_of(read)
            if position >= header.tail:
                break  # damaged: nothing after it can be trusted
            continue
        rows.append((record.first_entry + 1, record.payload))
        places.append(Place(header.epoch, position, record.first_entry))
        room -= len(record.payload)
        position = record.end
    total = header_of(read).next_entry
    first = rows[0][0] - 1 if rows else expected
    end = rows[-1][0] if rows else max(expected, header.tail_entry)
    places.append(Place(header.epoch, position, end))
    return _Page(rows, places, max(0, first - expected), total)


def _is_pad(fixed: bytes, left: int) -> bool:
    return len(fixed) == RECORD and record_facts(fixed, 0)[:2] == (left, PAD)


def _bytes(read: Read, header: RingHeader, position: int, length: int) -> bytes:
    return read(length, HEADER + position % header.capacity)
