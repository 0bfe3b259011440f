"""Keeps which of the session's threads are stopped, and where.

A stop may halt all threads of its process; from then on single threads may be resumed. It never
halts threads of other processes. This module knows nothing of the debugger.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from msgspec import Struct

from debug_relay.protocol.models.breakpoints import ValueChange
from debug_relay.protocol.models.fields import Location
from debug_relay.protocol.models.sessions import ExceptionInfo, StopReason


class Stop(Struct):
    """The place and the reason of one thread's stop."""

    thread_id: int
    reason: StopReason
    location: Location | None
    exception: ExceptionInfo | None
    hit_breakpoints: list[str]
    stop_id: int = 0
    pid: int | None = None
    is_child: bool = False  # the thread is in a child of the program
    value_changes: list[ValueChange] = []  # that watchpoints have seen
    passed: ExceptionInfo | None = None  # the exception by which the step has left its line


class StoppedThreads:
    def __init__(self, process_of: Callable[[int], Hashable]) -> None:
        """`process_of` gives the process of a thread."""
        self._process_of = process_of
        self._stops: dict[int, Stop] = {}  # thread → its stop, the latest last
        # Processes whose threads were all halted, each with the threads resumed alone since.
        self._halted: dict[Hashable, set[int]] = {}

    def __contains__(self, thread_id: object) -> bool:
        if thread_id in self._stops:
            return True
        if not self._halted or not isinstance(thread_id, int):
            return False
        resumed = self._halted.get(self._process_of(thread_id))
        return resumed is not None and thread_id not in resumed

    def stopped(self, stop: Stop, everyone: bool) -> None:
        self._stops.pop(stop.thread_id, None)
        self._stops[stop.thread_id] = stop
        if everyone:
            self._halted[self._process_of(stop.thread_id)] = set()
        else:
            self._halted.get(self._process_of(stop.thread_id), set()).discard(stop.thread_id)

    def resume(self, thread_id: int) -> None:
        self._stops.pop(thread_id, None)
        self._halted.get(self._process_of(thread_id), set()).add(thread_id)

    def resume_process(self, process: Hashable) -> None:
        """All threads of the process run again; or it has ended, and the hub knows none of them."""
        self._halted.pop(process, None)
        for thread_id in list(self._stops):
            if self._process_of(thread_id) in (process, None):
                del self._stops[thread_id]

    def ended(self, thread_id: int) -> None:
        self._stops.pop(thread_id, None)
        for resumed in self._halted.values():
            resumed.discard(thread_id)

    def born(self, thread_id: int) -> None:
        """A new thread runs: the thread that started it does."""
        resumed = self._halted.get(self._process_of(thread_id))
        if resumed:
            resumed.add(thread_id)

    def clear(self) -> None:
        self._stops.clear()
        self._halted.clear()

    def of(self, thread_id: int) -> Stop | None:
        """The thread's own stop; None for a thread that another thread's stop has halted."""
        return self._stops.get(thread_id)

    def latest(self, process: Hashable = None) -> Stop | None:
        """The last stop; with a process, the last one in that process."""
        for thread_id, stop in reversed(self._stops.items()):
            if process is None or self._process_of(thread_id) is process:
                return stop
        return None
