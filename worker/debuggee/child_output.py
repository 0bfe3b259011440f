"""Reads the output of child processes, each by pipes of its own.

A child that inherits the program's output gets other pipes for it while it waits in its handshake
(`probe/children/child_streams.py`). It opens them through /proc, as it opens the file of its hit
counts. The kernel reports pipes as readable in the order in which they were written to, and we read
them in that order. Output that a child has redirected itself stays so. A child's own children that
are not debugged print into its pipes.
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
from debug_relay.worker.debuggee.output_pipe import Pump
from debug_relay.worker.debugger.connection import DebugServer

_NAMES: Final[tuple[Category, ...]] = ("stdout", "stderr")


class Stream(Struct):
    category: Category
    pump: Pump


class ChildOutput:
    def __init__(self, deliver: Callable[[Category, bytes, int], None]) -> None:
        self._deliver = deliver
        self._streams: dict[int, Stream] = {}  # inode → stream

    async def take_over(self, server: DebugServer, program: Mapping[int, Category]) -> None:
        """Give the child pipes of its own; `program` are the inodes of the program's pipes."""
        known = {**program, **{inode: one.category for inode, one in self._streams.items()}}
        pipes = {name: os.pipe2(os.O_CLOEXEC) for name in _NAMES}
        used: list[Category] = []
        try:
            ends = {name: f"/proc/{os.getpid()}/fd/{pipes[name][1]}" for name in pipes}
            # Output that stays in the program's pipes is no reason to fail the handshake.
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
        """Deliver lines that other children have begun before the output that follows."""
        for inode, stream in list(self._streams.items()):
            if inode != but:
                stream.pump.flush()

    def open_pipes(self) -> list[int]:
        return [stream.pump.fd for stream in self._streams.values()]

    def drain(self) -> None:
        """Deliver all that was printed so far."""
        for stream in list(self._streams.values()):
            stream.pump.drain()

    def close(self) -> None:
        for stream in list(self._streams.values()):
            stream.pump.close()
