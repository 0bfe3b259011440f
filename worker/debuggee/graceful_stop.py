"""Gives a program's descendants the same time to end by SIGTERM as the program itself.

Processes in the program's group get the signal together with it. Processes that have moved to a
group or session of their own get one from this module, because they are killed like the others when
the time is over. This module does not kill, and does not end the program itself.
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

# The first pause between two looks at whether processes have ended. A pidfd reports only the end
# of a process that is known, and new ones may start.
_FIRST_LOOK_SECONDS: Final = 0.01
_LATER_FACTOR: Final = 1.5  # Each pause is this many times the one before.
# The longest pause between two looks at whether processes have ended.
_LONGEST_PAUSE_SECONDS: Final = 0.1


class GracefulStop:
    """One end of a program: its descendants get SIGTERM and time."""

    def __init__(self, find: Callable[[], list[Stat] | None]) -> None:
        """`find` lists the processes; None while they cannot be read."""
        self._find = find
        self._signalled: set[tuple[int, int]] = set()

    def begin(self, group: int) -> None:
        """Send SIGTERM to all processes outside `group`, the program's own group, which gets its
        SIGTERM now.
        """
        for row in self._left() or ():
            self._signalled.add(row.key)
            if _group_of(row.pid) != group:
                _signal(row)

    async def until_gone(self, deadline: float) -> None:
        """Wait until no process is left; the program itself has ended. Processes that have started
        since get SIGTERM, too.
        """
        pause = _FIRST_LOOK_SECONDS
        now = asyncio.get_running_loop().time
        while (left := self._left()) != [] and now() < deadline:
            for row in left or ():
                if row.key not in self._signalled:
                    self._signalled.add(row.key)
                    _signal(row)
            await asyncio.sleep(min(pause, deadline - now()))
            pause = min(pause * _LATER_FACTOR, _LONGEST_PAUSE_SECONDS)

    def _left(self) -> list[Stat] | None:
        """The processes that still live, without multiprocessing's trackers: these end by
        themselves when the sweep has ended the others.
        """
        found = self._find()
        if found is None:
            return None
        return [
            row
            for row in found
            if row.lives and (row.key in self._signalled or not descendants.is_tracker(row.pid))
        ]


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0  # it has ended


def _signal(row: Stat) -> None:
    with suppress(PermissionError):  # a setuid program, which we may not signal
        descendants.send(row, signal.SIGTERM)
