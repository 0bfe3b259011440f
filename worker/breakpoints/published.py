"""Breakpoints as callers and events see them."""

from __future__ import annotations

from collections.abc import Iterable

from debug_relay.protocol.models.breakpoints import Breakpoint
from debug_relay.worker.breakpoints.source_changes import OUTDATED, Pids, outdated_in
from debug_relay.worker.breakpoints.sync import BreakpointSync
from debug_relay.worker.breakpoints.table import BreakpointTable, Entry
from debug_relay.worker.debugger.hub import Hub
from debug_relay.worker.state.log import SessionLog
from debug_relay.worker.state.publication import Publication


class PublishedBreakpoints:
    def __init__(
        self,
        table: BreakpointTable,
        sync: BreakpointSync,
        hub: Hub,
        log: SessionLog,
        publication: Publication,
    ) -> None:
        self._table = table
        self._sync = sync
        self._hub = hub
        self._log = log
        self._publication = publication

    def show(self, entry: Entry) -> Breakpoint:
        # The entry of a removed breakpoint has its last count.
        known = entry.id in self._table
        shown = entry.shown(self._sync.count_of(entry) if known else entry.hit_count)
        if entry.message == OUTDATED:
            shown.message = outdated_in(entry.outdated_in, self.pids())
        return shown

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
