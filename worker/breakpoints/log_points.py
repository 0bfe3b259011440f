"""Writes the lines of log points, and how many of them were skipped because there were too many.

The program sends the lines, and counts the skipped ones in the memory of `hit_counts`. So we report
them even if no line follows: a second after the last one, and at the end.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from msgspec import Struct

from debug_relay.protocol.wire.probe_events import LogLine
from debug_relay.worker.breakpoints.session_breakpoints import Breakpoints
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.state.log import SessionLog

# A log point reports its skipped lines when it has written none for this long.
_QUIET_SECONDS: Final = 1.0


class _Last(Struct):
    """The last line of one log point in one process."""

    row: LogLine
    reported: int = 0


class LogPoints:
    def __init__(
        self,
        log: SessionLog,
        breakpoints: Breakpoints,
    ) -> None:
        self._log = log
        self._breakpoints = breakpoints
        self._last: dict[tuple[DebugServer, str], _Last] = {}
        self._timer: asyncio.TimerHandle | None = None

    def arrived(self, server: DebugServer, row: LogLine) -> None:
        last = self._last.setdefault((server, row.id), _Last(row))
        last.row = row
        self._write_skipped(last, row.skipped)
        self._write(row, row.text)
        self._look_later()

    def process_ended(self, server: DebugServer | None = None) -> None:
        """A process or its connection has ended: report the lines that it has skipped."""
        self._look()
        for key in [key for key in self._last if server in (None, key[0])]:
            del self._last[key]
        if not self._last:
            self._stop_timer()

    def _look_later(self) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(_QUIET_SECONDS, self._look)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        for (server, id), last in self._last.items():
            self._write_skipped(last, self._breakpoints.skipped_lines(server, id))

    def _write_skipped(self, last: _Last, skipped: int) -> None:
        if skipped > last.reported:
            self._write(
                last.row, f"({skipped - last.reported} lines of this log point were skipped)"
            )
            last.reported = skipped

    def _write(self, row: LogLine, text: str) -> None:
        origin: dict[str, Any] = {"source": row.path, "line": row.line}
        data = (text + "\n").encode("utf-8", "backslashreplace")
        self._log.take_output("console", data, origin)
