"""A worker's process: identified by its pidfd, watched by the event loop, reaped when it ends.

A worker that was adopted from an earlier supervisor is not our child, and its parent reaps it.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
from typing import Final

from debug_relay.protocol.system import procfs

# The kernel's `struct pidfd_info` and the request that fills it; Linux 6.15 has the exit status.
_INFO: Final = struct.Struct("QQ11Ii")
_GET_INFO: Final = 3 << 30 | _INFO.size << 16 | 0xFF << 8 | 11
_WITH_EXIT: Final = 1 << 3
_watched: set[int] = set()  # pids that only their Child may reap


def watched() -> frozenset[int]:
    return frozenset(_watched)


class Child:
    """A process, held by a pidfd: unlike a pid, it can never mean another process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._fd = os.pidfd_open(pid)
        self._start_ticks = procfs.start_ticks(pid)
        self._ended = asyncio.Event()
        self.exit_status: int | None = None  # negative is a signal; None if unknown
        _watched.add(pid)
        asyncio.get_running_loop().add_reader(self._fd, self._gone)

    def _gone(self) -> None:
        status = self._status()
        self.exit_status = None if status is None else os.waitstatus_to_exitcode(status)
        self.close()
        self._ended.set()

    def _status(self) -> int | None:
        with contextlib.suppress(ChildProcessError):
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            return status if pid else None
        # Not our child. The kernel shows its status until its parent reaps it, and some also later.
        stat = procfs.stat(self.pid)
        if stat is not None and stat.state == "Z" and stat.start_ticks == self._start_ticks:
            return stat.exit_status
        info = bytearray(_INFO.pack(_WITH_EXIT, *[0] * 13))
        try:
            fcntl.ioctl(self._fd, _GET_INFO, info)
        except OSError:
            return None
        mask, *_, status = _INFO.unpack(info)
        return status if mask & _WITH_EXIT else None

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    async def wait(self, timeout: float) -> bool:
        """Waits for the process's end; whether it came in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._ended.wait()
        return self._ended.is_set()

    def kill(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._fd, signal.SIGKILL)

    def close(self) -> None:
        """Stops watching; the process is not affected."""
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
            _watched.discard(self.pid)
