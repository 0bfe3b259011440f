"""Finds the machine's Python processes by a pass over /proc.

The link to its executable identifies a Python interpreter. Any other process may embed Python; only
its memory map shows that. Reading the map costs ten times as much, so results are remembered for a
while, and each pass has a bound on its time.
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
    not_looked_into: int  # processes whose memory map we had no time to read


class _Looked(Struct):
    started: int | None  # differs when the kernel has given the pid to another process
    executable: str  # differs when the process has executed another program
    embeds: bool
    until: float


class PythonScan:
    def __init__(
        self, into_memory: float = _INTO_MEMORY_SECONDS, kept: float = _KEPT_SECONDS
    ) -> None:
        self._into_memory = into_memory
        self._kept = kept
        self._looked: dict[int, _Looked] = {}

    def run(self) -> Found:
        """One pass. It reads thousands of files: call it in a thread, in one at a time."""
        found = Found(pids=[], not_looked_into=0)
        still: dict[int, _Looked] = {}
        deadline = time.monotonic() + self._into_memory
        for pid in procfs.pids():
            executable = procfs.executable(pid)
            if executable is None:
                # We see only the command line of another user's process. A process that has ended
                # and a kernel thread have none.
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
            return known  # the last result, if there is one
        return _Looked(started, executable, embeds_python(pid), now + self._kept)
