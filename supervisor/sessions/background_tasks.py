"""Work that goes on when the request that began it has left, and who ends it with the relay."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from debug_relay.supervisor.log import Log

_T = TypeVar("_T")
_log: Final = Log(__name__)


class Undertakings:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def begin(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def carry_out(self, work: Coroutine[Any, Any, _T]) -> _T:
        """What has several steps, to its end: a client that leaves cancels only its own waiting."""
        return await outcome(self.begin(work))

    async def end(self, grace: float) -> None:
        """All of it, at most twice the grace on."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=grace)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=grace)


async def outcome(task: asyncio.Task[_T]) -> _T:
    """What becomes of it; who leaves does not end it."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(_seen)
        raise


def _seen(task: asyncio.Task[Any]) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        if task.exception() is not None:
            _log.warning("request.abandoned_failed", error=str(task.exception()))
