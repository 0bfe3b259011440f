"""Whether a session is in use: by calls, and by long-polls and streams that stay open."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

_REPORT_SECONDS: Final = 0.5  # The worker learns at most this often that its session is in use.


class SessionUse:
    def __init__(self, name: str, report: Callable[[], None], pause: Callable[[], float]) -> None:
        """`report` lets the worker know of a use. `pause` gives the seconds between two uses of a
        caller that waits.
        """
        self._name = name
        self._report = report
        self._pause = pause
        self._used = time.monotonic()
        self._last_report = 0.0
        self._attending = 0
        self._touching: asyncio.Task[None] | None = None

    def idle_for(self) -> float:
        return time.monotonic() - self._used

    def by_request(self) -> None:
        """A request to the worker restarts its idle timeout by itself."""
        self._used = time.monotonic()

    def touch(self) -> None:
        """Restarts the idle timeout, here and in the worker."""
        now = self._used = time.monotonic()
        if now - self._last_report >= _REPORT_SECONDS:
            self._last_report = now
            self._report()

    def attend(self) -> None:
        """An open long-poll or stream is use of the session. One task touches it for all of them,
        until as many have left."""
        self._attending += 1
        if self._touching is None:
            self._touching = asyncio.create_task(self._keep_touching(), name=f"touch {self._name}")

    def leave(self) -> None:
        self._attending -= 1
        if not self._attending and self._touching is not None:
            self._touching.cancel()
            self._touching = None

    async def _keep_touching(self) -> None:
        while True:
            self.touch()
            await asyncio.sleep(self._pause())
