"""Measures for how long no caller has used a session."""

from __future__ import annotations

import time

from debug_relay.protocol.models.sessions import idle_limit
from debug_relay.protocol.models.worker_messages import WorkerParams
from debug_relay.protocol.state import State
from debug_relay.protocol.wire.envelope import timestamp_of


class IdleClock:
    """Seconds since the last call, by monotonic time; wall time is for display only."""

    def __init__(self, params: WorkerParams) -> None:
        self._params = params
        self._touched = time.monotonic()

    def touch(self) -> None:
        self._touched = time.monotonic()

    def idle_for(self) -> float:
        return time.monotonic() - self._touched

    def limit(self, state: State) -> float:
        """The seconds without a call after which the session ends; 0 means never."""
        return idle_limit(state, self._params.config)

    def expires_at(self, state: State) -> str | None:
        limit = self.limit(state)
        return timestamp_of(time.time() + limit - self.idle_for()) if limit else None
