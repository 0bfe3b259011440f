"""What child processes print, told apart: each has pipes of its own.

A child that inherits the program's output is given other ends for it while it waits in its
handshake (`probe/children/child_streams.py`); it opens them through /proc, as it opens what counts
its hits. The kernel tells of pipes in the order in which they were written to, and in that they are
read. What a child has redirected itself stays so. Its own undebugged children print where it
prints.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from msgspec import Struct

from debug_relay.protocol.errors import RelayError
from debug_relay.protocol.models.output_events import Category
from debug_relay.worker.debuggee.process import Pump
from debug_relay.worker.debugger.connection import DebugServer

_NAMES: Final[tuple[Category, ...]] = ("stdout", "stderr")


class Stream(Struct):
    category: Category
    pump: Pump


class ChildOutput:
    def __init__(self, deliver: Callable[[Category, bytes, int], None]) -> None:
        self._deliver = deliver
        self._streams: dict[int, Stream] = {}  # by inode

    async def take_over(self, server: DebugServer, program: Mapping[int, Category]) -> None:
        """From here on its output is its own; `program` are the inodes of the program's pipes."""
        known = {**program, **{inode: one.category for inode, one in self._streams.items()}}
        pipes = {name: os.pipe2(os.O_CLOEXEC) for name in _NAMES}
        used: list[Category] = []
        try:
            ends = {name: f"/proc/{os.getpid()}/fd/{pipes[name][1]}" for name in pipes}
            # What cannot be told apart is no reason to run without a debugger.
            with contextlib.suppress(RelayError):
                used = await server.engine.move_output(
                    {str(inode): name for inode, name in known.items()}, ends
                )
        finally:
            for name, (reading, writing) in pipes.items():
                os.close(writing)
                if name in used:
                    self._read(name, reading, server.pid)
                else:
                    os.close(reading)

    def _read(self, name: Category, fd: int, pid: int) -> None:
        inode = os.fstat(fd).st_ino
        pump = Pump(
            fd,
            partial(self._printed, inode, name, pid),
            on_end=lambda: self._streams.pop(inode, None),
            roomy=False,
        )
        self._streams[inode] = Stream(name, pump)

    def _printed(self, inode: int, name: Category, pid: int, data: bytes) -> None:
        self.flush(but=inode)
        self._deliver(name, data, pid)

    def flush(self, but: int | None = None) -> None:
        """Lines that others have begun come before what is printed now."""
        for inode, stream in list(self._streams.items()):
            if inode != but:
                stream.pump.flush()

    def drain(self) -> None:
        """All that was printed so far is delivered."""
        for stream in list(self._streams.values()):
            stream.pump.drain()

    def close(self) -> None:
        for stream in list(self._streams.values()):
            stream.pump.close()
