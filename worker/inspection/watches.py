"""The session's watches: expressions that the probe evaluates at every stop."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.inspection import Watch
from debug_relay.protocol.refusals import Problem
from debug_relay.protocol.wire.probe_answers import Watched
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.probe_client import ProbeClient
from debug_relay.worker.debugger.program_changes import ProgramChanges
from debug_relay.worker.state.log import SessionLog
from debug_relay.worker.state.settings import Settings

MOST_WATCHES: Final = 100  # Watches of one session.


class Watches:
    def __init__(
        self,
        settings: Settings,
        log: SessionLog,
        changes: ProgramChanges,
        probes: ProbeClient,
    ) -> None:
        self._settings = settings
        self._log = log
        self._changes = changes
        self._probes = probes
        self._watches: dict[str, Watch] = {}
        self._next = 1

    def texts(self) -> dict[str, str]:
        return {watch.id: watch.expression for watch in self._watches.values()}

    def listed(self) -> list[Watch]:
        return list(self._watches.values())

    def add(self, expression: str) -> Watch:
        """Add a watch, or return the one with this expression. The expression was verified."""
        for watch in self._watches.values():
            if watch.expression == expression:
                return watch
        if len(self._watches) >= MOST_WATCHES:
            raise RelayError(
                Code.INVALID_REQUEST,
                f"The session has {MOST_WATCHES} watches already",
                f"{call_of('delete-watches', watch_id='watch_N')} removes one.",
                errors=[Problem("expression", f"at most {MOST_WATCHES} watches")],
            )
        watch = Watch(id=f"watch_{self._next}", expression=expression)
        self._next += 1
        self._watches[watch.id] = watch
        return watch

    def take_over(self, watches: Iterable[Watch]) -> None:
        """Take over the previous worker's watches, with their ids and values."""
        self._watches = {watch.id: watch for watch in watches}
        numbers = (int(id.rpartition("_")[2]) for id in self._watches)
        self._next = max(self._next, max(numbers, default=0) + 1)

    def remove(self, watch_id: str | None) -> int:
        if watch_id is None:
            count = len(self._watches)
            self._watches.clear()
            return count
        if self._watches.pop(watch_id, None) is None:
            known = ", ".join(self._watches) or "none"
            raise RelayError(
                Code.WATCH_NOT_FOUND,
                f"The session has no watch {watch_id}",
                f"Its watches are: {known}. "
                f"GET /api/v1/sessions/{self._settings.id}/watch lists them.",
                watch_id=watch_id,
                watches=list(self._watches),
            )
        return 1

    async def send(self) -> None:
        """Send the watches to all probes, which evaluate them from the next stop on."""
        await self._changes.make(self.begin, to=self._probes.probed())

    async def begin(self, server: DebugServer) -> None:
        rows = list(self.texts().items())
        await server.engine.watch(rows)

    def seen(self, stop_id: int, rows: Iterable[Watched]) -> None:
        """Record the values at a stop; a changed value becomes an event."""
        for row in rows:
            watch = self._watches.get(row.id)
            if watch is None:
                continue
            before = watch.value if watch.error is None else watch.error
            known = watch.value is not None or watch.error is not None
            watch.value = row.value.value if row.value is not None else None
            watch.type = row.value.type if row.value is not None else None
            watch.error = row.error
            after = watch.value if watch.error is None else watch.error
            if not known or before == after:
                continue
            self._log.journal(
                "watch",
                {
                    "watch_id": watch.id,
                    "expression": watch.expression,
                    "before": before,
                    "value": watch.value,
                    "type": watch.type,
                    "error": watch.error,
                    "stop_id": stop_id,
                },
            )
