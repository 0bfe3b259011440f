"""Counts of breakpoint hits and of skipped log lines, in memory shared with the program.

The probe writes there and sends nothing: reading disturbs no program, and counts made before
`os._exit` or SIGKILL are still there.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from typing import Final

# Each breakpoint that a session may ever have takes two numbers of eight bytes: its hits in the
# first half and its skipped lines in the second. Only pages that are written take memory.
CAPACITY: Final = 1 << 20


class HitCounts:
    """The counts of one debug server."""

    def __init__(self) -> None:
        self._fd = os.memfd_create("debug-relay-hits", os.MFD_CLOEXEC)
        os.ftruncate(self._fd, 2 * CAPACITY * 8)
        self._memory = mmap.mmap(self._fd, 2 * CAPACITY * 8)
        self._numbers = memoryview(self._memory).cast("Q")
        self.shared = False
        self.reported: dict[str, int] = {}  # reported by programs that could not share the memory

    @property
    def path(self) -> str:
        """The path by which a program of the same user opens it."""
        return f"/proc/{os.getpid()}/fd/{self._fd}"

    def of(self, id: str) -> int:
        slot = slot_of(id)
        shared = self._numbers[slot] if slot < CAPACITY else 0
        return max(shared, self.reported.get(id, 0))

    def skipped_lines(self, id: str) -> int:
        slot = slot_of(id)
        return self._numbers[CAPACITY + slot] if slot < CAPACITY else 0

    def close(self) -> None:
        self._numbers.release()
        with contextlib.suppress(BufferError):  # a view is in use: the last one frees it
            self._memory.close()
        os.close(self._fd)


def slot_of(id: str) -> int:
    """The number of an id: `bp_7` is the seventh breakpoint that was ever set."""
    return int(id.rpartition("_")[2])
