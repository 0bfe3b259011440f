"""Breakpoints take in what programs report: functions that appear, failures, changed values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from debug_relay.protocol.models.breakpoints import ValueChange
from debug_relay.protocol.models.fields import Location
from debug_relay.protocol.wire.breakpoint_requests import FoundFunction
from debug_relay.protocol.wire.dap import SeenChange
from debug_relay.worker.breakpoints import never_found
from debug_relay.worker.breakpoints.functions import place
from debug_relay.worker.breakpoints.published import PublishedBreakpoints
from debug_relay.worker.breakpoints.table import BreakpointTable

_HOT: Final = (
    "A loop reaches this line again and again while the condition is false; each evaluation takes "
    "microseconds, so the program runs many times slower"
)
_HOT_ADVICE: Final = (
    "If that takes too long, write the condition into the program as an `if`, and set a breakpoint "
    "without a condition on its body: that costs nothing until the line is reached."
)


class BreakpointEvents:
    def __init__(self, table: BreakpointTable, published: PublishedBreakpoints) -> None:
        self._table = table
        self._published = published

    def appeared(self, id: str, found: FoundFunction) -> None:
        """The program has loaded code with the function, or with one that may be meant."""
        if id not in self._table:
            return
        entry = msgspec.structs.replace(self._table.one(id))
        before = self._published.show(entry)
        place(entry, found)
        self._table.put(entry)
        if self._published.show(entry) != before:
            self._published.journal("changed", [entry])

    def failed(self, id: str, message: str) -> None:
        """An expression of the breakpoint failed in the program; reported once, however many
        processes it is in.
        """
        if id in self._table and self._table.one(id).message != message:
            entry = self._table.one(id)
            entry.message = message
            self._published.journal("changed", [entry])

    def slows(self, id: str) -> None:
        """Warn that a hot loop evaluates the breakpoint's condition, unless it has a message."""
        if id in self._table and self._table.one(id).message is None:
            entry = self._table.one(id)
            entry.message, entry.suggestion = _HOT, _HOT_ADVICE
            self._published.journal("changed", [entry])

    def changed(self, seen: list[SeenChange]) -> list[ValueChange]:
        """Count the changes for which a thread has stopped at watchpoints."""
        found = []
        for change in seen:
            if change.id not in self._table:
                continue
            entry = self._table.one(change.id)
            entry.hit_count += 1
            location = None
            if change.path is not None and change.line is not None:
                location = Location(
                    path=change.path, line=change.line, column=1, function=change.function or ""
                )
            entry.change = ValueChange(
                id=entry.id,
                watch=entry.watch or "",
                before=change.before,
                after=change.after,
                location=location,
            )
            found.append(entry.change)
        return found

    async def never_found(self, files: Iterable[str]) -> list[str]:
        """The warnings, after the program's end, about functions that it never had. `files` are the
        script and the modules that it has loaded.
        """
        return await never_found.warnings(self._table, files, self._published.journal)
