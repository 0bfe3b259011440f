"""Breakpoints are verified again when files, the interpreter or programs change.

A breakpoint in a file that has changed since a program loaded it is marked: the older text runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import msgspec

from debug_relay.protocol.errors import RelayError
from debug_relay.worker.breakpoints.published import PublishedBreakpoints
from debug_relay.worker.breakpoints.source_changes import (
    OUTDATED,
    Identity,
    LoadedSources,
    Pids,
    SourceWatch,
    outdated_in,
)
from debug_relay.worker.breakpoints.sync import BreakpointSync
from debug_relay.worker.breakpoints.table import BreakpointTable, Entry
from debug_relay.worker.breakpoints.verification import NO_FILE, Verifier
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.stops import Stops


class Reverification:
    def __init__(
        self,
        table: BreakpointTable,
        verifier: Verifier,
        sync: BreakpointSync,
        published: PublishedBreakpoints,
        stops: Stops,
        changing: asyncio.Lock,
    ) -> None:
        """`changing` is held while breakpoints are verified and stored."""
        self._table = table
        self._verifier = verifier
        self._sync = sync
        self._published = published
        self._stops = stops
        self._changing = changing
        self._watch = SourceWatch(self._watched, self._sources_changed)
        self._loaded = LoadedSources(sync.outdated, sync.probed)

    def seen(self, files: dict[str, Identity | None]) -> None:
        """Note the versions of files that breakpoints were verified with."""
        self._watch.seen(files)

    def new_run(self) -> None:
        """A program is about to begin: it will load the files as they are now."""
        self._loaded.begin()

    async def verify_again(self) -> None:
        """Verify all breakpoints again before a launch: files and the interpreter may have
        changed.
        """
        async with self._changing:
            entries = [entry for entry in self._table if entry.function is None]
            await self._reverify(entries, in_programs=False)

    async def before_hit(self, ids: list[str], named: bool) -> None:
        """Verify what a program has hit: its file must exist. `named`: the program said which."""
        if any(not self._table.one(id).verified for id in ids):
            # The program has just written this file, and the file watch has not seen it yet.
            await self._watch.look()
        for entry in [self._table.one(id) for id in ids if id in self._table]:
            if named and entry.pending:
                # The code is in an archive, or was never in a file. The program stopped on the
                # requested line, so the line exists.
                found = msgspec.structs.replace(
                    entry, verified=True, pending=False, message=NO_FILE, suggestion=None
                )
                self._table.put(found)
                self._published.journal("changed", [found])
        await self._look_at_loaded([self._table.one(id) for id in ids if id in self._table])

    async def _look_at_loaded(self, entries: list[Entry]) -> None:
        """Ask again about outdated files: the program may have loaded them anew since."""
        marked = [entry for entry in entries if entry.message == OUTDATED]
        if not marked:
            return
        nowhere: dict[str, Pids] = {entry.path: frozenset() for entry in marked}
        self._renew(nowhere | await self.outdated(nowhere.keys(), self._stops.stop_id + 1))

    def _renew(self, where: dict[str, Pids]) -> None:
        """Update the processes in which breakpoints are outdated."""
        renewed = [
            msgspec.structs.replace(entry, message=OUTDATED if pids else None, outdated_in=pids)
            for entry in self._table
            if entry.message == OUTDATED
            and (pids := where.get(entry.path, entry.outdated_in)) != entry.outdated_in
        ]
        for entry in renewed:
            self._table.put(entry)
        self._published.journal("changed", renewed)

    def _watched(self) -> dict[str, bool]:
        watched: dict[str, bool] = {}
        for entry in self._table:
            if entry.is_line:
                watched[entry.path] = entry.pending
        return watched

    async def _sources_changed(self, paths: set[str]) -> None:
        async with self._changing:
            changed = [entry for entry in self._table if entry.path in paths and entry.path]
            await self._reverify([entry for entry in changed if entry.function is None])

    async def _reverify(self, entries: list[Entry], in_programs: bool = True) -> None:
        """Verify entries again, and journal those that have changed."""
        if not entries:
            return
        batch = await self._verifier.batch()
        before = {entry.id: self._published.show(entry) for entry in entries}
        again = []
        for entry in entries:
            checked = msgspec.structs.replace(entry)
            await batch.verify_again(checked)
            again.append(checked)
        self._watch.seen(batch.seen)
        try:
            await self._take_over(again, in_programs)
        finally:
            changed = [entry for entry in again if self._published.show(entry) != before[entry.id]]
            self._published.journal("changed", changed)

    async def _take_over(self, checked: list[Entry], in_programs: bool) -> None:
        try:
            if in_programs:
                await self._sync.send_early(checked)
        finally:
            # Stored even if the program ends just now: no later check would verify them again.
            for entry in checked:
                self._table.put(entry)
        if in_programs:
            await self._sync.set(checked)
        await self.mark_outdated(checked)

    async def mark_outdated(self, entries: list[Entry]) -> None:
        """Mark those whose file is newer than what a program runs."""
        outdated = await self.outdated({entry.path for entry in entries if entry.verified})
        for entry in entries:
            if entry.verified and entry.path in outdated:
                entry.message, entry.outdated_in = OUTDATED, outdated[entry.path]

    async def outdated(self, paths: Collection[str], moment: int | None = None) -> dict[str, Pids]:
        """For each of these files, the processes that run an older version than the one on disk."""
        try:
            moment = self._stops.stop_id if moment is None else moment
            return await self._loaded.outdated(paths, moment)
        except RelayError:
            return {}  # the program has ended, or does not answer: nothing is known of it

    def reword(self, former: Pids) -> None:
        """Journal outdated breakpoints whose message changed because the list of processes did."""
        now = self._published.pids()

        def reads_otherwise(pids: Pids) -> bool:
            return outdated_in(pids, former) != outdated_in(pids, now)

        marked = [entry for entry in self._table if entry.message == OUTDATED]
        self._published.journal(
            "changed", [entry for entry in marked if reads_otherwise(entry.outdated_in)]
        )

    def server_gone(self, server: DebugServer) -> None:
        """A process that has ended runs no older version of a file any more."""
        marked = [entry for entry in self._table if entry.message == OUTDATED]
        self._renew({entry.path: entry.outdated_in - {server.pid} for entry in marked})
        self.reword(self._published.pids() | {server.pid})

    async def close(self) -> None:
        await self._watch.close()
