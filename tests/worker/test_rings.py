"""The ring's writer against a plain list, and against disks and files that misbehave."""

from __future__ import annotations

import os
import resource
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debug_relay.protocol.wire.ring_format import (
    HEADER,
    RECORD,
    Place,
    Record,
    pack_header,
    unpack_header,
)
from debug_relay.supervisor.output.ring_reader import Walk, opened
from debug_relay.worker.storage.ring_writer import Ring


def kept(path: Path) -> list[Record]:
    """Every record of the file, as a reader without a cursor finds them."""
    with opened(path) as fd:
        walk = Walk(fd, Place(), None)
        records = []
        while walk.find() is not None:
            records.append(walk.take())
        assert not walk.unfinished
        return records


def put(ring: Ring, payload: bytes, **more: object) -> int:
    return ring.append(payload, **{"time_us": 7, "category": 1, **more})  # type: ignore[arg-type]


_APPENDS = st.tuples(
    st.integers(0, 480), st.integers(1, 5), st.sampled_from([b"", b"m", b"x" * 100])
).filter(lambda one: RECORD + one[0] + len(one[2]) <= 512)
_STEPS = st.lists(_APPENDS | st.just("clear") | st.just("mark"), max_size=80)


@given(steps=_STEPS, capacity=st.integers(1024, 3000), most=st.sampled_from([0, 5, 12, 40]))
def test_a_ring_is_the_end_of_a_list(steps: list, capacity: int, most: int):
    """What is kept is always the newest part, whole, within bounds and no smaller than need be."""
    with tempfile.TemporaryDirectory() as folder:
        ring = Ring(Path(folder) / "ring", capacity, most)
        model: list[tuple[int, int, bytes, bytes]] = []
        number = 0
        for count, step in enumerate(steps):
            if step == "clear":
                ring.clear()
                model.clear()
            elif step == "mark":
                ring.set_mark(count)
            else:
                size, entries, meta = step
                payload = os.urandom(size)
                assert put(ring, payload, entries=entries, meta=meta) == number
                model.append((number, entries, meta, payload))
                number += entries
            found = [
                (r.first_entry, r.entries, r.meta, r.payload) for r in kept(Path(folder) / "ring")
            ]
            assert found == model[len(model) - len(found) :]
            assert ring.next_entry == number
            assert ring.entries == sum(one[1] for one in found)
            assert not most or len(found) <= 1 or ring.entries <= most
            dropped = model[: len(model) - len(found)]
            if model:
                assert found, "the newest record is always kept"
            if dropped and not most:
                size = sum(RECORD + len(one[2]) + len(one[3]) for one in found)
                assert size > capacity - 2 * 512 - RECORD, "more was dropped than need be"
            model = model[len(dropped) :]
        ring.close()


def test_trim_keeps_the_newest(tmp_path: Path):
    ring = Ring(tmp_path / "ring", 4096)
    for number in range(10):
        put(ring, b"%d" % number)
    ring.trim(3)
    assert [r.payload for r in kept(tmp_path / "ring")] == [b"7", b"8", b"9"]
    ring.trim(0)
    assert kept(tmp_path / "ring") == []
    assert ring.entries == 0
    put(ring, b"after")
    assert [r.first_entry for r in kept(tmp_path / "ring")] == [10]
    ring.close()


def test_the_file_is_private_and_sparse(tmp_path: Path):
    ring = Ring(tmp_path / "ring", 50 << 20)
    status = (tmp_path / "ring").stat()
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert status.st_size == HEADER + (50 << 20)
    assert status.st_blocks * 512 < 1 << 20
    ring.close()


def test_again_under_the_same_path_is_another_ring(tmp_path: Path):
    path = tmp_path / "ring"
    first = Ring(path, 4096)
    put(first, b"old")
    old = first.end
    second = Ring(path, 4096)
    assert second.end.epoch != old.epoch
    assert kept(path) == []
    # The first writer, if it still lives, writes to nobody's file.
    put(first, b"ghost")
    assert kept(path) == []
    assert [one.name for one in tmp_path.iterdir()] == ["ring"]
    first.close()
    second.close()


def test_a_link_in_the_way_is_replaced_not_followed(tmp_path: Path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / "ring").symlink_to(victim)
    Ring(tmp_path / "ring", 4096).close()
    assert victim.read_bytes() == b"precious"
    assert not (tmp_path / "ring").is_symlink()


def test_a_full_disk_costs_the_record_and_nothing_else(tmp_path: Path):
    path = tmp_path / "ring"
    capacity = 64 * 1024
    ring = Ring(path, capacity)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Half of the data area can be written; the write that crosses the limit is a short one.
    resource.setrlimit(resource.RLIMIT_FSIZE, (HEADER + capacity // 2 + 100, before[1]))
    try:
        for number in range(200):
            assert put(ring, b"%04d" % number + b"x" * 500) == number
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert ring.lost == 200 - len(kept(path))
    assert [r.first_entry for r in kept(path)] == list(range(200 - ring.lost))
    put(ring, b"room again")
    assert (kept(path)[-1].first_entry, kept(path)[-1].payload) == (200, b"room again")
    ring.close()


def test_what_cannot_fit_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="least"):
        Ring(tmp_path / "small", 10)
    ring = Ring(tmp_path / "ring", 4096)
    with pytest.raises(ValueError, match="in a ring of 4096"):
        put(ring, b"x" * 4096)
    assert ring.head == 0
    ring.close()
    ring.close()
    with pytest.raises(ValueError, match="closed"):
        put(ring, b"too late")


@settings(max_examples=50)
@given(at=st.integers(0, 4095), junk=st.binary(min_size=1, max_size=64))
def test_a_writer_survives_a_damaged_file(at: int, junk: bytes):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ring"
        ring = Ring(path, 4096, max_entries=20)
        for number in range(30):
            put(ring, b"%d" % number * 40)
        with path.open("r+b") as file:
            file.seek(HEADER + at)
            file.write(junk[: 4096 - at])
        for number in range(200):
            put(ring, b"%d" % number * 40)
        assert [r.first_entry for r in kept(path)] == list(range(210, 230))
        ring.close()


def test_the_header_says_what_the_ring_knows(tmp_path: Path):
    ring = Ring(tmp_path / "ring", 4096)
    put(ring, b"one", entries=3)
    ring.set_mark(99)
    header = unpack_header((tmp_path / "ring").read_bytes()[:HEADER])
    assert (header.capacity, header.tail, header.mark) == (4096, 0, 99)
    assert (header.head, header.next_entry) == (ring.head, 3)
    assert header.epoch == ring.end.epoch
    assert unpack_header(pack_header(header)) == header
    ring.close()
