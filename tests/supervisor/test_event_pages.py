"""Pages of events against rings that are being written, lapped, damaged or not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.state import State
from debug_relay.protocol.wire.ring_format import Place, events_owner, output_owner, pack_cursor
from debug_relay.supervisor.output.pages import EventPages
from debug_relay.worker.storage.journal import EventLog
from tests.kit.ring_race import racing, read_while_written


def event_pages(folder: Path) -> EventPages:
    return EventPages(folder / "state", folder / "outputs")


def test_no_files_are_an_empty_page(tmp_path: Path):
    pages = event_pages(tmp_path)
    page = pages.page(None, 10, None, State.CREATED)
    assert (page.events, page.has_more, page.session_status) == ([], False, State.CREATED)
    assert pages.last_seq() == 0
    log = EventLog(tmp_path / "state", tmp_path / "outputs", 10)
    log.append("session", {})
    page = pages.page(page.next_cursor, 10, None, State.RUNNING)
    assert [event.seq for event in page.events] == [1]
    assert pages.last_seq() == 1
    log.close()


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_events_are_merged_by_seq(tmp_path: Path, limit: int):
    log = EventLog(tmp_path / "state", tmp_path / "outputs", 1000)
    for n in range(40):
        log.append("output" if n % 3 == 1 else "thread", {"n": n})
    pages, cursor, found = event_pages(tmp_path), None, []
    while True:
        page = pages.page(cursor, limit, None, State.RUNNING)
        found += page.events
        cursor = page.next_cursor
        if not page.has_more:
            break
    assert [event.seq for event in found] == list(range(1, 41))
    assert [event.body["n"] for event in found] == list(range(40))
    assert pages.page(cursor, limit, None, State.RUNNING).events == []
    log.append("stopped", {})
    assert pages.page(cursor, limit, None, State.RUNNING).events[0].seq == 41
    log.close()


def test_nothing_is_shown_before_it_is_published(tmp_path: Path):
    """A writer that was killed between record and mark."""
    log = EventLog(tmp_path / "state", tmp_path / "outputs", 1000)
    log.append("thread", {})
    log.append("output", {})
    mark = 40
    with (tmp_path / "state").open("r+b") as file:
        file.seek(mark)
        file.write((1).to_bytes(8, "little"))
    page = event_pages(tmp_path).page(None, 10, None, State.RUNNING)
    assert [event.seq for event in page.events] == [1]
    assert not page.has_more
    log.append("thread", {})
    page = event_pages(tmp_path).page(page.next_cursor, 10, None, State.RUNNING)
    assert [event.seq for event in page.events] == [2, 3]
    log.close()


def test_types_filter(tmp_path: Path):
    log = EventLog(tmp_path / "state", tmp_path / "outputs", 1000)
    for _ in range(10):
        for type in ("thread", "output", "stopped"):
            log.append(type, {})
    pages = event_pages(tmp_path)
    page = pages.page(None, 10, {"stopped"}, State.PAUSED)
    assert [event.seq for event in page.events] == list(range(3, 31, 3))
    assert not page.has_more
    page = pages.page(None, 4, {"stopped", "output"}, State.PAUSED)
    assert [event.seq for event in page.events] == [2, 3, 5, 6]
    assert page.has_more
    page = pages.page(page.next_cursor, 100, {"output"}, State.PAUSED)
    assert [event.seq for event in page.events] == list(range(8, 31, 3))
    assert not pages.page(page.next_cursor, 100, {"output"}, State.PAUSED).has_more
    with pytest.raises(RelayError, match="stoped") as caught:
        pages.page(None, 4, {"stoped"}, State.PAUSED)
    assert caught.value.details["suggestion"] == "Did you mean stopped?"
    log.close()


def test_dropped_events_are_counted_as_the_filter_sees_them(tmp_path: Path):
    log = EventLog(tmp_path / "state", tmp_path / "outputs", 20)
    pages = event_pages(tmp_path)
    log.append("stopped", {})
    cursor = pages.page(None, 10, None, State.RUNNING).next_cursor
    for _ in range(100):
        log.append("output", {})
    log.append("stopped", {})
    page = pages.page(cursor, 100, None, State.RUNNING)
    assert page.dropped + len(page.events) == 101
    assert page.dropped > 0
    page = pages.page(cursor, 100, {"stopped"}, State.RUNNING)
    assert (len(page.events), page.dropped) == (1, 0)
    log.close()


def test_events_of_another_worker_begin_at_the_beginning(tmp_path: Path):
    log = EventLog(tmp_path / "state", tmp_path / "outputs", 20)
    for _ in range(5):
        log.append("thread", {})
    cursor = event_pages(tmp_path).page(None, 10, None, State.RUNNING).next_cursor
    log.close()
    log = EventLog(tmp_path / "state", tmp_path / "outputs", 20, first_seq=6)
    log.append("session", {})
    page = event_pages(tmp_path).page(cursor, 10, None, State.RUNNING)
    assert [event.seq for event in page.events] == [6]
    log.close()


def test_an_output_cursor_is_no_event_cursor(tmp_path: Path):
    folder = tmp_path.name
    for owner in (output_owner(folder), events_owner("another")):
        with pytest.raises(RelayError) as caught:
            event_pages(tmp_path).page(pack_cursor(owner, Place()), 10, None, State.RUNNING)
        assert caught.value.code is Code.INVALID_PARAMETER
        assert "another session or endpoint" in caught.value.message


def test_an_event_that_cannot_be_read_is_counted(tmp_path: Path):
    log = EventLog(tmp_path / "state", tmp_path / "outputs", 20)
    log.append("thread", {})
    log.append("thread", {})
    with (tmp_path / "state").open("r+b") as file:
        content = file.read()
        file.seek(content.index(b"thread"))
        file.write(b"threat")
    page = event_pages(tmp_path).page(None, 10, None, State.RUNNING)
    assert ([event.seq for event in page.events], page.dropped) == ([2], 1)
    log.close()


def test_an_event_page_is_bounded_in_bytes(tmp_path: Path):
    log = EventLog(tmp_path / "state", tmp_path / "outputs", 1000)
    for _ in range(40):
        log.append("output", {"output": "x" * 64_000})
    page = event_pages(tmp_path).page(None, 1000, None, State.RUNNING)
    assert 16 <= len(page.events) <= 18
    assert page.has_more
    log.close()


WRITE_EVENTS = """
import random, sys
from pathlib import Path
from debug_relay.worker.storage.journal import EventLog
log = EventLog(Path(sys.argv[1]), Path(sys.argv[2]), 200)
print("ready", flush=True)
random = random.Random(7)
for n in range(1, 30_001):
    type = random.choice(("output", "output", "thread", "stopped"))
    assert log.append(type, {"n": n, "text": "x" * random.choice((0, 10, 2000))}) == n
"""


def test_event_reader_races_writer(tmp_path: Path):
    writer = racing(WRITE_EVENTS, tmp_path / "state", tmp_path / "outputs")
    pages = event_pages(tmp_path)
    seen = dropped = last = 0
    for page in read_while_written(
        writer, lambda cursor: pages.page(cursor, 40, None, State.RUNNING)
    ):
        for event in page.events:
            assert event.seq > last
            assert event.seq == event.body["n"]
            last = event.seq
        seen += len(page.events)
        dropped += page.dropped
        if page.events and not page.has_more:
            assert pages.last_seq() >= last
    assert last == 30_000
    assert seen + dropped == 30_000
