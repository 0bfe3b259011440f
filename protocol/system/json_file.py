"""A JSON file of our own: written as a whole or not at all, read with a bound.

Supervisor and worker keep their records with it. A damaged file raises `Damaged`; the caller
decides whether to move the file aside, and logs it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from debug_relay.protocol.system import files

LARGEST_BYTES: Final = 64 * 1024 * 1024  # One JSON file of ours; a larger one counts as damaged.


class Damaged(ValueError):
    """The file is not JSON, or not a file at all, or too large."""


def encode(value: Any) -> bytes:
    """JSON for people to read: indented, with a newline at its end."""
    return msgspec.json.format(msgspec.json.encode(value)) + b"\n"


def decode(content: bytes) -> Any:
    """The value in these bytes; raises Damaged."""
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Damaged(str(error)) from None


def write(path: Path, value: Any, *, fsync: bool = True) -> None:
    """Replaces the file, with mode 0600. Blocks for as long as the disk does."""
    files.write_whole(path, encode(value), fsync=fsync)


def read(path: Path) -> Any:
    """The value in the file; raises Damaged, FileNotFoundError or another OSError."""
    return decode(content(path))


def content(path: Path) -> bytes:
    """The bytes of the file; raises Damaged if it is no regular file or too large."""
    try:
        return files.read_bounded(path, LARGEST_BYTES)
    except files.FileRefused as error:
        raise Damaged(error.words) from None
