"""Sends breakpoints to a program without the probe, by plain DAP: all of a file at once, each with
a condition or a count, and no functions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Set
from typing import Any, Final

from debug_relay.protocol.wire import dap
from debug_relay.worker.breakpoints import functions, watchpoints
from debug_relay.worker.breakpoints.table import BreakpointTable, Entry
from debug_relay.worker.debugger.connection import DebugServer

_ONLY_THERE: Final = "the program has this file, but it does not exist here"


class PlainSync:
    def __init__(
        self,
        table: BreakpointTable,
        send_exceptions: Callable[[DebugServer], Awaitable[None]],
        request_timeout: float,
    ) -> None:
        """`send_exceptions` sends the exception breakpoints to a debug server."""
        self._table = table
        self._send_exceptions = send_exceptions
        self._request_timeout = request_timeout

    async def begin(self, server: DebugServer) -> None:
        await self.set(server, list(self._table))

    async def set(
        self, server: DebugServer, entries: list[Entry], fresh: Set[str] = frozenset()
    ) -> None:
        """`fresh` is not used: the program's debugger counts for itself."""
        await self._send_files(server, entries)
        for entry in entries:
            if entry.function is not None:
                entry.message, entry.suggestion = functions.NO_PROBE, None
            elif entry.watch is not None:
                entry.verified, entry.message = False, watchpoints.NO_PROBE

    async def forget(self, server: DebugServer, entries: list[Entry]) -> None:
        await self._send_files(server, entries)

    async def suspend(self, server: DebugServer) -> None:
        await self._send_files(server, list(self._table))
        await self._send_exceptions(server)

    async def _send_files(self, server: DebugServer, entries: list[Entry]) -> None:
        for path in {entry.real_path for entry in entries if entry.is_line}:
            await self._send_file(server, path)

    async def _send_file(self, server: DebugServer, path: str) -> None:
        active = [e for e in self._table.in_file(path) if e.is_active and not self._table.suspended]
        # pydevd has one breakpoint for each line. Where several owners have one there, one without
        # a condition counts: it stops too often rather than never.
        active.sort(key=lambda e: (e.line, e.condition is None and e.hit_condition is None))
        entries = list({entry.line: entry for entry in active}.values())
        answer = await server.request(
            "setBreakpoints",
            {"source": {"path": path}, "breakpoints": [_plain(entry) for entry in entries]},
            dap.SetBreakpoints,
            self._request_timeout,
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


def _plain(entry: Entry) -> dict[str, Any]:
    # Plain DAP takes condition *or* count where both mean "and": the condition alone stops too
    # often rather than never.
    sent: dict[str, Any] = {"line": entry.line, "logMessage": entry.log_message}
    if entry.condition is not None:
        return {**sent, "condition": entry.condition}
    return {**sent, "hitCondition": entry.hit_condition}
