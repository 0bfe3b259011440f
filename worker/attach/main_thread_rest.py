"""Whether a program's main thread stands still in one system call, by the kernel's word.

Knows /proc and nothing of Python or of debuggers.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

# Who waits for the interpreter looks every 5 ms whether it is free: that is no rest.
_LOOK_SECONDS: Final = 0.03


class Place(Struct, frozen=True):
    """Where in its code, and on its stack, a thread has entered the kernel."""

    stack: int
    code: int


async def resting_place(pid: int) -> Place | None:
    """None while it runs, or has run meanwhile."""
    before = _look(pid)
    if before is None:
        return None
    await asyncio.sleep(_LOOK_SECONDS)
    if _look(pid) != before:
        return None
    return before[1]


def _look(pid: int) -> tuple[int, Place] | None:
    """How often it has waited so far, and where it waits now."""
    folder = Path(f"/proc/{pid}/task/{pid}")
    with suppress(OSError, ValueError, StopIteration):
        call = (folder / "syscall").read_text().split()
        if len(call) != 9:
            return None  # `running`
        lines = (folder / "status").read_text("utf-8", "replace").splitlines()
        waits = next(line for line in lines if line.startswith("voluntary_ctxt_switches:"))
        return int(waits.split()[1]), Place(int(call[7], 16), int(call[8], 16))
    return None
