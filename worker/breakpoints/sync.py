"""Keeps the programs' breakpoints in step with the session's, and reads their counts.

How breakpoints are sent to a program depends on its engine: `ProbeSync` or `PlainSync`. This module
decides nothing about breakpoints.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Set

from msgspec.structs import replace

from debug_relay.protocol.wire import breakpoint_requests
from debug_relay.worker.breakpoints import functions
from debug_relay.worker.breakpoints.plain_sync import PlainSync
from debug_relay.worker.breakpoints.probe_sync import ProbeSync
from debug_relay.worker.breakpoints.table import BreakpointTable, Entry
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.hub import Hub
from debug_relay.worker.debugger.probe_client import ProbeClient
from debug_relay.worker.debugger.program_changes import ProgramChanges
from debug_relay.worker.state.settings import Settings


class BreakpointSync:
    def __init__(
        self,
        settings: Settings,
        hub: Hub,
        changes: ProgramChanges,
        probes: ProbeClient,
        table: BreakpointTable,
        send_exceptions: Callable[[DebugServer], Awaitable[None]],
    ) -> None:
        """`send_exceptions` sends the exception breakpoints to a debug server."""
        self._hub = hub
        self._changes = changes
        self._probes = probes
        self._table = table
        self._by_probe = ProbeSync(probes, table)
        self._by_dap = PlainSync(table, send_exceptions, settings.request_timeout)
        self._counts = self._by_probe.counts

    # -- sending

    def _sync_of(self, server: DebugServer) -> ProbeSync | PlainSync:
        return self._by_probe if server.engine.can.decide_stops else self._by_dap

    def probed(self) -> list[DebugServer]:
        """The programs with the probe that answer now."""
        return self._changes.answering(self._probes.probed())

    def new_run(self) -> None:
        """Clear what was of former programs: counts, changes, and watchpoints on their objects."""
        for entry in self._table:
            entry.hit_count, entry.change = 0, None
            if entry.of_frame:
                self._table.drop(entry.id)
        for entry in self._table.functions():
            self._table.put(functions.unplaced(entry))

    async def begin(self, server: DebugServer) -> None:
        """Send all breakpoints to a debug server that has none yet."""
        await self._sync_of(server).begin(server)

    async def set(self, entries: Iterable[Entry], fresh: Set[str] = frozenset()) -> None:
        """Sends the present state of these breakpoints; the `fresh` ones count from zero."""
        ids = [entry.id for entry in entries]

        async def send(server: DebugServer) -> None:
            # Entries are looked up for each server: sending to the one before may have taken time.
            known = [self._table.one(id) for id in ids if id in self._table]
            await self._sync_of(server).set(server, known, fresh)

        await self._changes.make(send, ids)

    async def send_early(self, entries: list[Entry]) -> None:
        """Send entries before the table has them, so that a line is in the programs when a caller
        can read that it is verified.
        """
        await self._changes.make(
            lambda server: self._by_probe.set(server, entries),
            [entry.id for entry in entries],
            to=self._probes.probed(),
        )

    async def forget(self, entries: list[Entry]) -> None:
        """Remove entries from the programs; the table has them no more."""
        await self._changes.make(lambda server: self._sync_of(server).forget(server, entries))

    async def suspend(self, on: bool) -> None:
        """Suspend all breakpoints in all programs, or end that."""
        self._table.suspended = on
        await self._changes.make(lambda server: self._sync_of(server).suspend(server))

    # -- requests to the programs that have the probe

    async def find_inherited(self, entries: Iterable[Entry]) -> None:
        """Find methods that were not found because their class inherits them."""
        missed = {e.id: e for e in entries if functions.is_missed_method(e)}
        if not missed:
            return

        async def ask(server: DebugServer) -> dict[str, breakpoint_requests.FoundFunction]:
            return await self._probes.ask(server, breakpoint_requests.Inherited(ids=list(missed)))

        for answer in await self._hub.each(self.probed(), ask):
            for id, found in answer.items():
                if found.places and id in self._table:
                    entry = replace(self._table.one(id))
                    functions.place(entry, found)
                    self._table.put(entry)
                elif not found.places:
                    functions.explain_owner(missed[id], found.elsewhere)

    async def outdated(self, paths: Collection[str]) -> dict[str, frozenset[int]]:
        """For each of these files, the processes that run an older version than the one on disk. A
        reloader's child has read a file again, for example, and its parent has not.
        """

        async def ask(server: DebugServer) -> tuple[int, list[str]]:
            return server.pid, await self._probes.ask(
                server, breakpoint_requests.Outdated(paths=sorted(paths))
            )

        reported = await self._hub.each(self.probed(), ask)
        return {path: frozenset(pid for pid, old in reported if path in old) for path in paths}

    # -- counts

    def count_of(self, entry: Entry) -> int:
        return entry.hit_count + sum(counts.of(entry.id) for counts in self._counts.values())

    def skipped_lines(self, server: DebugServer, id: str) -> int:
        counts = self._counts.get(server)
        return 0 if counts is None else counts.skipped_lines(id)

    async def refresh_counts(self) -> None:
        """Ask the programs that could not share memory with us for their counts."""
        for server, counts in list(self._counts.items()):
            if not (counts.shared or server.lost or self._changes.is_late(server)):
                counts.reported = await self._probes.ask(server, breakpoint_requests.Hits())

    def server_gone(self, server: DebugServer) -> None:
        """Keep the counts of a server that has disconnected: they are final."""
        counts = self._counts.pop(server, None)
        if counts is not None:
            for entry in self._table:
                entry.hit_count += counts.of(entry.id)
            counts.close()
        if not self._hub.servers:
            self._table.suspended = False

    def close(self) -> None:
        for server in list(self._counts):
            self.server_gone(server)
