"""Whose doing an event is: of the call in which it happens, or of the one that moved the program.

Told by tasks and not by context: what a call has started and left to itself is nobody's doing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from debug_relay.protocol.models.output_events import EventType
from debug_relay.protocol.operations import OPERATIONS

_MOVING: Final = frozenset(
    name for name, row in OPERATIONS.items() if row.drives and name != "input"
)
# What a program comes to because somebody has moved it; at the others it comes to by itself.
_BROUGHT: Final = frozenset({"step", "pause", "entry", "run-to"})


class Actors:
    def __init__(self) -> None:
        self._calling: dict[asyncio.Task[Any], tuple[str, int | None]] = {}
        self._moved_by: str | None = None

    @contextmanager
    def acting(self, name: str, if_stop: int | None) -> Iterator[None]:
        """What the present task does is this caller's doing, who has seen that stop."""
        task = asyncio.current_task()
        assert task is not None
        self._calling[task] = name, if_stop
        try:
            yield
        finally:
            del self._calling[task]

    def allowed(self, operation: str) -> None:
        """The present call may do what it asks for."""
        if operation in _MOVING:
            self._moved_by = self.present()

    def of(self, type: EventType, body: Mapping[str, Any]) -> str | None:
        if type == "stopped":
            return self._moved_by if body["reason"] in _BROUGHT else None
        if type == "terminated":
            return self._moved_by if body["end_reason"] == "terminated" else None
        if type == "session" and body["status"] == "running":
            # A stop may come before the launch's own next line.
            return self.present() or self._moved_by
        return self.present()

    def present(self) -> str | None:
        return self._call()[0]

    def seen(self) -> int | None:
        """The stop at which the present call means to act, if it says so."""
        return self._call()[1]

    def _call(self) -> tuple[str | None, int | None]:
        task = asyncio.current_task()
        return self._calling.get(task, (None, None)) if task is not None else (None, None)
