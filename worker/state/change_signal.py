"""Wakes tasks that wait until a condition on the session's state is true."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class ChangeSignal:
    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    def notify(self) -> None:
        """Something changed: every waiter checks its condition again."""
        for waiter in self._waiters:
            _wake(waiter)

    def abandon(self, call: asyncio.Event) -> None:
        """The caller of this call has left: its wait ends."""
        call.set()
        self.notify()

    async def until(
        self, condition: Callable[[], bool], timeout: float, abandoned: asyncio.Event
    ) -> bool:
        """Wait; whether the condition came true in time. Returns at once when the call is
        abandoned.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while not condition():
            if abandoned.is_set() or loop.time() >= deadline:
                return False
            changed: asyncio.Future[None] = loop.create_future()
            self._waiters.add(changed)
            timer = loop.call_at(deadline, _wake, changed)
            try:
                await changed
            finally:
                timer.cancel()
                self._waiters.discard(changed)
        return True


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
