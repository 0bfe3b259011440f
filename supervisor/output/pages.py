"""Pages of output and events, read from a session's ring files while the worker writes them.

Each page opens the files anew and only reads, so it makes no difference whether a worker lives. A
page is bounded in entries, bytes and looked-at records. `dropped` counts the entries that were lost
between the page's cursor and its first entry (for events: its last one, because their numbers show
where the gap is), so entries and `dropped` together leave no gap.
"""

from __future__ import annotations

import base64
import difflib
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.output_events import (
    CATEGORY_NUMBERS,
    EVENT_NUMBERS,
    Event,
    EventPage,
    EventType,
    OutputEntry,
    OutputPage,
    seq_of,
)
from debug_relay.protocol.refusals import Problem
from debug_relay.protocol.state import State
from debug_relay.protocol.wire.envelope import timestamp_of
from debug_relay.protocol.wire.ring_format import (
    ForeignCursor,
    Place,
    Record,
    events_owner,
    output_owner,
    pack_cursor,
    unpack_cursor,
)
from debug_relay.supervisor.output import dead_worker_event
from debug_relay.supervisor.output.ring_reader import Walk, opened, read_header

_PAGE_BYTES: Final = 1 << 20  # One page of output or events.
CATEGORY_NAMES: Final = {number: name for name, number in CATEGORY_NUMBERS.items()}
_OUTPUT: Final = EVENT_NUMBERS["output"]
_decode_event: Final = msgspec.json.Decoder(Event).decode


class _Origin(Struct):
    """The place in the program that an output record comes from; the record's meta."""

    source: str | None = None
    line: int | None = None
    pid: int | None = None


_NOWHERE: Final = _Origin()
_decode_origin: Final = msgspec.json.Decoder(_Origin).decode


class OutputPages:
    """Pages of a program's output, line by line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.owner = output_owner(path.parent.name)

    def end(self) -> int:
        with opened(self.path) as fd:
            header = read_header(fd)
        return header.head if header else 0

    def page(self, cursor: str | None, limit: int, category: str | None) -> OutputPage:
        (place,) = places(self.owner, cursor, 1)
        with opened(self.path) as fd:
            return self._page(fd, place, limit, _wanted(category))

    def last(self, cursor: str | None, count: int, category: str | None) -> OutputPage:
        """The last `count` entries after the cursor. Reads the whole ring, so it must run in a
        thread.
        """
        (place,) = places(self.owner, cursor, 1)
        wanted = _wanted(category)
        with opened(self.path) as fd:
            place = _place_of_last(fd, place, wanted, count)
            return self._page(fd, place, count, wanted, is_short=False)

    def _page(
        self,
        fd: int | None,
        place: Place,
        limit: int,
        wanted: frozenset[int] | None,
        is_short: bool = True,
    ) -> OutputPage:
        # The ring's mark says what was cleared on request: that is no loss for a first page.
        walk = Walk(fd, place, wanted, mark_is_entry=True, is_short=is_short)
        entries, whole = _output_entries(walk, limit)
        # We look beyond the page for `has_more` only, so take cursor and losses first.
        next_cursor, dropped = pack_cursor(self.owner, walk.place), walk.dropped
        has_more = not whole or walk.find() is not None or walk.unfinished
        return OutputPage(
            entries=entries, next_cursor=next_cursor, has_more=has_more, dropped=dropped
        )


def _wanted(category: str | None) -> frozenset[int] | None:
    return None if category is None else numbers("category", [category], CATEGORY_NUMBERS)


def _place_of_last(
    fd: int | None, place: Place, wanted: frozenset[int] | None, count: int
) -> Place:
    walk = Walk(fd, place, wanted, mark_is_entry=True, is_short=False)
    end = walk.head  # a program that prints all the time must not keep us here
    kept: deque[tuple[Place, int]] = deque()
    have = 0
    while walk.place.position < end and (record := walk.find()) is not None:
        before = walk.place
        entry = max(before.entry, record.first_entry)
        walk.take()
        kept.append((Place(before.epoch, before.position, entry, before.offset), walk.place.entry))
        have += walk.place.entry - entry
        while have - (oldest := kept[0][1] - kept[0][0].entry) >= count:
            have -= oldest
            kept.popleft()
    if not kept:
        return walk.place
    first = kept[0][0]
    return _passed_by(Walk(fd, first, wanted), have - count) if have > count else first


def _passed_by(walk: Walk, entries: int) -> Place:
    """The place behind the first `entries` entries of the record at which the walk begins."""
    position = walk.place.position
    record = walk.find()
    if record is not None and record.position == position:  # else the writer has overwritten it
        payload, offset = record.payload, walk.place.offset
        lines, end = _lines(payload, offset, entries, len(payload))
        walk.take_part(len(lines), end)
    return walk.place


def _output_entries(walk: Walk, limit: int) -> tuple[list[OutputEntry], bool]:
    """The entries of a page, and whether it ends where a record ends."""
    entries: list[OutputEntry] = []
    room = _PAGE_BYTES
    while len(entries) < limit and room > 0:
        record = walk.find(until_gap=bool(entries))
        if record is None:
            break
        start = walk.place.offset
        lines, end = _lines(record.payload, start, limit - len(entries), room)
        entries += _entries_of(record, lines)
        room -= end - start
        if end < len(record.payload):
            walk.take_part(len(lines), end)
            return entries, False
        walk.take()
    return entries, True


def _lines(payload: bytes, start: int, limit: int, room: int) -> tuple[list[bytes], int]:
    """Lines with their newlines, from `start` on, and the offset behind them."""
    lines: list[bytes] = []
    at = start
    while at < len(payload) and len(lines) < limit and at - start < room:
        end = payload.find(b"\n", at) + 1 or len(payload)
        lines.append(payload[at:end])
        at = end
    return lines, at


def _entries_of(record: Record, lines: Iterable[bytes]) -> Iterator[OutputEntry]:
    category = CATEGORY_NAMES.get(record.category, "console")
    time = timestamp_of(record.time_us / 1e6)
    origin = origin_of(record.meta)
    for line in lines:
        entry = OutputEntry(
            category=category,
            output="",
            timestamp=time,
            source=origin.source,
            line=origin.line,
            pid=origin.pid,
        )
        try:
            entry.output = line.decode("utf-8")
        except UnicodeDecodeError:
            entry.output = base64.b64encode(line).decode("ascii")
            entry.encoding = "base64"
        yield entry


def origin_of(meta: bytes) -> _Origin:
    if not meta:
        return _NOWHERE
    try:
        return _decode_origin(meta)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        # Output is worth showing even if its origin is unreadable.
        return _NOWHERE


class EventPages:
    """Pages of a session's events, from two rings that are merged by seq."""

    def __init__(self, state_path: Path, output_path: Path) -> None:
        self.state_path = state_path
        self.output_path = output_path
        self.owner = events_owner(state_path.parent.name)

    def last_seq(self) -> int:
        """The highest seq in the rings of a worker that has ended."""
        with opened(self.state_path) as state_fd, opened(self.output_path) as output_fd:
            header, other = read_header(state_fd), read_header(output_fd)
            if header is None:
                return 0
            if (
                other is not None
                and header.next_entry + other.next_entry + other.mark == header.mark
            ):
                return header.mark
            # A killed writer may have published an event, but not its seq.
            last = header.mark
            for fd in (state_fd, output_fd):
                walk = Walk(fd, Place(), None, is_short=False)
                while walk.find() is not None:
                    last = max(last, seq_of(walk.take().meta))
            return last

    def end_cursor(self) -> str:
        """A cursor for a reader that wants only events from now on."""
        places = []
        for path in (self.state_path, self.output_path):
            with opened(path) as fd:
                header = read_header(fd)
            end = (header.epoch, header.head, header.next_entry) if header else ()
            places.append(Place(*end))
        return pack_cursor(self.owner, *places)

    def append_last(self, seq: int, type: EventType, body: Mapping[str, Any]) -> bool:
        """Appends an event for a dead worker; whether it can be read."""
        return dead_worker_event.append(self.state_path, seq, type, body)

    def page(
        self,
        cursor: str | None,
        limit: int,
        types: set[str] | None,
        status: State,
        last: int | None = None,
    ) -> EventPage:
        """A page. Its events go up to `last`, which belongs to `status`: the file may be ahead."""
        state_place, output_place = places(self.owner, cursor, 2)
        wanted = None if types is None else numbers("types", types, EVENT_NUMBERS)
        with opened(self.state_path) as state_fd, opened(self.output_path) as output_fd:
            header = read_header(state_fd)
            # We read the mark first: all events up to that seq are in the rings by now.
            mark = header.mark if header else 0
            mark = mark if last is None else min(mark, last)
            state = Walk(state_fd, state_place, wanted)
            output = Walk(output_fd, output_place, wanted)
            # We skip a ring without wanted events; its place in the cursor stays.
            walks = [state] if wanted is None or wanted - {_OUTPUT} else []
            if wanted is None or _OUTPUT in wanted:
                walks.append(output)
            events, unreadable = _events(walks, limit, mark)
            next_cursor = pack_cursor(self.owner, state.place, output.place)
            dropped = state.dropped + output.dropped + unreadable
            has_more = earliest(walks, mark) is not None or any(w.unfinished for w in walks)
        return EventPage(
            events=events,
            next_cursor=next_cursor,
            has_more=has_more,
            session_status=status,
            dropped=dropped,
        )


def _events(walks: list[Walk], limit: int, mark: int) -> tuple[list[Event], int]:
    """The events of a page, and how many could not be read."""
    events: list[Event] = []
    unreadable = 0
    room = _PAGE_BYTES
    while len(events) < limit and room > 0 and (walk := earliest(walks, mark)) is not None:
        record = walk.take()
        room -= len(record.payload)
        try:
            events.append(_decode_event(record.payload))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            unreadable += 1
    return events, unreadable


def earliest(walks: list[Walk], mark: int) -> Walk | None:
    """The ring that has the next event up to `mark`."""
    found: tuple[int, Walk] | None = None
    for walk in walks:
        record = walk.find()
        if record is None:
            if walk.unfinished:
                # This ring may have an earlier event than the other one, so the page ends.
                return None
            continue
        seq = seq_of(record.meta)
        if seq <= mark and (found is None or seq < found[0]):
            found = seq, walk
    return found[1] if found else None


def places(owner: str, cursor: str | None, count: int) -> tuple[Place, ...]:
    if cursor is None:
        return (Place(),) * count
    try:
        return unpack_cursor(owner, cursor, count)
    except ForeignCursor:
        problem = f"belongs to another session or endpoint, not to the {owner}"
    except (ValueError, msgspec.MsgspecError):
        problem = "is not one that a relay returned"
    raise RelayError(
        Code.INVALID_PARAMETER,
        f"cursor {cursor[:80]!r} {problem}",
        "Use next_cursor of an earlier reply of this endpoint as it is, or leave cursor out to "
        "read from the oldest entry.",
        errors=[Problem("cursor", problem, cursor)],
    )


def numbers(parameter: str, names: Collection[str], table: Mapping[str, int]) -> frozenset[int]:
    unknown = sorted(name for name in names if name not in table)
    if not unknown:
        return frozenset(table[name] for name in names)
    near = difflib.get_close_matches(unknown[0], table, 1)
    advice = f"Did you mean {near[0]}?" if near else f"Known are {', '.join(table)}."
    raise RelayError(
        Code.INVALID_PARAMETER,
        f"{parameter}: {', '.join(map(repr, unknown))} is unknown",
        advice,
        errors=[Problem(parameter, "unknown value", name) for name in unknown],
    )
