"""The file of a project's breakpoints: read as written, and any damage is noticed."""

from __future__ import annotations

import os
import string
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from debug_relay.protocol.models.breakpoints import BreakpointSpec
from debug_relay.worker.breakpoints.project_file import (
    Damaged,
    SavedByNewer,
    SavedFile,
    decode,
    encode,
    merged,
    path_for,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
MAYBE = st.none() | TEXT
LINES = st.integers(1, 10_000_000)
SPECS = st.builds(
    BreakpointSpec,
    file=TEXT.map(lambda name: f"/nowhere/{name}"),
    line=LINES,
    condition=MAYBE,
    hit_condition=st.none() | st.text(string.digits + "=<>%!", max_size=64),
    log_message=MAYBE,
    enabled=st.booleans(),
)
FUNCTIONS = st.builds(BreakpointSpec, function=TEXT.map(lambda name: name[:512]), condition=MAYBE)
LISTS = st.lists(SPECS | FUNCTIONS, max_size=8)


@given(LISTS, TEXT)
def test_what_is_written_is_read(specs: list[BreakpointSpec], root: str) -> None:
    assert decode(encode(root, specs)) == specs


@given(LISTS, st.data())
def test_no_damage_passes_for_breakpoints(specs: list[BreakpointSpec], data: st.DataObject) -> None:
    whole = encode("/root", specs)
    at = data.draw(st.integers(0, len(whole) - 1))
    kind = data.draw(st.sampled_from(["cut", "flip", "zeros", "doubled"]))
    if kind == "cut":
        damaged = whole[:at]
    elif kind == "flip":
        damaged = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
    elif kind == "zeros":
        damaged = whole[:at] + bytes(len(whole) - at)
    else:
        damaged = whole + whole[at:]
    try:
        read = decode(damaged)
    except (Damaged, SavedByNewer):
        return
    assert read == specs  # white space, or an escape spelt otherwise


@given(st.binary(max_size=200))
def test_noise_is_corrupt(noise: bytes) -> None:
    with pytest.raises(Damaged):
        decode(noise)


@pytest.mark.parametrize("raw", [b"", b"[]", b"null", b"{}", b'{"version": "1"}', b"[" * 100_000])
def test_other_json_is_corrupt(raw: bytes) -> None:
    with pytest.raises(Damaged):
        decode(raw)


def test_a_newer_version_is_told_apart() -> None:
    with pytest.raises(SavedByNewer, match="version 2"):
        decode(b'{"version": 2, "whatever": true}')


@given(LISTS, LISTS, LISTS)
def test_merging(
    kept: list[BreakpointSpec], dropped: list[BreakpointSpec], put: list[BreakpointSpec]
) -> None:
    def place(spec: BreakpointSpec) -> tuple[object, ...]:
        path = os.path.realpath(spec.file) if spec.file else None
        return path, spec.line, spec.function

    after = merged(kept, dropped, put)
    places = [place(spec) for spec in after]
    assert len(set(places)) == len(places)
    last = {place(spec): spec for spec in put}
    gone = {place(spec) for spec in dropped} - last.keys()
    assert not gone.intersection(places)
    assert set(places) == ({place(spec) for spec in kept} - gone) | last.keys()
    assert all(spec == last[place(spec)] for spec in after if place(spec) in last)
    assert merged(after, dropped, put) == after


def spec(line: int, **fields: object) -> BreakpointSpec:
    return BreakpointSpec(file="/nowhere/a.py", line=line, **fields)  # type: ignore[arg-type]


def test_many_writers_lose_nothing(tmp_path: Path) -> None:
    def write(number: int) -> None:
        SavedFile(tmp_path, "/root").change([], [spec(number)])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(1, 61)))
    loaded = SavedFile(tmp_path, "/root").load()
    assert sorted(one.line or 0 for one in loaded) == list(range(1, 61))
    assert [path.name for path in tmp_path.iterdir()] == [path_for(tmp_path, "/root").name]


def test_the_last_one_takes_the_file_with_it(tmp_path: Path) -> None:
    saved = SavedFile(tmp_path, "/root")
    saved.change([], [spec(1), spec(2)])
    saved.change([spec(1, condition="x")], [])
    assert saved.load() == [spec(2)]
    saved.change([spec(2)], [])
    assert list(tmp_path.iterdir()) == []


def test_the_file_is_closed_to_others(tmp_path: Path) -> None:
    SavedFile(tmp_path, "/root").change([], [spec(1)])
    assert path_for(tmp_path, "/root").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kind", ["noise", "directory", "fifo", "huge"])
def test_what_is_no_file_of_ours_is_set_aside(tmp_path: Path, kind: str) -> None:
    path = path_for(tmp_path, "/root")
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.write_bytes(b"\xff{")
        if kind == "huge":
            os.truncate(path, 65 * 1024 * 1024)
    saved = SavedFile(tmp_path, "/root")
    assert saved.load() == []
    saved.change([], [spec(1)])
    assert saved.load() == [spec(1)]
    assert len(list(tmp_path.glob("*.corrupt-*"))) == 1
