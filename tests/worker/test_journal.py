"""What the journal keeps: whole characters, one seq over both rings, few output events."""

from __future__ import annotations

import codecs
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debug_relay.protocol.models.output_events import Event
from debug_relay.protocol.state import State
from debug_relay.supervisor.output.pages import EventPages, OutputPages
from debug_relay.worker.storage.journal import (
    OUTPUT_EVENT_BYTES,
    EventLog,
    OutputEventWriter,
    OutputLog,
    whole_characters,
)

TEXT = "aé€𝄞\nz\u0000ü\n"  # one to four bytes


class Clock:
    """A loop's `time` and `call_later`, moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.due: list[tuple[float, Callable[[], None], Clock.Handle]] = []

    class Handle:
        cancelled = False

        def cancel(self) -> None:
            self.cancelled = True

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, call: Callable[[], None]) -> Clock.Handle:
        handle = Clock.Handle()
        self.due.append((self.now + delay, call, handle))
        return handle

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while ready := [one for one in self.due if one[0] <= end]:
            first = min(ready, key=lambda one: one[0])
            self.due.remove(first)
            self.now = max(self.now, first[0])
            if not first[2].cancelled:
                first[1]()
        self.now = end

    @property
    def waiting(self) -> int:
        return sum(not handle.cancelled for _, _, handle in self.due)


@pytest.fixture
def log(tmp_path: Path):
    log = EventLog(tmp_path / "state", tmp_path / "output", 100)
    yield log
    log.close()


def events(folder: Path, types: set[str] | None = None) -> list[Event]:
    found: list[Event] = []
    pages, cursor = EventPages(folder / "state", folder / "output"), None
    while True:
        page = pages.page(cursor, 100, types, State.RUNNING)
        found += page.events
        cursor = page.next_cursor
        if not page.has_more:
            return found


def printed(path: Path) -> str:
    page = OutputPages(path).page(None, 1000, None)
    assert all(entry.encoding is None for entry in page.entries)
    return "".join(entry.output for entry in page.entries)


@pytest.mark.parametrize("cut", range(len(TEXT.encode()) + 1))
def test_a_character_is_never_cut(tmp_path: Path, cut: int):
    log = OutputLog(tmp_path / "log", 1 << 20)
    data = TEXT.encode()
    log.write("stdout", data[:cut])
    printed(tmp_path / "log")  # whatever is there is whole already
    log.write("stdout", data[cut:])
    assert printed(tmp_path / "log") == TEXT
    log.close()


def test_byte_by_byte_and_two_streams_at_once(tmp_path: Path):
    log = OutputLog(tmp_path / "log", 1 << 20)
    for byte in TEXT.encode():
        log.write("stdout", bytes([byte]))
        log.write("stderr", bytes([byte]))
    pages = OutputPages(tmp_path / "log")
    for category in ("stdout", "stderr"):
        page = pages.page(None, 1000, category)
        assert "".join(entry.output for entry in page.entries) == TEXT
    log.close()


def test_what_is_held_back_comes_at_the_end(tmp_path: Path):
    log = OutputLog(tmp_path / "log", 1 << 20)
    log.write("stdout", b"x\xe2\x82")
    assert printed(tmp_path / "log") == "x"
    log.flush("stdout")
    log.flush("stdout")
    entries = OutputPages(tmp_path / "log").page(None, 10, None).entries
    assert [(e.output, e.encoding) for e in entries] == [("x", None), ("4oI=", "base64")]
    log.close()


@given(data=st.binary(max_size=40) | st.text(max_size=12).map(str.encode))
def test_whole_characters_holds_back_no_more_than_it_must(data: bytes):
    """As the incremental decoder sees it, for text; at most three bytes, for anything."""
    whole = whole_characters(data)
    assert 0 <= len(data) - whole <= 3
    try:
        data.decode()
    except UnicodeDecodeError:
        return
    assert whole == len(data)
    for cut in range(len(data)):
        decoder = codecs.getincrementaldecoder("utf-8")()
        decoder.decode(data[:cut])
        assert cut - whole_characters(data[:cut]) == len(decoder.getstate()[0])


@settings(max_examples=30)
@given(
    text=st.text(alphabet="a€𝄞\n", min_size=1, max_size=40),
    times=st.integers(1, 20_000),
    max_bytes=st.sampled_from([1 << 16, 1 << 20, 4 << 20]),
)
def test_large_writes_are_cut_between_characters(text: str, times: int, max_bytes: int):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        log = OutputLog(path, max_bytes)
        whole = text * times
        log.write("stdout", whole.encode())
        pages, cursor, found = OutputPages(path), None, ""
        while True:
            page = pages.page(cursor, 1000, None)
            assert all(entry.encoding is None for entry in page.entries)
            found += "".join(entry.output for entry in page.entries)
            cursor = page.next_cursor
            if not page.has_more:
                break
        assert whole.endswith(found)
        assert found == whole or len(found.encode()) > max_bytes // 4
        log.close()


def test_where_it_came_from_is_kept_unless_it_is_enormous(tmp_path: Path):
    log = OutputLog(tmp_path / "log", 4096)
    log.write("console", b"one\n", {"source": "/a.py", "line": 3, "pid": 12})
    log.write("console", b"two\n", {"source": "/" + "a" * 5000})
    first, second = OutputPages(tmp_path / "log").page(None, 10, None).entries
    assert (first.source, first.line, first.pid) == ("/a.py", 3, 12)
    assert (second.output, second.source) == ("two\n", None)
    log.close()


def test_cleared_output_is_gone_and_not_dropped(tmp_path: Path):
    log = OutputLog(tmp_path / "log", 1 << 16)
    pages = OutputPages(tmp_path / "log")
    log.write("stdout", b"a\nb\nc\n")
    before = pages.page(None, 1, None)
    log.clear()
    assert pages.page(None, 10, None).entries == []
    assert pages.page(None, 10, None).next_cursor == log.cursor
    log.write("stdout", b"d\n")
    fresh = pages.page(None, 10, None)
    assert ([e.output for e in fresh.entries], fresh.dropped) == (["d\n"], 0)
    assert pages.page(before.next_cursor, 10, None).dropped == 2
    assert [e.output for e in pages.page(log.cursor, 10, None).entries] == []
    log.close()


def test_one_seq_over_both_rings(tmp_path: Path, log: EventLog):
    seqs = [log.append("output" if n % 3 else "thread", {"n": n}) for n in range(50)]
    assert seqs == list(range(1, 51))
    assert log.end == 50
    found = events(tmp_path)
    assert [event.seq for event in found] == seqs
    assert [event.body["n"] for event in found] == list(range(50))


def test_output_events_go_before_any_other(tmp_path: Path, log: EventLog):
    for n in range(60):
        log.append("stopped", {"n": n})
    for _ in range(1000):
        log.append("output", {"output": "x"})
    found = events(tmp_path)
    assert [e.body["n"] for e in found if e.type == "stopped"] == list(range(60))
    assert len(found) == 100
    for n in range(60, 1000):
        log.append("stopped", {"n": n})
    found = events(tmp_path)
    assert [e.body["n"] for e in found if e.type == "stopped"] == list(range(900, 1000))
    assert len(found) <= 110


def test_goes_on_with_a_given_seq_and_tells(tmp_path: Path):
    told: list[int] = []
    log = EventLog(
        tmp_path / "state",
        tmp_path / "output",
        10,
        first_seq=41,
        announce=lambda: told.append(log.end),
    )
    assert (log.end, EventPages(tmp_path / "state", tmp_path / "output").last_seq()) == (40, 40)
    assert log.append("session", {}) == 41
    assert told == [41]
    log.close()


@pytest.mark.parametrize(
    "body",
    [{"a": "\ud800"}, {"\udc80": 1}, {"a": object()}, {"a": "x" * 5_000_000}],
    ids=["surrogate", "key", "object", "large"],
)
def test_any_body_is_an_event(tmp_path: Path, log: EventLog, body: dict):
    log.append("process", body)
    (event,) = events(tmp_path)
    assert event.seq == 1
    assert event.type == "process"


def outputs(folder: Path) -> list[tuple[str, str]]:
    return [(e.body["category"], e.body["output"]) for e in events(folder, {"output"})]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def live(log: EventLog, clock: Clock) -> OutputEventWriter:
    return OutputEventWriter(log, clock.call_later, clock.time)


def test_the_first_output_is_told_at_once(tmp_path: Path, live: OutputEventWriter, clock: Clock):
    live.add("stdout", b"hello\n")
    (event,) = events(tmp_path)
    assert event.body == {
        "category": "stdout",
        "output": "hello\n",
        "source": None,
        "line": None,
        "column": None,
    }
    assert clock.waiting == 0


def test_ten_events_a_second_and_nothing_missing(
    tmp_path: Path, live: OutputEventWriter, clock: Clock
):
    for n in range(1000):
        live.add("stdout", b"%d\n" % n)
        clock.advance(0.001)
    clock.advance(1)
    texts = [text for _, text in outputs(tmp_path)]
    assert len(texts) <= 11
    assert "".join(texts) == "".join(f"{n}\n" for n in range(1000))
    assert clock.waiting == 0


def test_each_category_has_its_own_turn(tmp_path: Path, live: OutputEventWriter, clock: Clock):
    live.add("stdout", b"a")
    live.add("stdout", b"b")
    live.add("stderr", b"c")
    assert outputs(tmp_path) == [("stdout", "a"), ("stderr", "c")]
    clock.advance(0.2)
    assert outputs(tmp_path)[2:] == [("stdout", "b")]


def test_large_output_is_cut_and_says_so(tmp_path: Path, live: OutputEventWriter, clock: Clock):
    live.add("stdout", b"first")
    live.add("stdout", b"x" + "€".encode() * OUTPUT_EVENT_BYTES)
    live.add("stdout", b"never seen")
    clock.advance(0.2)
    live.add("stdout", b"next")
    first, cut, last = (event.body for event in events(tmp_path))
    assert "truncated" not in first
    assert cut["truncated"] is True
    assert len(cut["output"].encode()) <= OUTPUT_EVENT_BYTES
    assert set(cut["output"]) == {"x", "€"}
    clock.advance(0.2)
    assert last["output"] == "next"
    assert "truncated" not in last


def test_flush_keeps_the_order(
    tmp_path: Path, log: EventLog, live: OutputEventWriter, clock: Clock
):
    live.add("stdout", b"one")
    live.add("stdout", b"two\xe2\x82")
    live.flush()
    log.append("stopped", {})
    live.add("stdout", b"\xac")
    live.flush(final=True)
    log.append("terminated", {})
    assert [e.body.get("output", e.type) for e in events(tmp_path)] == [
        "one",
        "two",
        "stopped",
        "€",
        "terminated",
    ]
    assert clock.waiting == 0


def test_bytes_that_are_no_text_are_shown_escaped(tmp_path: Path, live: OutputEventWriter):
    live.add("stdout", b"a\xff\xfe")
    live.flush()
    live.add("stdout", b"\xe2\x82")
    live.flush(final=True)
    assert [text for _, text in outputs(tmp_path)] == ["a\\xff\\xfe", "\\xe2\\x82"]


def test_close_cancels_the_timer(tmp_path: Path, live: OutputEventWriter, clock: Clock):
    live.add("stdout", b"a")
    live.add("stdout", b"b")
    assert clock.waiting == 1
    live.close()
    assert clock.waiting == 0
    assert outputs(tmp_path) == [("stdout", "a")]
