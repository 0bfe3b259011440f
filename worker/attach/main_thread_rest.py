"""Whether a program's main thread waits in one system call, and where; nothing of it is touched."""

from __future__ import annotations

import asyncio
from typing import Final

from debug_relay.protocol.system import procfs
from debug_relay.protocol.system.procfs import Syscall

# The time over which a main thread must not run to count as resting. A thread that waits for the
# GIL wakes every 5 ms to check it: that is not a rest.
_LOOK_SECONDS: Final = 0.03


async def resting_place(pid: int) -> Syscall | None:
    """The call in which it waits; None while it runs, or has run meanwhile."""
    before = _look(pid)
    if before is None:
        return None
    await asyncio.sleep(_LOOK_SECONDS)
    if _look(pid) != before:
        return None
    return before[1]


def _look(pid: int) -> tuple[int, Syscall] | None:
    """How often it has waited so far, and where it waits now."""
    call, status = procfs.syscall(pid, pid), procfs.status(pid)
    return (status.waits, call) if call is not None and status is not None else None
