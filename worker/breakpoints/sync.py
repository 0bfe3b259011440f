"""Sends breakpoints to the debugged programs and reads their counts.

With the probe, a breakpoint is a row in the probe's table: place, condition, count, log message. A
program without the probe gets them by plain DAP, which supports less. This module decides nothing
about breakpoints.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Set
from typing import Any, Final

from msgspec.structs import replace

from debug_relay.protocol.wire import dap
from debug_relay.protocol.wire import probe_messages as probe
from debug_relay.worker.breakpoints import functions
from debug_relay.worker.breakpoints.functions import LEFT_OUT
from debug_relay.worker.breakpoints.hit_counts import CAPACITY, HitCounts
from debug_relay.worker.breakpoints.table import BreakpointTable, Entry
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.hub import Hub
from debug_relay.worker.debugger.probe_client import ProbeClient
from debug_relay.worker.state.settings import Settings

_ONLY_THERE: Final = "the program has this file, but it does not exist here"


class BreakpointSync:
    def __init__(
        self,
        settings: Settings,
        hub: Hub,
        probes: ProbeClient,
        table: BreakpointTable,
        send_exceptions: Callable[[DebugServer], Awaitable[None]],
    ) -> None:
        """`send_exceptions` sends the exception breakpoints to a debug server."""
        self._settings = settings
        self._hub = hub
        self._probes = probes
        self._send_exceptions = send_exceptions
        self._table = table
        self._counts: dict[DebugServer, HitCounts] = {}
        self.suspended = False

    # -- sending

    def new_run(self) -> None:
        """Clear the counts of former programs."""
        for entry in self._table:
            entry.hit_count = 0
        for entry in self._table.functions():
            self._table.put(functions.unplaced(entry))

    async def begin(self, server: DebugServer) -> None:
        """Send all breakpoints to a debug server that has none yet."""
        if server.engine.decides_stops:
            counts = self._counts[server] = HitCounts()
            counts.shared = await self._probes.ask(
                server, probe.ShareHits(path=counts.path, capacity=CAPACITY)
            )
            if self.suspended:
                await self._probes.ask(server, probe.Suspend(on=True))
            await self._send_rows(server, list(self._table), frozenset())
            return
        for path in self._table.files():
            await self._send_file(server, path)
        for entry in self._table.functions():
            entry.message, entry.suggestion = functions.NO_PROBE, None

    async def set(self, entries: Iterable[Entry], fresh: Set[str] = frozenset()) -> None:
        """Sends the present state of these breakpoints; the `fresh` ones count from zero."""
        ids = [entry.id for entry in entries]

        async def send(server: DebugServer) -> None:
            # Entries are looked up for each server: sending to the one before may have taken time.
            known = [self._table.one(id) for id in ids if id in self._table]
            if server.engine.decides_stops:
                await self._send_rows(server, known, fresh)
            else:
                for path in {entry.real_path for entry in known if entry.function is None}:
                    await self._send_file(server, path)
                for entry in known:
                    if entry.function is not None:
                        entry.message, entry.suggestion = functions.NO_PROBE, None

        await self._hub.each(self._hub.taking_changes(), send)

    async def send_early(self, entries: list[Entry]) -> None:
        """Send entries before the table has them, so that a line is in the programs when a caller
        can read that it is verified.
        """
        await self._hub.each(
            self._probes.probed(), lambda server: self._send_rows(server, entries, frozenset())
        )

    async def forget(self, entries: list[Entry]) -> None:
        """Remove entries from the programs; the table has them no more."""

        async def send(server: DebugServer) -> None:
            if server.engine.decides_stops:
                ids = [entry.id for entry in entries]
                await self._probes.ask(server, probe.Points(remove=ids))
            else:
                for path in {entry.real_path for entry in entries if entry.function is None}:
                    await self._send_file(server, path)

        await self._hub.each(self._hub.taking_changes(), send)

    async def _send_rows(self, server: DebugServer, entries: list[Entry], fresh: Set[str]) -> None:
        if not entries:
            return
        rows = [_row(entry, entry.id in fresh) for entry in entries]
        left_out = await self._probes.ask(server, probe.Points(set=rows))
        for entry in entries:
            if entry.id in left_out:
                entry.verified = False
                entry.message, entry.suggestion = LEFT_OUT[left_out[entry.id]]
        await self._find_functions(server, self._functions_of(entries))

    def _functions_of(self, entries: list[Entry]) -> list[Entry]:
        # Some may have been removed while they were sent.
        present = [entry for entry in entries if entry.id in self._table]
        return [entry for entry in present if entry.function is not None]

    async def _find_functions(self, server: DebugServer, entries: list[Entry]) -> None:
        """Ask where the functions are now; an event reports those of modules loaded later."""
        if not entries:
            return
        names = [(entry.id, functions.plain(entry), entry.only_in) for entry in entries]
        answer = await self._probes.ask(server, probe.Functions(names=names))
        for id, found in answer.items():
            if id in self._table:
                entry = self._table.one(id)
                entry = functions.unplaced(entry) if found.places else replace(entry)
                functions.place(entry, found)
                self._table.put(entry)

    async def find_inherited(self, entries: Iterable[Entry]) -> None:
        """Find methods that were not found because their class inherits them."""
        missed = {e.id: e for e in entries if functions.is_missed_method(e)}
        if not missed:
            return

        async def ask(server: DebugServer) -> dict[str, probe.FoundFunction]:
            return await self._probes.ask(server, probe.Inherited(ids=list(missed)))

        for answer in await self._hub.each(self._probes.probed(), ask):
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
            return server.pid, await self._probes.ask(server, probe.Outdated(paths=sorted(paths)))

        reported = await self._hub.each(self._probes.probed(), ask)
        return {path: frozenset(pid for pid, old in reported if path in old) for path in paths}

    async def suspend(self, on: bool) -> None:
        """Suspend all breakpoints in all programs, or end that."""
        self.suspended = on

        async def send(server: DebugServer) -> None:
            if server.engine.decides_stops:
                await self._probes.ask(server, probe.Suspend(on=on))
            else:
                for path in self._table.files():
                    await self._send_file(server, path)
                await self._send_exceptions(server)

        await self._hub.each(self._hub.taking_changes(), send)

    # -- by plain DAP

    async def _send_file(self, server: DebugServer, path: str) -> None:
        entries = [e for e in self._table.in_file(path) if e.is_active and not self.suspended]
        answer = await server.request(
            "setBreakpoints",
            {"source": {"path": path}, "breakpoints": [_plain(entry) for entry in entries]},
            dap.SetBreakpoints,
            self._settings.request_timeout,
        )
        moved = []
        for entry, reported in zip(entries, answer.breakpoints, strict=False):
            if reported.line != entry.line or not (reported.verified or entry.pending):
                moved.append(entry)
            elif reported.verified and entry.pending:
                # The program may be in a container: only the program can verify its lines.
                entry.verified, entry.pending = True, False
                entry.message, entry.suggestion = _ONLY_THERE, None
        if moved:
            # pydevd would move these breakpoints. Remove them: a stop on another line than the
            # requested one would be wrong.
            for entry in moved:
                entry.verified = entry.pending = False
                entry.message = f"the program's debugger finds no code on line {entry.line}"
            await self._send_file(server, path)

    # -- counts

    def count_of(self, entry: Entry) -> int:
        return entry.hit_count + sum(counts.of(entry.id) for counts in self._counts.values())

    def skipped_lines(self, server: DebugServer, id: str) -> int:
        counts = self._counts.get(server)
        return 0 if counts is None else counts.skipped_lines(id)

    async def refresh_counts(self) -> None:
        """Ask the programs that could not share memory with us for their counts."""
        for server, counts in list(self._counts.items()):
            if not counts.shared and not server.lost:
                counts.reported = await self._probes.ask(server, probe.Hits())

    def server_gone(self, server: DebugServer) -> None:
        """Keep the counts of a server that has disconnected: they are final."""
        counts = self._counts.pop(server, None)
        if counts is not None:
            for entry in self._table:
                entry.hit_count += counts.of(entry.id)
            counts.close()
        if not self._hub.servers:
            self.suspended = False

    def close(self) -> None:
        for server in list(self._counts):
            self.server_gone(server)


def _row(entry: Entry, fresh: bool) -> probe.Point:
    return probe.Point(
        id=entry.id,
        place=(entry.real_path, entry.line) if entry.is_active else None,
        condition=entry.condition,
        hit=entry.hit,
        log=entry.log_message,
        enabled=entry.enabled,
        fresh=fresh,
    )


def _plain(entry: Entry) -> dict[str, Any]:
    # Plain DAP takes condition *or* count where both mean "and": the condition alone stops too
    # often rather than never.
    sent: dict[str, Any] = {"line": entry.line, "logMessage": entry.log_message}
    if entry.condition is not None:
        return {**sent, "condition": entry.condition}
    return {**sent, "hitCondition": entry.hit_condition}
