"""Who waits for the session's state to be another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class News:
    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    def tell(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def until(
        self, condition: Callable[[], bool], timeout: float, abandoned: asyncio.Event
    ) -> bool:
        """Whether the condition came true in time; gives up at once when nobody waits any more."""
        deadline = time.monotonic() + timeout
        given_up = asyncio.ensure_future(abandoned.wait())
        try:
            while not condition():
                left = deadline - time.monotonic()
                if left <= 0 or abandoned.is_set():
                    return False
                news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiters.add(news)
                try:
                    await asyncio.wait(
                        (news, given_up), timeout=left, return_when=asyncio.FIRST_COMPLETED
                    )
                finally:
                    self._waiters.discard(news)
            return True
        finally:
            given_up.cancel()
