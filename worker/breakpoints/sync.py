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

    # -- telling programs

    def new_run(self) -> None:
        """Clears the counts of former programs."""
        for entry in self._table:
            entry.hit_count = 0
        for entry in self._table.functions():
            self._table.put(functions.lost(entry))

    async def begin(self, server: DebugServer) -> None:
        """A debug server that knows no breakpoints yet."""
        if server.engine.decides_stops:
            counts = self._counts[server] = HitCounts()
            counts.shared = await self._probes.ask(
                server, probe.ShareHits(path=counts.path, capacity=CAPACITY)
            )
            if self.suspended:
                await self._probes.ask(server, probe.Suspend(on=True))
            await self._tell(server, list(self._table), frozenset())
            return
        for path in self._table.files():
            await self._send_file(server, path)
        for entry in self._table.functions():
            entry.message, entry.suggestion = functions.NO_PROBE, None

    async def set(self, entries: Iterable[Entry], fresh: Set[str] = frozenset()) -> None:
        """Sends the present state of these breakpoints; the `fresh` ones count from zero."""
        ids = [entry.id for entry in entries]

        async def tell(server: DebugServer) -> None:
            # Looked up for each server: telling the one before may have taken time.
            known = [self._table.one(id) for id in ids if id in self._table]
            if server.engine.decides_stops:
                await self._tell(server, known, fresh)
            else:
                for path in {entry.real_path for entry in known if entry.function is None}:
                    await self._send_file(server, path)
                for entry in known:
                    if entry.function is not None:
                        entry.message, entry.suggestion = functions.NO_PROBE, None

        await self._hub.each(self._hub.taking_changes(), tell)

    async def foretell(self, entries: list[Entry]) -> None:
        """Sends entries before the table has them: whoever reads there that a line is verified may
        rely on it.
        """
        await self._hub.each(
            self._probes.probed(), lambda server: self._tell(server, entries, frozenset())
        )

    async def forget(self, entries: list[Entry]) -> None:
        """They are not in the table any more."""

        async def tell(server: DebugServer) -> None:
            if server.engine.decides_stops:
                ids = [entry.id for entry in entries]
                await self._probes.ask(server, probe.Points(remove=ids))
            else:
                for path in {entry.real_path for entry in entries if entry.function is None}:
                    await self._send_file(server, path)

        await self._hub.each(self._hub.taking_changes(), tell)

    async def _tell(self, server: DebugServer, entries: list[Entry], fresh: Set[str]) -> None:
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
        # Some may have been removed while the program was told of them.
        present = [entry for entry in entries if entry.id in self._table]
        return [entry for entry in present if entry.function is not None]

    async def _find_functions(self, server: DebugServer, entries: list[Entry]) -> None:
        """Asks where the functions are now; for modules loaded later, an event reports them."""
        if not entries:
            return
        names = [(entry.id, functions.plain(entry), entry.only_in) for entry in entries]
        answer = await self._probes.ask(server, probe.Functions(names=names))
        for id, found in answer.items():
            if id in self._table:
                entry = self._table.one(id)
                entry = functions.lost(entry) if found.places else replace(entry)
                functions.place(entry, found)
                self._table.put(entry)

    async def find_heirs(self, entries: Iterable[Entry]) -> None:
        """Methods that are not found because their class has them from another: where they are."""
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
                    functions.tell_owner(missed[id], found.elsewhere)

    async def outdated(self, paths: Collection[str]) -> dict[str, frozenset[int]]:
        """Which processes run of these files what is no more on disk: a reloader's child has read
        again what the process that waits for it has not."""

        async def ask(server: DebugServer) -> tuple[int, list[str]]:
            return server.pid, await self._probes.ask(server, probe.Outdated(paths=sorted(paths)))

        told = await self._hub.each(self._probes.probed(), ask)
        return {path: frozenset(pid for pid, old in told if path in old) for path in paths}

    async def suspend(self, on: bool) -> None:
        """All of them, or none."""
        self.suspended = on

        async def tell(server: DebugServer) -> None:
            if server.engine.decides_stops:
                await self._probes.ask(server, probe.Suspend(on=on))
            else:
                for path in self._table.files():
                    await self._send_file(server, path)
                await self._send_exceptions(server)

        await self._hub.each(self._hub.taking_changes(), tell)

    # -- by plain DAP

    async def _send_file(self, server: DebugServer, path: str) -> None:
        entries = [e for e in self._table.in_file(path) if e.armed and not self.suspended]
        answer = await server.request(
            "setBreakpoints",
            {"source": {"path": path}, "breakpoints": [_plain(entry) for entry in entries]},
            dap.SetBreakpoints,
            self._settings.request_timeout,
        )
        moved = []
        for entry, told in zip(entries, answer.breakpoints, strict=False):
            if told.line != entry.line or not (told.verified or entry.pending):
                moved.append(entry)
            elif told.verified and entry.pending:
                # In a container, for one: nobody but the program can judge its lines.
                entry.verified, entry.pending = True, False
                entry.message, entry.suggestion = _ONLY_THERE, None
        if moved:
            # Judged otherwise than we do: a stop elsewhere than asked for would be a lie.
            for entry in moved:
                entry.verified = entry.pending = False
                entry.message = f"the debugger finds no code on line {entry.line}"
            await self._send_file(server, path)

    # -- counts

    def count_of(self, entry: Entry) -> int:
        return entry.hit_count + sum(counts.of(entry.id) for counts in self._counts.values())

    def skipped_lines(self, server: DebugServer, id: str) -> int:
        counts = self._counts.get(server)
        return 0 if counts is None else counts.skipped_lines(id)

    async def refresh_counts(self) -> None:
        """Only programs that could not share memory with us are asked."""
        for server, counts in list(self._counts.items()):
            if not counts.shared and not server.lost:
                counts.told = await self._probes.ask(server, probe.Hits())

    def server_gone(self, server: DebugServer) -> None:
        """A server has disconnected: its counts are final."""
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
        place=(entry.real_path, entry.line) if entry.armed else None,
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
