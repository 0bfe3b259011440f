"""One stop of the program."""

from __future__ import annotations

from msgspec import Struct

from debug_relay.protocol.models.fields import Location
from debug_relay.protocol.models.sessions import ExceptionInfo, StopReason


class Stop(Struct):
    """Where and why the program stands."""

    thread_id: int
    reason: StopReason
    location: Location | None
    exception: ExceptionInfo | None
    hit_breakpoints: list[str]
    stop_id: int = 0
    pid: int | None = None
    is_child: bool = False  # of the program, and not the program itself
