"""Tasks that continue when their caller has left, and end with the relay."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from debug_relay.supervisor.log import Log

_T = TypeVar("_T")
_log: Final = Log(__name__)


class BackgroundTasks:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def begin(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def carry_out(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Does work of several steps to its end: a caller that leaves cancels only its own wait."""
        return await outcome(self.begin(work))

    async def end(self, grace: float) -> None:
        """Waits for all tasks; cancels those that take longer than `grace`."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=grace)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=grace)


async def outcome(task: asyncio.Future[_T]) -> _T:
    """The task's result; a caller that leaves does not cancel the task."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(_log_failure)
        raise


def _log_failure(task: asyncio.Future[Any]) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        if task.exception() is not None:
            _log.warning("request.abandoned_failed", error=str(task.exception()))
