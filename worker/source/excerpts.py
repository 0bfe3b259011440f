"""Source lines as they were when the program stopped: read once per version of a file, in a thread.

It knows files and nothing of sessions. Operations decide which caller may read which file.
"""

from __future__ import annotations

import asyncio
import io
import os
import stat
import tokenize
from typing import Final

from debug_relay.protocol.models.stop_report import Excerpt, SourceLine
from debug_relay.protocol.system.files import read_bounded

LARGEST_BYTES: Final = 8 * 1024 * 1024  # One source file that is shown around a stop.
_KEPT_FILES: Final = 32  # Source files that are kept in memory.
_LINE_CHARACTERS: Final = 2000  # One line of source that is shown.
_Version = tuple[int, int, int, int]


class Sources:
    """The lines of the files at which the program has stopped."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[_Version, list[str]]] = {}

    async def lines(self, path: str) -> list[str] | None:
        """The file's lines; None if it is not a readable file. A changed file is read again."""
        version = _version(path)
        if version is None:
            return None
        known = self._files.pop(path, None)
        if known is None or known[0] != version:
            read = await asyncio.to_thread(_read, path)
            if read is None:
                return None
            known = (version, read)
        self._files[path] = known  # the most recently used entry is dropped last
        while len(self._files) > _KEPT_FILES:
            self._files.pop(next(iter(self._files)))
        return known[1]


def _version(path: str) -> _Version | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST_BYTES:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev


def _read(path: str) -> list[str] | None:
    try:
        return decode_source(read_bounded(path, LARGEST_BYTES))
    except OSError:
        return None


def decode_source(data: bytes) -> list[str]:
    """Decodes by the file's own declaration, as Python reads it."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except SyntaxError:
        encoding = "utf-8"
    try:
        text = data.decode(encoding, "replace")
    except (LookupError, UnicodeError):  # rot13, idna: codecs that cannot decode source
        text = data.decode("utf-8", "replace")
    # Only these characters end a line in Python; a form feed does not.
    return text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")


def excerpt(
    path: str, lines: list[str], line: int, around: int, first: int = 1, total: int = 0
) -> Excerpt | None:
    """The line and its neighbours; `lines` may be some of `total`, from line `first` on."""
    last = first + len(lines) - 1
    if not first <= line <= last:
        return None
    start, end = max(first, line - around), min(last, line + around)
    return Excerpt(
        path=path,
        start=start,
        end=end,
        total_lines=total or len(lines),
        lines=[
            SourceLine(line=at, text=lines[at - first][:_LINE_CHARACTERS], current=at == line)
            for at in range(start, end + 1)
        ],
    )
