"""Reads the pipes of an ended session whose processes were kept, and drops the contents.

`keep_children` leaves processes running that may print into the pipes of the program. If no process
had the other end of these pipes after the session's worker has retired, the next print would end
the printing process with SIGPIPE.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterable
from typing import Final

_MOST_PIPES: Final = 64  # Pipes of one session that the relay takes over.
_READ_BYTES: Final = 1 << 18  # One read of output that is dropped.
# A writer without a pause costs the relay one read in this time for each of its pipes.
_PAUSE_SECONDS: Final = 0.05


class KeptPipes:
    def __init__(self) -> None:
        self._fds: set[int] = set()

    def open(self, pid: int, numbers: Iterable[int]) -> list[int]:
        """New descriptors for the pipes that the process with this pid has open."""
        found: list[int] = []
        for number in list(numbers)[:_MOST_PIPES]:
            try:
                # Without blocking: the kernel opens the pipe anew, and would wait for a writer.
                path, flags = f"/proc/{pid}/fd/{number}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
                fd = os.open(path, flags)
            except OSError:
                continue  # closed meanwhile
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                found.append(fd)
            else:
                os.close(fd)
        return found

    def read(self, fds: Iterable[int]) -> None:
        """Read these to their end, or until `close`."""
        for fd in fds:
            self._fds.add(fd)
            asyncio.get_running_loop().add_reader(fd, self._drop, fd)

    def leave(self, fds: Iterable[int]) -> None:
        """Close these: their worker still reads them itself."""
        for fd in fds:
            os.close(fd)

    def close(self) -> None:
        for fd in list(self._fds):
            self._close(fd)

    def _drop(self, fd: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close(fd)
            return
        loop.remove_reader(fd)
        loop.call_later(_PAUSE_SECONDS, self._go_on, fd)

    def _go_on(self, fd: int) -> None:
        if fd in self._fds:
            asyncio.get_running_loop().add_reader(fd, self._drop, fd)

    def _close(self, fd: int) -> None:
        self._fds.discard(fd)
        asyncio.get_running_loop().remove_reader(fd)
        os.close(fd)
