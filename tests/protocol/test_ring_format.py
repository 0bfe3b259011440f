"""The ring's bytes: what goes in comes out, what was touched is noticed, cursors are opaque."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from debug_relay.protocol.models.output_events import CATEGORY_NUMBERS, EVENT_NUMBERS, PRINTED
from debug_relay.protocol.refusals import OUTPUT_WITHHELD
from debug_relay.protocol.rendering import output_withheld
from debug_relay.protocol.wire.ring_format import (
    HEADER,
    MAGIC,
    PAD,
    RECORD,
    ForeignCursor,
    Place,
    RingCorrupt,
    RingHeader,
    pack_cursor,
    pack_header,
    pack_record,
    pad_record,
    record_facts,
    record_length,
    unpack_cursor,
    unpack_header,
    unpack_record,
)

U64 = st.integers(0, (1 << 64) - 1)
NUMBER = st.integers(0, (1 << 63) - 1)
PLACES = st.builds(Place, NUMBER, NUMBER, NUMBER, NUMBER)


@given(header=st.builds(RingHeader, *[U64] * 7))
def test_header_round_trip(header: RingHeader):
    raw = pack_header(header)
    assert len(raw) == HEADER
    assert unpack_header(raw) == header


@pytest.mark.parametrize("raw", [b"", MAGIC, b"\0" * HEADER, b"X" * HEADER])
def test_what_is_no_header(raw: bytes):
    with pytest.raises(RingCorrupt):
        unpack_header(raw)


@given(
    first=U64,
    entries=st.integers(0, (1 << 32) - 1),
    time_us=U64,
    category=st.integers(0, PAD - 1),
    flags=st.integers(0, 255),
    payload=st.binary(max_size=300),
    meta=st.binary(max_size=50),
    after=st.binary(max_size=10),
)
def test_record_round_trip(
    first: int,
    entries: int,
    time_us: int,
    category: int,
    flags: int,
    payload: bytes,
    meta: bytes,
    after: bytes,
):
    raw = pack_record(first, entries, time_us, category, payload, meta, flags)
    record = unpack_record(raw + after, 1000)
    assert (record.first_entry, record.entries, record.time_us) == (first, entries, time_us)
    assert (record.category, record.flags) == (category, flags)
    assert (record.meta, record.payload) == (meta, payload)
    assert record.end == 1000 + len(raw) == 1000 + record_length(raw)
    assert record_facts(b"..." + raw, 3) == (len(raw), category, first, entries)


@given(payload=st.binary(max_size=60), data=st.data())
def test_any_changed_byte_is_noticed(payload: bytes, data: st.DataObject):
    raw = bytearray(pack_record(5, 1, 2, 3, payload, b"meta"))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(RingCorrupt):
        unpack_record(bytes(raw), 0)


@given(cut=st.integers(0, RECORD + 9))
def test_a_cut_record_is_noticed(cut: int):
    with pytest.raises(RingCorrupt):
        unpack_record(pack_record(1, 1, 1, 1, b"ten bytes.")[:cut], 0)


@given(room=st.integers(RECORD, 1 << 20))
def test_a_pad_fills_its_room(room: int):
    length, category, _, _ = record_facts(pad_record(room), 0)
    assert (length, category) == (room, PAD)


@given(places=st.lists(PLACES, max_size=3))
def test_cursor_round_trip(places: list[Place]):
    cursor = pack_cursor("output of a", *places)
    assert unpack_cursor("output of a", cursor, len(places)) == tuple(places)
    with pytest.raises(ValueError):
        unpack_cursor("output of a", cursor, len(places) + 1)
    for other in ("output of b", "events of a"):
        with pytest.raises(ForeignCursor):
            unpack_cursor(other, cursor, len(places))


@given(cursor=st.text(max_size=60))
def test_any_text_is_a_cursor_or_a_value_error(cursor: str):
    try:
        places = unpack_cursor("output of a", cursor, 1)
    except ValueError:
        return
    assert len(places) == 1


def test_a_number_that_is_on_disk_keeps_its_name():
    """A supervisor reads the ring files of older workers: new names are appended."""
    assert list(CATEGORY_NUMBERS)[:3] == ["stdout", "stderr", "console"]
    assert list(EVENT_NUMBERS)[:12] == [
        "stopped", "continued", "terminated", "output", "breakpoint", "thread", "module",
        "session", "subprocess", "input", "process", "watch",
    ]  # fmt: skip


def test_what_was_printed_is_left_out_of_each_type_of_event():
    assert PRINTED.keys() == EVENT_NUMBERS.keys()
    body = {"output": "secret", "prompt": "secret", "pid": 1}
    for type, printed in PRINTED.items():
        left = output_withheld.in_event(type, body)
        note = {"note": OUTPUT_WITHHELD} if printed else {}
        assert left == body | dict.fromkeys(printed, "") | note
    # Of a later version of the relay: nobody here knows what it holds.
    assert output_withheld.in_event("unheard of", body) == {"note": OUTPUT_WITHHELD}
