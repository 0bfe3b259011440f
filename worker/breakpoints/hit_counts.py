"""How often breakpoints were hit, and how many lines log points have skipped, in memory that the
program shares with us.

The probe writes there and tells nothing: reading disturbs no program, and what a program counted
before `os._exit` or SIGKILL is still there.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from typing import Final

# For each breakpoint that a session may ever have two numbers of eight bytes, its hits in the first
# half and its skipped lines in the second. Only what is written to takes memory.
CAPACITY: Final = 1 << 20


class HitCounts:
    """The counts of one debug server."""

    def __init__(self) -> None:
        self._fd = os.memfd_create("debug-relay-hits", os.MFD_CLOEXEC)
        os.ftruncate(self._fd, 2 * CAPACITY * 8)
        self._memory = mmap.mmap(self._fd, 2 * CAPACITY * 8)
        self._numbers = memoryview(self._memory).cast("Q")
        self.shared = False
        self.told: dict[str, int] = {}  # by a program that could not share it

    @property
    def path(self) -> str:
        """Where a program of the same user opens it."""
        return f"/proc/{os.getpid()}/fd/{self._fd}"

    def of(self, id: str) -> int:
        slot = slot_of(id)
        shared = self._numbers[slot] if slot < CAPACITY else 0
        return max(shared, self.told.get(id, 0))

    def skipped_lines(self, id: str) -> int:
        slot = slot_of(id)
        return self._numbers[CAPACITY + slot] if slot < CAPACITY else 0

    def close(self) -> None:
        self._numbers.release()
        with contextlib.suppress(BufferError):
            self._memory.close()
        os.close(self._fd)


def slot_of(id: str) -> int:
    """`bp_7` is the seventh that was ever set."""
    return int(id.rpartition("_")[2])
