"""Batches of streams: whatever was printed, from any cursor, nothing is missed or sent twice."""

from __future__ import annotations

import base64
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from debug_relay.supervisor.output.batches import event_batch, event_numbers, output_batch
from debug_relay.supervisor.output.pages import EventPages, OutputPages
from debug_relay.worker.storage.journal import EventLog, OutputLog

LINES = st.lists(
    st.sampled_from([b"", b"a", b"\xc3\xa9t\xc3\xa9", b"\xff\xfe!", b"\xc3(", b"LONG"]),
    min_size=1,
    max_size=6,
)
WRITES = st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), LINES), max_size=8)


def read(pages: OutputPages, cursor: str | None, category: str | None = None):
    """The bytes of every message from a cursor on, with the cursors behind them."""
    found, dropped = [], 0
    while True:
        batch = output_batch(pages, cursor, category)
        dropped += batch.dropped
        for entry, behind in batch.messages:
            data = entry.output.encode()
            found.append((base64.b64decode(data) if entry.encoding else data, behind))
        cursor = batch.next_cursor
        if not batch.has_more:
            assert batch.behind == 0 or category
            return found, dropped


@settings(max_examples=40)
@given(WRITES, st.sampled_from([None, "stdout", "stderr"]))
def test_from_every_cursor(tmp_path_factory, writes, category):
    path: Path = tmp_path_factory.mktemp("ring") / "output.ring"
    log = OutputLog(path, 1 << 21)
    printed = b""
    for kind, lines in writes:
        data = b"\n".join(lines).replace(b"LONG", b"x" * 70_000)  # more than a batch
        log.write(kind, data)
        printed += data if category in (None, kind) else b""
    log.close()
    pages = OutputPages(path)
    found, dropped = read(pages, None, category)
    assert (b"".join(data for data, _ in found), dropped) == (printed, 0)
    for n, (_, cursor) in enumerate(found):
        rest = b"".join(data for data, _ in read(pages, cursor, category)[0])
        assert rest == b"".join(data for data, _ in found[n + 1 :])
    # A page that begins where a message ended goes on with the next line.
    if len(found) > 1 and category is None:
        [entry, *_] = pages.page(found[0][1], 1, None).entries
        first = base64.b64decode(entry.output) if entry.encoding else entry.output.encode()
        assert found[1][0].startswith(first)


def test_what_the_ring_has_dropped_is_counted_where_it_was(tmp_path: Path):
    path = tmp_path / "output.ring"
    log = OutputLog(path, 1 << 16)
    log.write("stdout", b"seen\n")
    pages = OutputPages(path)
    [(_, cursor)], _ = read(pages, None)
    for n in range(5000):
        log.write("stdout", b"line %d\n" % n)
    found, dropped = read(pages, cursor)
    lines = b"".join(data for data, _ in found).splitlines()
    assert lines[-1] == b"line 4999"
    assert len(lines) + dropped == 5000
    assert 0 < dropped < 5000
    assert output_batch(pages, found[0][1], None).dropped == 0
    log.close()


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from(["output", "stopped", "thread"]), max_size=30),
    st.sampled_from([None, "stopped", "output,thread"]),
)
def test_events_from_every_cursor(tmp_path_factory, kinds, types):
    folder: Path = tmp_path_factory.mktemp("rings")
    log = EventLog(folder / "state", folder / "outputs", 1000)
    for n, kind in enumerate(kinds):
        log.append(kind, {"n": n})
    log.close()
    pages, wanted = EventPages(folder / "state", folder / "outputs"), event_numbers(types)
    batch = event_batch(pages, None, wanted, len(kinds))
    bodies = [msgspec.json.decode(event.payload)["body"]["n"] for event, _ in batch.messages]
    shown = [n for n, kind in enumerate(kinds) if types is None or kind in types.split(",")]
    assert (bodies, batch.has_more, batch.dropped) == (shown, False, 0)
    for at, (_, cursor) in enumerate(batch.messages):
        rest = event_batch(pages, cursor, wanted, len(kinds)).messages
        assert [event.seq for event, _ in rest] == [n + 1 for n in shown[at + 1 :]]
    # No event is sent before the state that belongs to it.
    early = event_batch(pages, None, None, len(kinds) // 2).messages
    assert [event.seq for event, _ in early] == list(range(1, len(kinds) // 2 + 1))
