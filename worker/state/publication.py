"""Publishes changes: to tasks of this worker, to the supervisors, and to the record on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from debug_relay.worker.state.change_signal import ChangeSignal

# States within this time are sent to the supervisor as one. A step takes as long in most
# programs: its stop then replaces the state in between.
_MOMENT_SECONDS: Final = 0.01


class Publication:
    """Publishes changes; `push` sends them to all supervisors, once for each turn of the loop."""

    def __init__(self, push: Callable[[], None]) -> None:
        self.version = 1  # the public state's version
        self._push = push
        self._pushing: asyncio.Handle | None = None
        self._may_wait = False  # whether that push waits for the next change
        self._signal = ChangeSignal()
        self._save: Callable[[], None] | None = None

    def record_by(self, save: Callable[[], None]) -> None:
        """Set `save`, which writes the session's record. The record needs all other parts."""
        self._save = save

    def announce(self) -> None:
        """Tell supervisors that there is more to read; the public state is the same."""
        if self._pushing is None:
            self._pushing = asyncio.get_running_loop().call_soon(self._push_now)

    def changed(self) -> None:
        """The public state has changed."""
        self.version += 1
        self._signal.notify()
        if self._may_wait:
            self._cancel()
        self.announce()

    def changed_for_a_moment(self) -> None:
        """The program was resumed, and may stop again at once. If the next change comes soon,
        supervisors only get that one. The caller's reply has the state of its own moment.
        """
        self.version += 1
        self._signal.notify()
        self._cancel()
        self._may_wait = True
        self._pushing = asyncio.get_running_loop().call_later(_MOMENT_SECONDS, self._push_now)

    def _push_now(self) -> None:
        self._pushing, self._may_wait = None, False
        self._push()

    def _cancel(self) -> None:
        if self._pushing is not None:
            self._pushing.cancel()
        self._pushing, self._may_wait = None, False

    def close(self) -> None:
        self._cancel()

    def save(self) -> None:
        """Write the record at once: something in it has changed."""
        if self._save is not None:
            self._save()

    def abandon(self, call: asyncio.Event) -> None:
        """The caller of this call has left: its wait ends."""
        self._signal.abandon(call)

    async def until(
        self, condition: Callable[[], bool], timeout: float, abandoned: asyncio.Event
    ) -> bool:
        """Wait; whether the condition came true in time. Returns at once when the call is
        abandoned.
        """
        return await self._signal.until(condition, timeout, abandoned)
