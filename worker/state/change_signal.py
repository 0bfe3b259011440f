"""Wakes tasks that wait until a condition on the session's state is true."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class ChangeSignal:
    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    def notify(self) -> None:
        """Something changed: every waiter checks its condition again."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def until(
        self, condition: Callable[[], bool], timeout: float, abandoned: asyncio.Event
    ) -> bool:
        """Wait; whether the condition came true in time. Returns at once when `abandoned` is
        set.
        """
        deadline = time.monotonic() + timeout
        given_up = asyncio.ensure_future(abandoned.wait())
        try:
            while not condition():
                left = deadline - time.monotonic()
                if left <= 0 or abandoned.is_set():
                    return False
                changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiters.add(changed)
                try:
                    await asyncio.wait(
                        (changed, given_up), timeout=left, return_when=asyncio.FIRST_COMPLETED
                    )
                finally:
                    self._waiters.discard(changed)
            return True
        finally:
            given_up.cancel()
