"""Breakpoints as callers and events see them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from debug_relay.protocol.models.breakpoints import Breakpoint
from debug_relay.worker.breakpoints.source_changes import OUTDATED, Pids, outdated_in
from debug_relay.worker.breakpoints.sync import BreakpointSync
from debug_relay.worker.breakpoints.table import BreakpointTable, Entry
from debug_relay.worker.debugger.hub import Hub
from debug_relay.worker.debugger.program_changes import NO_ANSWER, ProgramChanges
from debug_relay.worker.state.log import SessionLog
from debug_relay.worker.state.publication import Publication

_TOLD: Final = "An event `breakpoint` follows then."


class PublishedBreakpoints:
    def __init__(
        self,
        table: BreakpointTable,
        sync: BreakpointSync,
        hub: Hub,
        changes: ProgramChanges,
        log: SessionLog,
        publication: Publication,
    ) -> None:
        self._table = table
        self._sync = sync
        self._hub = hub
        self._changes = changes
        changes.taken = self._taken
        self._log = log
        self._publication = publication

    def show(self, entry: Entry) -> Breakpoint:
        # The entry of a removed breakpoint has its last count.
        known = entry.id in self._table
        shown = entry.shown(self._sync.count_of(entry) if known else entry.hit_count)
        if entry.message == OUTDATED:
            shown.message = outdated_in(entry.outdated_in, self.pids())
        if known and not self._changes.has_taken(entry.id):
            shown.verified = False
            shown.message, shown.suggestion = NO_ANSWER.format(what="the breakpoint"), _TOLD
        return shown

    def _taken(self, ids: Collection[str]) -> None:
        """The program has taken breakpoints late, or has ended."""
        present = [self._table.one(id) for id in ids if id in self._table]
        self.journal("changed", [one for one in present if self._changes.has_taken(one.id)])

    def journal(self, reason: str, entries: Iterable[Entry]) -> None:
        """Write one event for each of these, and save the session if there is any."""
        journaled = False
        for entry in entries:
            self._log.journal("breakpoint", {"reason": reason, "breakpoint": self.show(entry)})
            journaled = True
        if journaled:
            self._publication.changed()
            self._publication.save()

    def pids(self) -> Pids:
        """The processes that are debugged now."""
        return frozenset(server.pid for server in self._hub.servers)
