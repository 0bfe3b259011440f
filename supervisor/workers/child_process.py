"""A child process: identified by its pidfd, watched by the event loop, reaped when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

_watched: set[int] = set()  # pids that only their Child may reap


def watched() -> frozenset[int]:
    return frozenset(_watched)


class Child:
    """A process, held by a pidfd: unlike a pid, it can never mean another process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._fd = os.pidfd_open(pid)
        self._ended = asyncio.Event()
        self.exit_status: int | None = None  # negative is a signal; None if another reaps it
        _watched.add(pid)
        asyncio.get_running_loop().add_reader(self._fd, self._gone)

    def _gone(self) -> None:
        self.close()
        with contextlib.suppress(ChildProcessError):  # an adopted worker is another process's child
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.exit_status = os.waitstatus_to_exitcode(status) if pid else None
        self._ended.set()

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
