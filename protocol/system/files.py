"""Opens files that others may have prepared, and replaces files of our own as a whole.

A path from a caller, a project or a disk may name a FIFO, a device, a terminal or a file without
end. Opening one may block for ever, and reading it may fill the memory. Here nothing blocks, only
regular files are accepted, and every read has a bound. A file of our own is written under another
name first, so that its readers never see half of it. Supervisor and worker both need this, and
neither may import the other.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal

Reason = Literal["directory", "not_a_file", "too_large"]
# O_NOCTTY: opening a terminal must not make it the controlling terminal of our process.
_AT_ONCE: Final = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CHUNK_BYTES: Final = 1 << 20  # One read of a file.
_UNFINISHED: Final = ".unfinished"
# A file that its writer has not finished by then is removed at a relay's start.
_ABANDONED_SECONDS: Final = 600.0
_ERRNO: Final[dict[Reason, int]] = {
    "directory": errno.EISDIR,
    "not_a_file": errno.EINVAL,
    "too_large": errno.EFBIG,
}


class FileRefused(OSError):
    """The file exists but must not be read. `words` say why and follow its path in messages."""

    def __init__(self, path: str, reason: Reason, words: str) -> None:
        super().__init__(_ERRNO[reason], words, path)
        self.reason: Final = reason
        self.words: Final = words


def open_regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """A descriptor of a regular file. Usable as `open(…, opener=open_regular)` for reading and
    writing.

    It follows symbolic links. A file that is not regular raises FileRefused; other failures raise
    OSError.
    """
    fd = os.open(path, flags | _AT_ONCE, mode)
    try:
        # We check the open descriptor, because the path may lead elsewhere by the next call.
        require_regular(path, os.fstat(fd))
    except BaseException:
        os.close(fd)
        raise
    return fd


def require_regular(
    path: str | os.PathLike[str], facts: os.stat_result, most: int | None = None
) -> None:
    """Raises FileRefused if `facts` describe no regular file or one of more than `most` bytes."""
    if stat.S_ISDIR(facts.st_mode):
        raise FileRefused(os.fspath(path), "directory", "is a directory")
    if not stat.S_ISREG(facts.st_mode):
        raise FileRefused(os.fspath(path), "not_a_file", "is not a regular file")
    if most is not None and facts.st_size > most:
        raise _too_large(path, most)


def read_bounded(path: str | os.PathLike[str], most: int) -> bytes:
    """The whole file; raises FileRefused if it holds more than `most` bytes."""
    data = bytearray()
    with open(open_regular(path), "rb", buffering=0) as file:
        require_regular(path, os.fstat(file.fileno()), most)
        # We read to the end, not to the size: files in /proc report none, and others grow.
        while chunk := file.read(min(most + 1 - len(data), _CHUNK_BYTES)):
            data += chunk
    if len(data) > most:
        raise _too_large(path, most)
    return bytes(data)


def _too_large(path: str | os.PathLike[str], most: int) -> FileRefused:
    return FileRefused(os.fspath(path), "too_large", f"is larger than {most} bytes")


@contextmanager
def replacing(path: Path, *, fsync: bool) -> Iterator[int]:
    """A descriptor of a new file, mode 0600, which gets the name `path` when the block ends.

    Readers see the old file or the new one, each whole; with `fsync` also after a power cut. If
    the block fails, the old file stays. A symbolic link at `path` is replaced, not followed.
    """
    # Each writer has a name of its own: several processes may replace one file at the same time.
    fresh = path.with_name(f".{path.name}.{os.urandom(4).hex()}{_UNFINISHED}")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(fresh, flags, 0o600)
    try:
        yield fd
        if fsync:
            os.fsync(fd)
        os.replace(fresh, path)
    except BaseException:
        with suppress(OSError):  # the error of the write itself is raised
            fresh.unlink()
        raise
    finally:
        os.close(fd)
    if fsync:
        sync_directory(path.parent)


def write_whole(path: Path, content: bytes, *, fsync: bool = True) -> None:
    """Replaces the file by one with this content."""
    with replacing(path, fsync=fsync) as fd, open(fd, "wb", closefd=False) as file:
        file.write(content)


def sync_directory(path: Path) -> None:
    """Syncs a directory: a new name is on disk only after that."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def remove_unfinished(folder: Path) -> None:
    """Removes files of writers that were killed inside `replacing`."""
    for path in folder.glob(f".*{_UNFINISHED}"):
        with suppress(OSError):  # such a file costs a little room, nothing else
            # A young one may belong to a worker that is writing now.
            if time.time() - path.lstat().st_mtime > _ABANDONED_SECONDS:
                path.unlink()


def move_aside(path: str | os.PathLike[str]) -> str:
    """Renames whatever is at `path`, so that a person can examine it; returns the new name."""
    base = f"{os.fspath(path)}.corrupt-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    aside, number = base, 1
    while os.path.lexists(aside):
        aside, number = f"{base}-{number}", number + 1
    os.rename(path, aside)
    return aside
