"""Which of the program's threads stand, and where they have stopped.

A stop may halt all threads; from then on single ones may be sent on. Knows nothing of the debugger.
"""

from __future__ import annotations

from debug_relay.worker.stop import Stop


class Standing:
    def __init__(self) -> None:
        self._stops: dict[int, Stop] = {}  # by thread, the latest last
        self._everyone = False
        self._gone_on: set[int] = set()  # alone, since everyone was halted

    def __contains__(self, thread_id: object) -> bool:
        return thread_id in self._stops or (self._everyone and thread_id not in self._gone_on)

    def stopped(self, stop: Stop, everyone: bool) -> None:
        self._stops.pop(stop.thread_id, None)
        self._stops[stop.thread_id] = stop
        if everyone:
            self._everyone = True
            self._gone_on.clear()

    def go_on(self, thread_id: int) -> None:
        self._stops.pop(thread_id, None)
        self._gone_on.add(thread_id)

    def ended(self, thread_id: int) -> None:
        self._stops.pop(thread_id, None)
        self._gone_on.discard(thread_id)

    def born(self, thread_id: int) -> None:
        """Whoever has started it runs, and so does it."""
        if self._gone_on:
            self._gone_on.add(thread_id)

    def clear(self) -> None:
        self._stops.clear()
        self._gone_on.clear()
        self._everyone = False

    def of(self, thread_id: int) -> Stop | None:
        """Its own stop; none for a thread that another one's has halted."""
        return self._stops.get(thread_id)

    def latest(self) -> Stop | None:
        return next(reversed(self._stops.values()), None)
