"""How long nobody has used a session."""

from __future__ import annotations

import time

from debug_relay.protocol.envelope import timestamp_of
from debug_relay.protocol.sessions import WorkerParams


class IdleClock:
    """When nobody has used the session for too long. Monotonic; wall time only for display."""

    def __init__(self, params: WorkerParams) -> None:
        self.idle_timeout = params.idle_timeout
        self._touched = time.monotonic()

    def touch(self) -> None:
        self._touched = time.monotonic()

    def idle_for(self) -> float:
        return time.monotonic() - self._touched

    def expires_at(self) -> str | None:
        if not self.idle_timeout:
            return None
        return timestamp_of(time.time() + self.idle_timeout - self.idle_for())
