"""Opens files that others may have prepared: a project's, and those of the data directory.

A path from a caller, a project or a disk may name a FIFO, a device, a terminal or a file without
end. Opening one may block for ever, and reading it may fill the memory. Here nothing blocks, only
regular files are accepted, and every read has a bound. Supervisor and worker both need it, and
neither may import the other.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Final, Literal

Reason = Literal["directory", "not_a_file", "too_large"]
# O_NOCTTY: opening a terminal must not make it the controlling terminal of our process.
_AT_ONCE: Final = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CHUNK: Final = 1 << 20
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
        while chunk := file.read(min(most + 1 - len(data), _CHUNK)):
            data += chunk
    if len(data) > most:
        raise _too_large(path, most)
    return bytes(data)


def _too_large(path: str | os.PathLike[str], most: int) -> FileRefused:
    return FileRefused(os.fspath(path), "too_large", f"is larger than {most} bytes")
