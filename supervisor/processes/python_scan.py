"""Which of the machine's processes are Python: one pass over /proc, and what is remembered of it.

Who calls itself Python is known by a link. Any other may embed one, which only its memory tells;
that costs ten times as much, so what was found is kept for a while, and there is a bound.
"""

from __future__ import annotations

import time
from typing import Final

from msgspec import Struct

from debug_relay.protocol.system import procfs
from debug_relay.supervisor.processes.facts import command, embeds_python, is_python

_INTO_MEMORY_SECONDS: Final = 0.5  # One pass over the processes may read memory maps this long.
# That a process runs no Python is believed this long: it may load Python late.
_KEPT_SECONDS: Final = 30.0


class Found(Struct):
    pids: list[int]
    not_looked_into: int  # who does not call itself Python, when the time was up


class _Looked(Struct):
    started: int | None  # a pid is given out again,
    executable: str  # and a process may execute another program
    embeds: bool
    until: float


class Census:
    def __init__(
        self, into_memory: float = _INTO_MEMORY_SECONDS, kept: float = _KEPT_SECONDS
    ) -> None:
        self._into_memory = into_memory
        self._kept = kept
        self._looked: dict[int, _Looked] = {}

    def take(self) -> Found:
        """Reads files, some thousands of them: in a thread, and not in two at a time."""
        found = Found(pids=[], not_looked_into=0)
        still: dict[int, _Looked] = {}
        deadline = time.monotonic() + self._into_memory
        for pid in procfs.pids():
            executable = procfs.executable(pid)
            if executable is None:
                # Another user's: what it was called by is all that we may know. One that is gone
                # and a thread of the kernel's have no command line.
                if is_python(next(iter(command(pid)), "")):
                    found.pids.append(pid)
                continue
            if is_python(executable):
                found.pids.append(pid)
                continue
            looked = self._look(pid, executable, deadline)
            if looked is None:
                found.not_looked_into += 1
                continue
            still[pid] = looked
            if looked.embeds:
                found.pids.append(pid)
        self._looked = still
        found.pids.sort()
        return found

    def _look(self, pid: int, executable: str, deadline: float) -> _Looked | None:
        now = time.monotonic()
        started = procfs.start_ticks(pid)
        known = self._looked.get(pid)
        if known is not None and (known.started, known.executable) == (started, executable):
            if now < known.until:
                return known
        else:
            known = None
        if now >= deadline:
            return known  # what was found last time is better than nothing
        return _Looked(started, executable, embeds_python(pid), now + self._kept)
