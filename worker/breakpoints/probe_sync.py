"""Sends breakpoints to a program with the probe: each with its place, condition, count and message.
The probe decides at each hit, and finds functions.
"""

from __future__ import annotations

from collections.abc import Set

from msgspec.structs import replace

from debug_relay.protocol.wire import breakpoint_requests
from debug_relay.worker.breakpoints import functions
from debug_relay.worker.breakpoints.functions import LEFT_OUT
from debug_relay.worker.breakpoints.hit_counts import CAPACITY, HitCounts
from debug_relay.worker.breakpoints.table import BreakpointTable, Entry
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.probe_client import ProbeClient


class ProbeSync:
    def __init__(self, probes: ProbeClient, table: BreakpointTable) -> None:
        self._probes = probes
        self._table = table
        self.counts: dict[DebugServer, HitCounts] = {}

    async def begin(self, server: DebugServer) -> None:
        counts = self.counts[server] = HitCounts()
        counts.shared = await self._probes.ask(
            server, breakpoint_requests.ShareHits(path=counts.path, capacity=CAPACITY)
        )
        if self._table.suspended:
            await self._probes.ask(server, breakpoint_requests.Suspend(on=True))
        await self.set(server, list(self._table))

    async def set(
        self, server: DebugServer, entries: list[Entry], fresh: Set[str] = frozenset()
    ) -> None:
        await self._set_watchpoints(server, [entry for entry in entries if entry.watch])
        entries = [entry for entry in entries if entry.watch is None]
        if not entries:
            return
        rows = [_row(entry, entry.id in fresh) for entry in entries]
        left_out = await self._probes.ask(server, breakpoint_requests.Points(set=rows))
        for entry in entries:
            if entry.id in left_out:
                entry.verified = False
                entry.message, entry.suggestion = LEFT_OUT[left_out[entry.id]]
        await self._find_functions(server, self._functions_of(entries))

    async def _set_watchpoints(self, server: DebugServer, entries: list[Entry]) -> None:
        if not entries:
            return
        rows = [
            breakpoint_requests.WatchedValue(
                id=entry.id,
                expression=entry.watch or "",
                lines=entry.watched_lines,
                enabled=entry.enabled and entry.verified,
                condition=entry.condition,
                frame=entry.frame,
            )
            for entry in entries
        ]
        problems = await self._probes.ask(server, breakpoint_requests.Watchpoints(set=rows))
        for entry in entries:
            entry.frame = None  # the probe has its object now
            if entry.id in problems:
                entry.verified = False
                entry.message, entry.suggestion = problems[entry.id]

    def _functions_of(self, entries: list[Entry]) -> list[Entry]:
        # Some may have been removed while they were sent.
        present = [entry for entry in entries if entry.id in self._table]
        return [entry for entry in present if entry.function is not None]

    async def _find_functions(self, server: DebugServer, entries: list[Entry]) -> None:
        """Ask where the functions are now; an event reports those of modules loaded later."""
        if not entries:
            return
        names = [(entry.id, functions.plain(entry), entry.only_in) for entry in entries]
        answer = await self._probes.ask(server, breakpoint_requests.Functions(names=names))
        for id, found in answer.items():
            if id in self._table:
                entry = self._table.one(id)
                entry = functions.unplaced(entry) if found.places else replace(entry)
                functions.place(entry, found)
                self._table.put(entry)

    async def forget(self, server: DebugServer, entries: list[Entry]) -> None:
        watched = [entry.id for entry in entries if entry.watch is not None]
        if watched:
            await self._probes.ask(server, breakpoint_requests.Watchpoints(remove=watched))
        others = [entry.id for entry in entries if entry.watch is None]
        if others:
            await self._probes.ask(server, breakpoint_requests.Points(remove=others))

    async def suspend(self, server: DebugServer) -> None:
        await self._probes.ask(server, breakpoint_requests.Suspend(on=self._table.suspended))


def _row(entry: Entry, fresh: bool) -> breakpoint_requests.Point:
    return breakpoint_requests.Point(
        id=entry.id,
        place=(entry.real_path, entry.line) if entry.is_active else None,
        condition=entry.condition,
        hit=entry.hit,
        log=entry.log_message,
        enabled=entry.enabled,
        fresh=fresh,
    )
