"""Which of the session's threads stand, and where they have stopped.

A stop may halt all threads of its process; from then on single ones may be sent on. The threads of
other processes are never halted by it. Knows nothing of the debugger.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from debug_relay.worker.debugger.stop import Stop


class Standing:
    def __init__(self, process_of: Callable[[int], Hashable]) -> None:
        """`process_of` tells of a thread to which process it belongs."""
        self._process_of = process_of
        self._stops: dict[int, Stop] = {}  # by thread, the latest last
        # Processes in which everyone was halted; and who has gone on alone there since.
        self._halted: dict[Hashable, set[int]] = {}

    def __contains__(self, thread_id: object) -> bool:
        if thread_id in self._stops:
            return True
        if not self._halted or not isinstance(thread_id, int):
            return False
        gone_on = self._halted.get(self._process_of(thread_id))
        return gone_on is not None and thread_id not in gone_on

    def stopped(self, stop: Stop, everyone: bool) -> None:
        self._stops.pop(stop.thread_id, None)
        self._stops[stop.thread_id] = stop
        if everyone:
            self._halted[self._process_of(stop.thread_id)] = set()
        else:
            self._halted.get(self._process_of(stop.thread_id), set()).discard(stop.thread_id)

    def go_on(self, thread_id: int) -> None:
        self._stops.pop(thread_id, None)
        self._halted.get(self._process_of(thread_id), set()).add(thread_id)

    def process_goes_on(self, process: Hashable) -> None:
        """All its threads; or it has ended, and none of them is known any more."""
        self._halted.pop(process, None)
        for thread_id in list(self._stops):
            if self._process_of(thread_id) in (process, None):
                del self._stops[thread_id]

    def ended(self, thread_id: int) -> None:
        self._stops.pop(thread_id, None)
        for gone_on in self._halted.values():
            gone_on.discard(thread_id)

    def born(self, thread_id: int) -> None:
        """Whoever has started it runs, and so does it."""
        gone_on = self._halted.get(self._process_of(thread_id))
        if gone_on:
            gone_on.add(thread_id)

    def clear(self) -> None:
        self._stops.clear()
        self._halted.clear()

    def of(self, thread_id: int) -> Stop | None:
        """Its own stop; none for a thread that another one's has halted."""
        return self._stops.get(thread_id)

    def latest(self, process: Hashable = None) -> Stop | None:
        """The last stop; of those in this process."""
        for thread_id, stop in reversed(self._stops.items()):
            if process is None or self._process_of(thread_id) is process:
                return stop
        return None
