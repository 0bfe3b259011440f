"""Pages of output against rings that are being written, lapped, damaged, replaced or not there."""

from __future__ import annotations

import base64
import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.fields import Cursor
from debug_relay.protocol.models.output_events import OutputPage
from debug_relay.protocol.wire.ring_format import HEADER, Place, output_owner, pack_cursor
from debug_relay.supervisor.output.pages import OutputPages
from debug_relay.worker.storage.journal import OutputLog
from debug_relay.worker.storage.ring_writer import Ring
from tests.kit.ring_race import racing, read_while_written


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "output.ring"


@pytest.fixture
def log(path: Path) -> Iterator[OutputLog]:
    log = OutputLog(path, 1 << 16)
    yield log
    log.close()


def texts(page: OutputPage) -> list[str]:
    return [entry.output for entry in page.entries]


def all_pages(pages: OutputPages, limit: int = 100, category: str | None = None):
    return all_pages_from(pages, None, category, limit)


def all_pages_from(pages: OutputPages, cursor: str | None, category: str | None, limit: int = 100):
    while True:
        page = pages.page(cursor, limit, category)
        yield page
        cursor = page.next_cursor
        if not page.has_more:
            return


# -- output


def test_no_file_is_an_empty_page(path: Path):
    pages = OutputPages(path)
    page = pages.page(None, 10, None)
    assert (page.entries, page.has_more, page.dropped, pages.end()) == ([], False, 0, 0)
    log = OutputLog(path, 1 << 16)
    log.write("stdout", b"hello\n")
    # The cursor from before there was a ring begins at the beginning of the ring.
    assert texts(pages.page(page.next_cursor, 10, None)) == ["hello\n"]
    assert pages.end() == log.end
    log.close()


@pytest.mark.parametrize("content", [b"", b"\0" * 8192, b"DRRING", os.urandom(5000)])
def test_a_file_that_is_no_ring_is_an_empty_page(path: Path, content: bytes):
    path.write_bytes(content)
    page = OutputPages(path).page(None, 10, None)
    assert (page.entries, page.has_more) == ([], False)


def test_entries_are_lines_with_their_ends(path: Path, log: OutputLog):
    log.write("stdout", b"one\r\ntwo\rstill two\n\nfour")
    log.write("stderr", b"\xc3\xa9\n")
    page = OutputPages(path).page(None, 10, None)
    assert texts(page) == ["one\r\n", "two\rstill two\n", "\n", "four", "é\n"]
    assert [e.category for e in page.entries] == ["stdout"] * 4 + ["stderr"]
    assert page.entries[0].timestamp.endswith("Z")
    assert not page.has_more


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_pages_together_are_all_there_is(path: Path, log: OutputLog, limit: int):
    lines = [f"{n}\n" for n in range(50)]
    log.write("stdout", "".join(lines[:20]).encode())
    for line in lines[20:]:
        log.write("stdout", line.encode())
    found = list(all_pages(OutputPages(path), limit))
    assert list(itertools.chain(*map(texts, found))) == lines
    assert len(found) == -(-50 // limit)
    assert all(len(page.entries) == limit for page in found[:-1])


def test_a_cursor_stays_good_while_output_grows(path: Path, log: OutputLog):
    pages = OutputPages(path)
    log.write("stdout", b"a\nb\nc\n")
    first = pages.page(None, 2, None)
    end = pages.page(first.next_cursor, 10, None)
    for n in range(5):
        log.write("stdout", b"%d\n" % n)
        assert texts(pages.page(first.next_cursor, 1, None)) == ["c\n"]
        again = pages.page(end.next_cursor, 100, None)
        assert texts(again) == [f"{i}\n" for i in range(n + 1)]
        assert again.dropped == 0
    nothing = pages.page(again.next_cursor, 10, None)
    assert (nothing.entries, nothing.next_cursor) == ([], again.next_cursor)


def test_dropped_output_is_counted(path: Path, log: OutputLog):
    pages = OutputPages(path)
    log.write("stdout", b"0\n1\n2\n")
    cursor = pages.page(None, 2, None).next_cursor  # in the middle of a record
    for n in range(3, 5000):
        log.write("stdout", b"%d\n" % n)
    page = pages.page(cursor, 10, None)
    first = int(texts(page)[0])
    assert page.dropped == first - 2
    assert pages.page(None, 10, None).dropped == first
    following = pages.page(page.next_cursor, 10, None)
    assert (int(texts(following)[0]), following.dropped) == (first + 10, 0)


def test_a_cursor_of_another_ring_begins_at_the_beginning(path: Path, log: OutputLog):
    log.write("stdout", b"old\n" * 10)
    cursor = OutputPages(path).page(None, 5, None).next_cursor
    path.unlink()  # else the next writer goes on in it
    new = OutputLog(path, 1 << 16)
    new.write("stdout", b"new\n")
    page = OutputPages(path).page(cursor, 10, None)
    assert (texts(page), page.dropped) == (["new\n"], 0)
    new.close()


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "0",
        "garbage",
        "é",
        "====",
        "A" * 200,
        base64.urlsafe_b64encode(b"[[1,2,3]").decode(),
        base64.urlsafe_b64encode(b'[["a",2,3,4]]').decode(),
        base64.urlsafe_b64encode(b"[[1,-2,3,4]]").decode(),
        base64.urlsafe_b64encode(b"[[1,2,3,9223372036854775808]]").decode(),
        pack_cursor("", Place()),
    ],
)
def test_garbage_is_no_cursor(path: Path, cursor: str):
    with pytest.raises(RelayError) as caught:
        OutputPages(path).page(cursor, 10, None)
    assert caught.value.code is Code.INVALID_PARAMETER
    assert caught.value.details["errors"][0].field == "cursor"


def test_cursors_are_short_and_safe_in_a_url():
    most = (1 << 63) - 1
    usual = pack_cursor("output", *[Place((1 << 48) - 1, 1 << 50, 1 << 40, 1 << 16)] * 2)
    longest = get_args(Cursor)[1].max_length
    assert len(usual) < longest
    assert len(pack_cursor("output", Place(most, most, most, most))) < longest
    assert all(c.isascii() and (c.isalnum() or c in "-_") for c in usual)


@settings(max_examples=60)
@given(place=st.builds(Place, *[st.integers(0, 80_000)] * 4), same=st.booleans())
def test_a_forged_cursor_does_no_harm(tmp_path_factory, place: Place, same: bool):
    path = tmp_path_factory.mktemp("forged") / "ring"
    log = OutputLog(path, 1 << 12)
    for n in range(200):
        log.write("stdout", b"%d\n" % n)
    ring = OutputPages(path)
    if same:
        epoch = int.from_bytes(path.read_bytes()[16:24], "little")
        place = Place(epoch, place.position, place.entry, place.offset)
    page = ring.page(pack_cursor(output_owner(path.parent.name), place), 10, None)
    for _ in range(100):
        if not page.has_more:
            break
        page = ring.page(page.next_cursor, 10, None)
    assert not page.has_more
    log.close()


@pytest.mark.parametrize("at", [0, 4, 8, 24, 30, 33, 40])
def test_damage_costs_what_is_damaged(path: Path, at: int):
    """Wherever in a record it is: reading ends, nothing is raised, the rest is counted."""
    ring = Ring(path, 1 << 16)
    positions = []
    for n in range(20):
        positions.append(ring.head)
        ring.append(b"%06d more of it\n" % n, time_us=0, category=0)
    with path.open("r+b") as file:
        file.seek(HEADER + positions[7] + at)
        file.write(b"\xfe\xfe\xfe\xfe")
    found = list(all_pages(OutputPages(path), 3))
    numbers = [int(text[:6]) for page in found for text in texts(page)]
    assert numbers[:7] == list(range(7))
    assert 7 not in numbers
    if at > 3:  # where its length is sound, only the damaged record is lost
        assert numbers[7:] == list(range(8, 20))
    ring.append(b"000020 after\n", time_us=0, category=0)
    page = OutputPages(path).page(found[-1].next_cursor, 10, None)
    assert texts(page) == ["000020 after\n"]
    total = sum(p.dropped for p in found) + page.dropped + len(numbers) + 1
    assert total == 21
    ring.close()


def test_what_was_lost_was_lost_before_a_page(path: Path):
    ring = Ring(path, 1 << 16)
    for n in range(20):
        if n == 7:
            lost = ring.head
        ring.append(b"%06d\n" % n, time_us=0, category=0)
    with path.open("r+b") as file:
        file.seek(HEADER + lost + 8)
        file.write(b"\xfe\xfe\xfe\xfe")
    for category, wanted in ((None, list(range(20))), ("stdout", list(range(20)))):
        first, second = all_pages(OutputPages(path), 100, category)
        assert [int(text) for text in texts(first)] == wanted[:7]
        assert [int(text) for text in texts(second)] == wanted[8:]
        assert (first.dropped, second.dropped) == (0, 1)
    ring.close()


@settings(max_examples=60)
@given(at=st.integers(0, HEADER + 4096), junk=st.binary(min_size=1, max_size=200))
def test_any_damage_is_survived(tmp_path_factory, at: int, junk: bytes):
    path = tmp_path_factory.mktemp("damaged") / "ring"
    log = OutputLog(path, 4096)
    for n in range(100):
        log.write("stdout" if n % 2 else "stderr", b"line %d\n" % n)
    content = bytearray(path.read_bytes())
    content[at : at + len(junk)] = junk
    path.write_bytes(content)
    for category in (None, "stderr"):
        count = sum(1 for _ in itertools.islice(all_pages(OutputPages(path), 10, category), 300))
        assert count < 300
    log.close()


@given(
    writes=st.lists(
        st.tuples(st.sampled_from(["stdout", "stderr"]), st.integers(1, 40), st.booleans()),
        max_size=40,
    ),
    count=st.integers(1, 60),
    seen=st.integers(0, 60),
    category=st.sampled_from([None, "stdout", "stderr"]),
)
def test_the_last_are_those_at_the_end_of_all(tmp_path_factory, writes, count, seen, category):
    path = tmp_path_factory.mktemp("last") / "output.ring"
    log = OutputLog(path, 2048)  # which wraps
    for number, (kind, lines, ends) in enumerate(writes):
        text = "\n".join(f"{number}.{line}" for line in range(lines))
        log.write(kind, (text + "\n" * ends).encode())
    pages = OutputPages(path)
    cursor = pages.page(None, seen, category).next_cursor if seen else None
    rest = [entry for page in all_pages_from(pages, cursor, category) for entry in page.entries]
    page = pages.last(cursor, count, category)
    assert page.entries == rest[-count:]
    assert not page.has_more
    log.close()


def test_the_last_of_a_rare_category_are_found_however_far_back(tmp_path: Path):
    path = tmp_path / "ring"
    log = OutputLog(path, 8 << 20)
    log.write("stderr", b"one\ntwo\nthree\n")
    for _ in range(9000):
        log.write("stdout", b"x\n" * 100)
    page = OutputPages(path).last(None, 2, "stderr")
    assert (texts(page), page.has_more, page.dropped) == (["two\n", "three\n"], False, 0)
    log.write("stderr", b"four\n")
    assert texts(OutputPages(path).page(page.next_cursor, 10, "stderr")) == []  # bounded steps
    assert texts(OutputPages(path).last(page.next_cursor, 9, "stderr")) == ["four\n"]
    log.close()


def test_bytes_that_are_no_text_come_as_base64(path: Path, log: OutputLog):
    log.write("stdout", b"good\n\xff\xfe bad\ngood again\n")
    page = OutputPages(path).page(None, 10, None)
    assert [e.encoding for e in page.entries] == [None, "base64", None]
    assert base64.b64decode(page.entries[1].output) == b"\xff\xfe bad\n"
    assert page.entries[2].output == "good again\n"


def test_category_filter_and_exact_has_more(path: Path, log: OutputLog):
    pages = OutputPages(path)
    for n in range(10):
        log.write("stderr", b"e%d\n" % n)
        log.write("stdout", b"o%d\n" % n)
    page = pages.page(None, 10, "stderr")
    assert texts(page) == [f"e{n}\n" for n in range(10)]
    assert not page.has_more
    page = pages.page(None, 9, "stderr")
    assert page.has_more
    assert texts(pages.page(page.next_cursor, 9, "stderr")) == ["e9\n"]
    assert texts(pages.page(None, 9, "console")) == []
    with pytest.raises(RelayError, match="stdlog"):
        pages.page(None, 9, "stdlog")


def test_a_rare_category_is_found_in_bounded_steps(tmp_path: Path):
    path = tmp_path / "ring"
    log = OutputLog(path, 4 << 20)
    for _ in range(9000):
        log.write("stdout", b"x\n")
    log.write("stderr", b"here\n")
    found = list(all_pages(OutputPages(path), 10, "stderr"))
    assert 3 <= len(found) <= 8
    assert [text for page in found for text in texts(page)] == ["here\n"]
    assert sum(page.dropped for page in found) == 0
    log.close()


def test_a_page_is_bounded_in_bytes(tmp_path: Path):
    path = tmp_path / "ring"
    log = OutputLog(path, 16 << 20)
    for _ in range(10):
        log.write("stdout", b"x" * 300_000 + b"\n")
    found = list(all_pages(OutputPages(path), 1000))
    assert len(found) == 3
    sizes = [sum(map(len, texts(page))) for page in found]
    assert max(sizes) <= (1 << 20) + (64 << 10)
    assert sum(sizes) == 3_000_010
    log.close()


def test_a_page_costs_the_same_in_a_large_ring(tmp_path: Path):
    def best(pages: OutputPages, cursor: str) -> float:
        times = []
        for _ in range(50):
            before = time.perf_counter()
            pages.page(cursor, 20, None)
            times.append(time.perf_counter() - before)
        return min(times)

    costs = []
    for chunks in (10, 600):
        log = OutputLog(tmp_path / f"{chunks}.ring", 50 << 20)
        for _ in range(chunks):
            log.write("stdout", b"some line of output, as long as they are\n" * 1500)
        costs.append(best(OutputPages(tmp_path / f"{chunks}.ring"), log.cursor))
        log.close()
    assert costs[1] < costs[0] * 10 + 0.001


# -- output, while it is written

WRITE_OUTPUT = """
import random, sys
from pathlib import Path
from debug_relay.worker.storage.journal import OutputLog
log = OutputLog(Path(sys.argv[1]), 1 << 15)
print("ready", flush=True)
n, random = 0, random.Random(5)
while n < 60_000:
    lines = []
    for _ in range(random.choice((1, 1, 1, 5, 40))):
        lines.append(b"%d %s\\n" % (n, b"x" * random.choice((0, 3, 70, 400))))
        n += 1
    log.write("stdout", b"".join(lines))
"""


@pytest.mark.parametrize("limit", [1, 50, 1000])
def test_reader_races_writer(path: Path, limit: int):
    writer = racing(WRITE_OUTPUT, path)
    pages = OutputPages(path)
    seen = 0
    for page in read_while_written(writer, lambda cursor: pages.page(cursor, limit, None)):
        numbers = []
        for entry in page.entries:
            number, _, rest = entry.output.partition(" ")
            assert rest.strip("x") == "\n", "a torn entry"
            numbers.append(int(number))
        assert numbers == sorted(set(numbers))
        if numbers:
            assert numbers[0] >= seen
            seen += len(numbers) + page.dropped
            assert numbers[-1] == seen - 1, "an entry is missing and was not counted"
        if limit == 1 and seen < 59_000:
            os.sched_yield()
    assert seen >= 60_000


@pytest.mark.parametrize("lag", [0, 1, 5, 30, 60])
@pytest.mark.parametrize("more", [1, 3, 40, 64, 128, 131])
@pytest.mark.parametrize("first", [True, False], ids=["before the copy", "after the copy"])
def test_a_writer_that_goes_on_at_the_worst_moment(
    path: Path, monkeypatch: pytest.MonkeyPatch, lag: int, more: int, first: bool
):
    """Records of one size: every lap puts sound records at the same places as the lap before."""
    ring = Ring(path, 64 * 64)
    numbers = itertools.count()

    def write(count: int) -> None:
        for number in itertools.islice(numbers, count):
            ring.append(b"%031d\n" % number, time_us=0, category=0)

    write(200)
    pages = OutputPages(path)
    seen = 200 - lag
    place = Place(ring.end.epoch, ring.head - 64 * lag, seen)
    cursor = pack_cursor(output_owner(path.parent.name), place)
    write(lag and 2)
    copied = os.pread
    pending = [more]

    def pread(fd: int, size: int, at: int) -> bytes:
        if at < HEADER or not pending:
            return copied(fd, size, at)
        if first:
            write(pending.pop())
            return copied(fd, size, at)
        block = copied(fd, size, at)
        write(pending.pop())
        return block

    with monkeypatch.context() as patch:
        patch.setattr("debug_relay.supervisor.output.ring_reader.os.pread", pread)
        page = pages.page(cursor, 10, None)
    while True:
        found = [int(text) for text in texts(page)]
        assert found == sorted(set(found))
        if found:
            seen += len(found) + page.dropped
            assert found[-1] == seen - 1
        if not page.has_more:
            break
        page = pages.page(page.next_cursor, 10, None)
    assert seen == next(numbers)
    ring.close()
