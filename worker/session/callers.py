"""Finds the caller that caused an event: the one whose call is served, or that resumed the program.

The caller is kept by task and not in a context variable, because a task that a call has started and
left running acts for no caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from debug_relay.protocol.models.output_events import EventType
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.wire.frames import Caller

_RESUMING: Final = frozenset(
    name for name, row in OPERATIONS.items() if row.drives and name != "input"
)
# A caller causes these stops; at all others the program stops by itself.
_CAUSED: Final = frozenset({"step", "pause", "entry", "run-to"})


class Callers:
    def __init__(self) -> None:
        self._calling: dict[asyncio.Task[Any], tuple[Caller, int | None]] = {}
        self._resumed_by: str | None = None
        self._ended_by: str | None = None

    @contextmanager
    def acting(self, caller: Caller, if_stop: int | None) -> Iterator[None]:
        """Let the present task act for this caller, whose call means the stop `if_stop`."""
        task = asyncio.current_task()
        assert task is not None
        self._calling[task] = caller, if_stop
        try:
            yield
        finally:
            del self._calling[task]

    @contextmanager
    def ending(self, caller: Caller | None) -> Iterator[None]:
        """Let the present task end the session for this caller, or for nobody."""
        if caller is None:
            yield
            return
        self._resumed_by = self._ended_by = caller.driver
        with self.acting(caller, None):
            yield

    def allowed(self, operation: str) -> None:
        """Note that the present call was admitted."""
        if operation in _RESUMING:
            self._resumed_by = self._name()

    def of(self, type: EventType, body: Mapping[str, Any]) -> str | None:
        if self._ended_by is not None:
            # A task that acts for no caller writes what the debugger reports of the end.
            return self._name() or self._ended_by
        if type == "stopped":
            return self._resumed_by if body["reason"] in _CAUSED else None
        if type == "terminated":
            return self._resumed_by if body["end_reason"] == "terminated" else None
        if type == "session" and body["status"] == "running":
            # The first stop may be handled before the launch call continues. The task that handles
            # it writes this event, and acts for no caller.
            return self._name() or self._resumed_by
        return self._name()

    def present(self) -> Caller | None:
        return self._call()[0]

    def _name(self) -> str | None:
        caller = self.present()
        return caller.driver if caller is not None else None

    def seen(self) -> int | None:
        """The stop that the present call means (`If-Stop`), if it names one."""
        return self._call()[1]

    def _call(self) -> tuple[Caller | None, int | None]:
        task = asyncio.current_task()
        return self._calling.get(task, (None, None)) if task is not None else (None, None)
