"""The records that a session writes for its readers: the program's output, and events.

It defines the records in the session's three rings: program output, state events and output events.
It must not know who reads them, nor how a program's pipes are read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from debug_relay.protocol.models.output_events import (
    CATEGORY_NUMBERS,
    EVENT_NUMBERS,
    Category,
    EventType,
    seq_meta,
)
from debug_relay.protocol.wire.envelope import timestamp
from debug_relay.protocol.wire.ring_format import Place, events_owner, output_owner, pack_cursor
from debug_relay.worker.storage.ring_writer import Ring

# One record of output: a page reads whole records, so small records keep it fast.
_RECORD_BYTES: Final = 64 * 1024
_OUTPUT_LEAST_BYTES: Final = 4096  # The smallest ring of output.
_EVENT_BYTES: Final = 2048  # The room that is reserved for one event.
_EVENTS_LEAST_BYTES: Final = 4 << 20  # The smallest ring of events.
_EVENTS_MOST_BYTES: Final = 16 << 20  # The largest ring of events.
OUTPUT_EVENT_BYTES: Final = 64 * 1024  # The text of one output event.
OUTPUT_EVENT_SECONDS: Final = 0.1  # The shortest time between two output events of one writer.
_MOST_WRITERS: Final = 64  # Writers whose output is gathered; beyond them idle ones are forgotten.
_Writer = tuple[Category, int | None]  # the kind of output, and the child's pid

# Fields with these values are left out of an event.
_EMPTY: Final[tuple[Any, ...]] = (None, [], {})
# Fields that are shown even if empty: a seed document names them, or the emptiness tells something.
_NAMED: Final = frozenset([
    "thread_id", "exit_code", "text", "hit_breakpoint_ids", "source", "line", "column",
    "before", "after", "lease",
])  # fmt: skip

_encode: Final = msgspec.json.Encoder().encode


class OutputLog:
    """The program's output as bytes; the oldest is dropped first."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._ring = Ring(path, max(max_bytes, _OUTPUT_LEAST_BYTES), goes_on=True)
        self._owner = output_owner(path.parent.name)
        self._piece = min(_RECORD_BYTES, self._ring.capacity // 4)
        self._meta_most = min(self._ring.capacity // 8, 0xFFFF)
        # Per writer, the beginning of a character whose rest has not been read yet.
        self._held: dict[_Writer, bytes] = {}

    @property
    def end(self) -> int:
        return self._ring.head

    @property
    def lost(self) -> int:
        """Lines that could not be written to a full disk."""
        return self._ring.lost

    @property
    def place(self) -> Place:
        """The place of the output that follows from now on."""
        return self._ring.end

    @property
    def cursor(self) -> str:
        """A cursor for a reader that wants only the output from now on."""
        return pack_cursor(self._owner, self.place)

    def write(self, category: Category, data: bytes, meta: dict[str, Any] | None = None) -> None:
        writer = category, meta.get("pid") if meta else None
        data = self._held.pop(writer, b"") + data
        whole = whole_characters(data)
        if whole < len(data):
            self._held[writer] = data[whole:]
            data = data[:whole]
        self._append(category, data, meta)

    def flush(self, category: Category) -> None:
        """No more output will come: write incomplete characters as they are."""
        for writer in [one for one in self._held if one[0] == category]:
            pid = writer[1]
            self._append(category, self._held.pop(writer), None if pid is None else {"pid": pid})

    def clear(self) -> None:
        """Forget the output so far. The mark shows readers that this is not a loss."""
        self._ring.set_mark(self._ring.next_entry)
        self._ring.clear()

    def close(self) -> None:
        self._ring.close()

    def _append(self, category: Category, data: bytes, meta: dict[str, Any] | None) -> None:
        now = time.time_ns() // 1000
        raw_meta = _encode_loosely(meta) if meta else b""
        if len(raw_meta) > self._meta_most:
            raw_meta = b""  # the origin matters less than the text
        at = 0
        while at < len(data):
            piece = data if len(data) <= self._piece else _piece(data, at, self._piece)
            lines = piece.count(b"\n") + (not piece.endswith(b"\n"))
            self._ring.append(
                piece,
                time_us=now,
                category=CATEGORY_NUMBERS[category],
                entries=lines,
                meta=raw_meta,
            )
            at += len(piece)


class EventLog:
    """Events, numbered from 1 without a gap; output events are dropped before any other."""

    def __init__(
        self,
        state_path: Path,
        output_path: Path,
        max_events: int,
        *,
        first_seq: int = 1,
        announce: Callable[[], None] | None = None,
    ) -> None:
        capacity = min(max(max_events * _EVENT_BYTES, _EVENTS_LEAST_BYTES), _EVENTS_MOST_BYTES)
        self._owner = events_owner(state_path.parent.name)
        self._max_events = max_events
        # State events leave output events at least this much room, or a live reader would get none.
        self._output_least = max(max_events // 10, 1)
        self._seq = first_seq - 1
        self._announce = announce
        # Called with each event, in the order of their numbers.
        self.heard_by: Callable[[EventType, Mapping[str, Any]], None] | None = None
        # We create the state ring last: if it exists, both exist.
        self._output = Ring(output_path, capacity, goes_on=True)
        try:
            self._state = Ring(state_path, capacity, max_events, goes_on=True)
        except BaseException:
            self._output.close()
            raise
        self._state.set_mark(self._seq)
        # The seq from which both rings' entries count: this plus their sum is the last seq.
        if self._output.is_new:
            self._output.set_mark(self._seq)

    @property
    def end(self) -> int:
        """The last seq."""
        return self._seq

    @property
    def cursor(self) -> str:
        """A cursor for a reader that wants only events from now on."""
        return pack_cursor(self._owner, self._state.end, self._output.end)

    @property
    def lost(self) -> int:
        """Events that could not be written to a full disk."""
        return self._state.lost + self._output.lost

    def append(self, type: EventType, body: Mapping[str, Any]) -> int:
        """Records one event and announces it; returns its seq."""
        ring = self._output if type == "output" else self._state
        seq = self._seq + 1
        ring.append(
            self._payload(seq, type, _without_empty(body)),
            time_us=time.time_ns() // 1000,
            category=EVENT_NUMBERS[type],
            meta=seq_meta(seq),
        )
        self._seq = seq
        room = self._max_events - self._state.entries
        self._output.trim(max(room, self._output_least))
        # A reader reads the mark first, so it never sees this event without the earlier ones.
        self._state.set_mark(seq)
        if self._announce is not None:
            self._announce()
        if self.heard_by is not None:
            self.heard_by(type, body)
        return seq

    def close(self) -> None:
        self._state.close()
        self._output.close()

    def _payload(self, seq: int, type: EventType, body: Mapping[str, Any]) -> bytes:
        event = {"seq": seq, "type": type, "timestamp": timestamp(), "body": body}
        payload = _encode_loosely(event)
        if len(payload) > self._state.capacity // 4:
            # The event itself matters more than its body.
            payload = _encode({**event, "body": {"truncated": True, "bytes": len(payload)}})
        return payload


def _without_empty(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value not in _EMPTY or name in _NAMED}


class Timer(Protocol):
    def cancel(self) -> None: ...


Schedule = Callable[[float, Callable[[], None]], Timer]


class _Pending:
    """The output of one writer since its last event."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.cut = False
        self.last = float("-inf")

    def add(self, data: bytes) -> None:
        room = OUTPUT_EVENT_BYTES - len(self.data)
        if self.cut or len(data) > room:
            # After a cut, everything is cut: the event contains one unbroken beginning.
            data = b"" if self.cut else data[:room]
            self.cut = True
        self.data += data

    def take(self, final: bool) -> tuple[str, bool]:
        """The text so far and whether it was cut; an incomplete character stays for the
        next event.
        """
        data = bytes(self.data)
        whole = len(data) if final and not self.cut else whole_characters(data)
        # After a cut, the rest of the last character is lost: waiting for it would garble the next
        # text.
        rest = b"" if self.cut else data[whole:]
        taken = data[:whole].decode("utf-8", "backslashreplace"), self.cut
        self.data, self.cut = bytearray(rest), False
        return taken


class OutputEventWriter:
    """Output as events for live readers: few and small, however much the program prints.

    `schedule` and `now` are an event loop's `call_later` and `time`.
    """

    def __init__(self, log: EventLog, schedule: Schedule, now: Callable[[], float]) -> None:
        self._log = log
        self._schedule = schedule
        self._now = now
        self._pending: dict[_Writer, _Pending] = {}
        self._timer: Timer | None = None

    def add(self, category: Category, data: bytes, pid: int | None = None) -> None:
        """Adds output; `pid` is set for a child process."""
        writer = category, pid
        if len(self._pending) > _MOST_WRITERS:
            self._forget_old()
        pending = self._pending.setdefault(writer, _Pending())
        pending.add(data)
        wait = pending.last + OUTPUT_EVENT_SECONDS - self._now()
        if wait <= 0:
            self._emit(writer, final=False)
        elif self._timer is None:
            self._timer = self._schedule(wait, self._emit_due)

    def flush(self, final: bool = False) -> None:
        """Emits everything there is now, so that a following event really comes after it.

        An incomplete character waits for its rest, unless this is `final`.
        """
        for writer in self._pending:
            self._emit(writer, final)
        self._cancel()

    def close(self) -> None:
        self._cancel()
        self._pending.clear()

    def _emit_due(self) -> None:
        self._timer = None
        now = self._now()
        waits = []
        for writer, pending in self._pending.items():
            if not pending.data:
                continue
            wait = pending.last + OUTPUT_EVENT_SECONDS - now
            if wait > 0:
                waits.append(wait)
            else:
                self._emit(writer, final=False)
        if waits:
            self._timer = self._schedule(min(waits), self._emit_due)

    def _forget_old(self) -> None:
        """Drops writers without pending data: most of many children have ended."""
        late = self._now() - OUTPUT_EVENT_SECONDS
        for writer, pending in list(self._pending.items()):
            if not pending.data and pending.last < late:
                del self._pending[writer]

    def _emit(self, writer: _Writer, final: bool) -> None:
        pending = self._pending[writer]
        text, cut = pending.take(final)
        if not text:
            return
        pending.last = self._now()
        body: dict[str, Any] = {
            "category": writer[0],
            "output": text,
            "source": None,
            "line": None,
            "column": None,
        }
        if writer[1] is not None:
            body["pid"] = writer[1]
        if cut:
            body["truncated"] = True
        self._log.append("output", body)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def whole_characters(data: bytes) -> int:
    """The number of bytes before a UTF-8 character that is incomplete at the end."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        needed = 2 if 0xC2 <= byte < 0xE0 else 3 if 0xE0 <= byte < 0xF0 else 4
        return len(data) - back if 0xC2 <= byte < 0xF5 and needed > back else len(data)
    return len(data)


def _piece(data: bytes, at: int, size: int) -> bytes:
    """At most `size` bytes from `at`, up to the end of a line or else of a character."""
    if len(data) - at <= size:
        return data[at:]
    line = data.rfind(b"\n", at + size // 2, at + size)
    if line >= 0:
        return data[at : line + 1]
    piece = data[at : at + size]
    return piece[: whole_characters(piece)]


def _encode_loosely(value: dict[str, Any]) -> bytes:
    """Encodes as JSON any value of a program: lone surrogates and unknown objects too."""
    try:
        return _encode(value)
    except (TypeError, ValueError):
        return json.dumps(value, ensure_ascii=False, default=repr).encode("utf-8", "replace")
