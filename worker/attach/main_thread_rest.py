"""Finds out whether a program's main thread rests in one system call, without touching it."""

from __future__ import annotations

import asyncio
from typing import Final

from debug_relay.protocol.system import procfs
from debug_relay.protocol.system.procfs import Syscall

# The time over which a main thread must not run to count as resting. A thread that waits for the
# GIL wakes every 5 ms to check it: it does not rest.
_LOOK_SECONDS: Final = 0.03


async def resting_place(pid: int) -> Syscall | None:
    """The system call in which the main thread rests; None if it runs, or has run meanwhile."""
    before = _look(pid)
    if before is None:
        return None
    await asyncio.sleep(_LOOK_SECONDS)
    if _look(pid) != before:
        return None
    return before[1]


def _look(pid: int) -> tuple[int, Syscall] | None:
    """The number of times that the thread has waited so far, and the call in which it waits."""
    call, status = procfs.syscall(pid, pid), procfs.status(pid)
    return (status.waits, call) if call is not None and status is not None else None
