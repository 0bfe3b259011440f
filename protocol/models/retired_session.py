"""The files that a worker leaves when it retires after its session's end.

The supervisor answers from them afterwards, and the session's next worker starts with them.
"""

from __future__ import annotations

from typing import Final

from debug_relay.protocol.models.breakpoints import Breakpoint, ExceptionBreakpoints
from debug_relay.protocol.models.execution import Execution, TraceEnd
from debug_relay.protocol.models.fields import Result
from debug_relay.protocol.models.inspection import Watch
from debug_relay.protocol.models.sessions import Resources

FILE: Final = "aftermath.json"  # in the session's run directory
LEASE_FILE: Final = "lease.json"  # beside it, until the lease ends or a worker has it again


class TraceRecord(Result, kw_only=True):
    """Facts about a trace; its rows are in their own file."""

    ended: TraceEnd | None = None
    warnings: list[str] = []
    threads: dict[int, int] = {}  # the session's thread ids, by the numbers in the rows


class HeldLease(Result, kw_only=True):
    """A lease that outlives its session's worker. It lapses by the machine's monotonic clock, which
    begins anew with each boot.
    """

    holder: str
    ttl: float
    until: float
    boot_id: str
    since: float = 0.0  # seconds since the epoch; 0 if an earlier version has taken it
    front: str = ""  # a person's; empty for an agent
    key: str = ""  # `Caller.key` of the holder


class Aftermath(Result, kw_only=True):
    breakpoints: list[Breakpoint]
    exception_breakpoints: ExceptionBreakpoints
    watches: list[Watch]
    resources: Resources
    # These two describe the last run and its trace. Earlier versions wrote neither.
    execution: Execution | None = None
    trace: TraceRecord | None = None
