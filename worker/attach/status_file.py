"""The payload status file: the injected code writes there that it runs, or why it cannot.

gdb opens a file in memory in the program, and the worker opens it through the program's descriptor.
This needs no socket, no path and no import, so it works where the program has replaced or forbidden
all of them, and in another container.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

from msgspec import Struct

from debug_relay.protocol.system.files import open_regular
from debug_relay.worker.attach import payload

_MOST_BYTES: Final = 8192  # The longest report of the injected code.


class AttachRefusal(Struct, frozen=True):
    reason: str  # one of the reasons in `refusals`
    words: str


class StatusFile:
    """The first byte is the state: `b` begun, `r` refused, `h` heard, `n` the worker no longer
    listens.
    """

    def __init__(self, pid: int, descriptor: int) -> None:
        self.descriptor = descriptor
        self._there = f"/proc/{pid}/fd/{descriptor}"
        self._fd = -1
        with suppress(OSError):
            self._fd = open_regular(self._there, os.O_RDWR)
            # The program may have reused this descriptor number for a file of its own.
            if not _is_status_file(f"/proc/self/fd/{self._fd}"):
                self._close()

    @property
    def is_open_there(self) -> bool:
        return _is_status_file(self._there)

    @property
    def begun(self) -> bool:
        return self._fd >= 0 and os.pread(self._fd, 1, 0) != b""

    def refusal(self) -> AttachRefusal | None:
        if self._fd < 0 or os.pread(self._fd, 1, 0) != b"r":
            return None
        text = os.pread(self._fd, _MOST_BYTES, 1).decode("utf-8", "replace")
        self._write(b"h")
        reason, _, words = text.partition("\n")
        return AttachRefusal(reason, words)

    def cancel(self) -> None:
        """Tell code that has not begun yet to do nothing."""
        if self._fd >= 0:
            self._write(b"n")
            self._close()

    def _write(self, byte: bytes) -> None:
        # The program may have put a file of its own there, which takes no bytes.
        with suppress(OSError):
            os.pwrite(self._fd, byte, 0)

    def _close(self) -> None:
        os.close(self._fd)
        self._fd = -1


def _is_status_file(link: str) -> bool:
    try:
        return os.readlink(link).startswith(f"/memfd:{payload.STATUS_FILE}")
    except OSError:
        return False
