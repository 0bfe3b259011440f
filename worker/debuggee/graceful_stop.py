"""The time to end by SIGTERM, for what a program has started: the same that it has itself.

Who is in the program's group gets the signal with that. Who has moved to a group or session of its
own is sent one too: at the end of the grace it would be killed like the others. Must not know who
is killed then, nor how the program itself ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from debug_relay.protocol.system.procfs import Stat
from debug_relay.worker.system import descendants

# The first pause between two looks at whether processes have ended. The kernel tells of the end
# of those that are known, but not of new ones.
_FIRST_LOOK_SECONDS: Final = 0.01
_LATER_FACTOR: Final = 1.5  # Each pause is this many times the one before.
# The longest pause between two looks at whether processes have ended.
_LONGEST_PAUSE_SECONDS: Final = 0.1


class GracefulStop:
    """Of one ending."""

    def __init__(self, find: Callable[[], list[Stat] | None]) -> None:
        """`find` looks for all that there are; None while it cannot tell."""
        self._find = find
        self._told: set[tuple[int, int]] = set()

    def begin(self, group: int) -> None:
        """At the moment when that process group, the program's, is sent its SIGTERM."""
        for row in self._left() or ():
            self._told.add(row.key)
            if _group_of(row.pid) != group:
                _tell(row)

    async def until_gone(self, deadline: float) -> None:
        """Until nobody is left; the program itself has ended. Who has come since is told too."""
        pause = _FIRST_LOOK_SECONDS
        now = asyncio.get_running_loop().time
        while (left := self._left()) != [] and now() < deadline:
            for row in left or ():
                if row.key not in self._told:
                    self._told.add(row.key)
                    _tell(row)
            await asyncio.sleep(min(pause, deadline - now()))
            pause = min(pause * _LATER_FACTOR, _LONGEST_PAUSE_SECONDS)

    def _left(self) -> list[Stat] | None:
        """Not the trackers of multiprocessing, which end when the sweep has taken the others."""
        found = self._find()
        if found is None:
            return None
        living = [row for row in found if row.lives]
        return [
            row for row in living if row.key in self._told or not descendants.is_tracker(row.pid)
        ]


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0  # gone since


def _tell(row: Stat) -> None:
    with suppress(PermissionError):  # a setuid program: not ours to signal
        descendants.send(row, signal.SIGTERM)
