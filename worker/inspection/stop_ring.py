"""Writes the stop reports to a ring file, which the supervisor reads and which outlives the worker.

A report becomes complete bit by bit: the probe's part, then what a function returned. So it is
written when nothing has changed for a moment, and again if it has changed; a program that is
stepped fast never waits for it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from debug_relay.protocol.models.output_events import seq_meta
from debug_relay.protocol.models.stop_report import KEPT_STOPS, KeptStop
from debug_relay.protocol.wire.envelope import encode_json
from debug_relay.worker.storage.ring_writer import Ring

_RING_BYTES: Final = 8 << 20  # The ring of a session's stop reports.
# One stop report in the ring: a larger one is not worth fifteen others.
_LARGEST_BYTES: Final = _RING_BYTES // 16
_WRITE_SECONDS: Final = 0.3  # Stop reports are written to the ring this long after they were made.


class StopRing:
    """The ring; `report_of(stop_id)` returns a report as it is now, and whether it may still
    change.
    """

    def __init__(
        self, path: Path, report_of: Callable[[int], tuple[KeptStop, bool] | None]
    ) -> None:
        self._ring = Ring(path, _RING_BYTES, goes_on=True)
        self._report_of = report_of
        self._unfinished: deque[tuple[int, bytes]] = deque(maxlen=KEPT_STOPS)
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, stop_id: int) -> None:
        """Note a new stop."""
        self._unfinished.append((stop_id, b""))
        self.write_later()

    def write_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_WRITE_SECONDS, self.write)

    def write(self) -> None:
        """Write new and changed reports at once."""
        self._cancel()
        for _ in range(len(self._unfinished)):
            stop_id, before = self._unfinished.popleft()
            found = self._report_of(stop_id)
            if found is None:
                continue
            kept, may_change = found
            payload = encode_json(kept)
            if payload != before and len(payload) <= _LARGEST_BYTES:
                now = time.time_ns() // 1000
                self._ring.append(payload, time_us=now, category=0, meta=seq_meta(stop_id))
            if may_change:
                self._unfinished.append((stop_id, payload))

    def close(self) -> None:
        self.write()
        self._ring.close()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
