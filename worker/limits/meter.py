"""Measures what one run of a program has used so far, over all of its processes.

Memory is resident memory with each shared page counted once (PSS). The kernel needs 40 times as
long for it as for the plain sum, which is never smaller. So we read it only when the sum comes near
the limit, and only for a small part of the time.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from debug_relay.protocol.models.limits import Limits, Use
from debug_relay.protocol.system import procfs
from debug_relay.protocol.system.procfs import Stat

WINDOW_SECONDS: Final = 2.0  # The output rate is an average over this time.
# From this share of a limit on, memory is measured exactly and callers are warned.
NEAR_SHARE: Final = 0.8
_REST_FACTOR: Final = 20.0  # The pause after an exact reading, as a multiple of its duration.


class Meter:
    """Measures one run. `rows` returns its processes, or None if they are unknown at the moment."""

    def __init__(
        self, rows: Callable[[], list[Stat] | None], printed: Callable[[], int], newborn: bool
    ) -> None:
        """`newborn`: the program started with this run; otherwise its earlier use does not
        count.
        """
        self._rows = rows
        self._printed = printed
        self._began = time.monotonic()
        self._last: dict[tuple[int, int], Stat] = {}
        self._before = 0.0 if newborn else None
        self._gone = 0.0
        self._cpu = 0.0
        self._output: deque[tuple[float, int]] = deque([(self._began, printed())])
        self._memory = 0
        self._exact_after = 0.0

    def wall_seconds(self) -> float:
        return time.monotonic() - self._began

    async def use(self, limits: Limits) -> Use | None:
        """The present use; processes are read only if a limit needs them. None if they are unknown
        now.
        """
        use = Use(wall_seconds=self.wall_seconds(), output_bytes_per_second=self.output_rate())
        if limits.memory_bytes or limits.cpu_seconds or limits.processes:
            rows = self._rows()
            if rows is None:
                return None
            use.cpu_seconds = self.cpu_seconds(rows)
            living = [row for row in rows if row.lives]
            use.processes = len(living)
            use.memory_bytes = await self._memory_bytes(living, limits.memory_bytes)
        return use

    def output_rate(self) -> int:
        now = time.monotonic()
        self._output.append((now, self._printed()))
        while len(self._output) > 2 and self._output[1][0] <= now - WINDOW_SECONDS:
            self._output.popleft()
        began, before = self._output[0]
        return round((self._output[-1][1] - before) / max(now - began, WINDOW_SECONDS))

    def cpu_seconds(self, rows: list[Stat]) -> float:
        """The processor time, never less than before: a process that ends between two looks may
        be in no parent's sum.
        """
        now = {row.key: row for row in rows}
        for key, row in self._last.items():
            # This worker reaps the processes that it adopted, so no parent's sum contains them.
            if key not in now and row.parent == os.getpid():
                self._gone += row.own_seconds + row.waited_seconds
        self._last = now
        total = self._gone + sum(row.own_seconds + row.waited_seconds for row in rows)
        if self._before is None:
            self._before = total
        self._cpu = max(self._cpu, total - self._before)
        return self._cpu

    async def _memory_bytes(self, living: list[Stat], allowed: int) -> int:
        plain = sum(row.resident_bytes for row in living)
        if not allowed or plain < allowed * NEAR_SHARE:
            self._memory = plain
        elif time.monotonic() >= self._exact_after:
            self._memory, took = await asyncio.to_thread(_exact_bytes, living)
            self._exact_after = time.monotonic() + _REST_FACTOR * took
        return self._memory


def _exact_bytes(rows: list[Stat]) -> tuple[int, float]:
    """The exact memory, and the processor time that reading it took; waiting for a processor on a
    busy machine does not count.
    """
    began = time.thread_time()
    found = sum(procfs.proportional_bytes(row.pid) or row.resident_bytes for row in rows)
    return found, time.thread_time() - began
