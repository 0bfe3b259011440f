"""Publishing changes: to tasks of this worker, to the supervisors, and to the record on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from debug_relay.worker.state.change_signal import ChangeSignal


class Publication:
    """`announce` schedules a push to all supervisors."""

    def __init__(self, announce: Callable[[], None]) -> None:
        self.version = 1  # of the public state
        self._announce = announce
        self._signal = ChangeSignal()
        self._save: Callable[[], None] | None = None

    def record_by(self, save: Callable[[], None]) -> None:
        """`save` writes the session's record; the record needs all other parts first."""
        self._save = save

    def announce(self) -> None:
        """There is more to read; the public state is the same."""
        self._announce()

    def changed(self) -> None:
        """The public state is another."""
        self.version += 1
        self._signal.notify()
        self._announce()

    def save(self) -> None:
        """What outlives the worker has changed: write the record at once."""
        if self._save is not None:
            self._save()

    async def until(
        self, condition: Callable[[], bool], timeout: float, abandoned: asyncio.Event
    ) -> bool:
        """Whether the condition came true in time; returns at once when `abandoned` is set."""
        return await self._signal.until(condition, timeout, abandoned)
