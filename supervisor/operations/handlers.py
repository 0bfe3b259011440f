"""The handler of each operation that the supervisor answers itself, by the operation's name."""

from __future__ import annotations

from debug_relay.protocol.operation_row import Operation
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.supervisor.operations.answers import Handler
from debug_relay.supervisor.operations.output_handlers import OutputHandlers
from debug_relay.supervisor.operations.relay_handlers import RelayHandlers
from debug_relay.supervisor.operations.session_handlers import SessionHandlers


class Handlers:
    def __init__(
        self, relay: RelayHandlers, sessions: SessionHandlers, output: OutputHandlers
    ) -> None:
        self._table: dict[str, Handler] = {**relay.table(), **sessions.table(), **output.table()}
        wanted = {
            row.name for row in OPERATIONS.values() if row.side == "supervisor" and not row.streams
        }
        if wanted != self._table.keys():
            differ = sorted(wanted ^ self._table.keys())
            raise RuntimeError(f"operations and handlers differ: {differ}")

    def of(self, operation: Operation) -> Handler | None:
        """The handler of an operation; None if the worker answers it."""
        return self._table.get(operation.name)
