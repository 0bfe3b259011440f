"""The stacks of processes that do not answer, read from their memory by py-spy."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from debug_relay.protocol.models import threads as t
from debug_relay.protocol.rendering.library_frames import is_debuggers, library_of
from debug_relay.protocol.system import py_spy
from debug_relay.worker.debugger.connection import DebugServer

log = logging.getLogger("debug_relay.worker")

THREADS: Final = 1000  # Threads of one process.
FRAMES: Final = 10  # Frames of one thread.
LOCALS: Final = 30  # Locals of one frame.
CHARACTERS: Final = 60_000  # Characters of all frames and locals of one process.
_FRAME: Final = 40  # Characters of a frame beside its name and path.


async def of_silent(servers: Iterable[DebugServer], every: bool) -> dict[int, t.Stacks]:
    """The stacks by pid, of those processes that can be read. `every`: with libraries' frames."""
    pids = [server.local_pid for server in servers if server.local_pid is not None]
    found = await asyncio.gather(*(_read(pid, every) for pid in pids))
    return {stacks.pid: stacks for stacks in found if stacks is not None}


async def _read(pid: int, every: bool) -> t.Stacks | None:
    try:
        found = t.Stacks.of(pid, await py_spy.stacks(pid, with_locals=True))
    except py_spy.NotInstalled:
        return None  # the note names the call that says how to install it
    except py_spy.Unreadable as error:
        log.info("stacks.unreadable", extra={"fields": {"pid": pid, "reason": str(error)}})
        return None
    room = CHARACTERS
    threads = [one for one in found.threads if every or not is_debuggers(one)]
    found.threads = threads[:THREADS]
    for thread in found.threads:
        thread.frames = [
            frame
            for number, frame in enumerate(thread.frames)
            if number == 0 or every or library_of(frame.filename, frame.name) is None
        ]
        del thread.frames[FRAMES:]
        for frame in thread.frames:
            room -= _FRAME + len(frame.name) + len(frame.filename)
            room = _cut(frame, room)
    return found


def _cut(frame: t.StackFrame, room: int) -> int:
    """Keeps as many locals as there is room for; returns the room that is left."""
    kept: list[t.StackLocal] = []
    for local in frame.locals[:LOCALS]:
        room -= len(local.name) + len(local.value or "")
        if room <= 0:
            break
        kept.append(local)
    frame.locals = kept
    return room
