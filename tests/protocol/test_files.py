"""Files that others have prepared: nothing waits, nothing fills the memory."""

from __future__ import annotations

import os
import resource
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from debug_relay.protocol.system.files import (
    FileRefused,
    open_regular,
    read_bounded,
    replacing,
    write_whole,
)


@pytest.fixture
def place(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "zeros").symlink_to("/dev/zero")
    (tmp_path / "terminal").symlink_to("/dev/ptmx")
    (tmp_path / "text").write_bytes(b"0123456789")
    (tmp_path / "link").symlink_to("text")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "reason", "words"),
    [
        ("fifo", "not_a_file", "is not a regular file"),
        ("zeros", "not_a_file", "is not a regular file"),
        ("terminal", "not_a_file", "is not a regular file"),
        ("folder", "directory", "is a directory"),
        ("huge", "too_large", "is larger than 100 bytes"),
    ],
)
def test_what_is_refused_is_refused_at_once_and_in_words(place, name, reason, words):
    before, memory = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    open_before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(FileRefused) as refused:
        read_bounded(place / name, 100)
    assert (refused.value.reason, refused.value.words) == (reason, words)
    assert refused.value.filename == str(place / name)
    assert time.monotonic() - before < 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 10_000
    assert set(os.listdir("/proc/self/fd")) == open_before


def test_a_socket_and_what_is_missing_are_errors_of_the_system(place, monkeypatch):
    monkeypatch.chdir(place)  # names of sockets are short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        with pytest.raises(OSError):
            read_bounded("socket", 100)
    with pytest.raises(FileNotFoundError):
        read_bounded(place / "missing", 100)


@pytest.mark.parametrize("name", ["text", "link"])
def test_the_bound_is_the_last_length_that_is_read(place, name):
    assert read_bounded(place / name, 10) == b"0123456789"
    with pytest.raises(FileRefused, match="larger than 9 bytes"):
        read_bounded(place / name, 9)


def test_a_file_that_does_not_know_its_size_is_read_to_the_bound():
    assert os.stat("/proc/self/status").st_size == 0
    assert read_bounded("/proc/self/status", 1 << 16).startswith(b"Name:")
    with pytest.raises(FileRefused, match="larger than 10 bytes"):
        read_bounded("/proc/self/status", 10)


def test_it_opens_for_writing_too(place):
    with open(place / "log", "ab", opener=open_regular) as file:
        file.write(b"a line\n")
    assert (place / "log").stat().st_mode & 0o777 == 0o600
    assert read_bounded(place / "log", 100) == b"a line\n"
    for name in ("fifo", "zeros"):
        with pytest.raises(OSError):
            open_regular(place / name, os.O_WRONLY | os.O_APPEND)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    write_whole(path, b"old")
    with replacing(path, fsync=True) as fd:
        os.write(fd, b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            write_whole(path, b"x" * 11)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["file"]


def test_writers_of_one_file_do_not_mix(tmp_path):
    contents = [str(number).encode() * 100_000 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda each: write_whole(tmp_path / "file", each), contents))
    assert (tmp_path / "file").read_bytes() in contents
    assert os.listdir(tmp_path) == ["file"]
