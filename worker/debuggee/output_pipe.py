"""Reads one pipe of a program's output, or a terminal, until its end.

An unfinished line is held back for a moment, so that a line that the program writes in parts
becomes one entry.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Callable
from typing import Final

_F_SETPIPE_SZ: Final = 1031
_PIPE_BYTES: Final = 1 << 20  # The kernel's buffer of a program's output pipe.
_READ_BYTES: Final = 1 << 18  # One read of a program's output.
_HOLD_SECONDS: Final = 0.02  # An unfinished line of output waits this long for its end.


class Pump:
    """Reads one pipe, or a terminal, and delivers what it has read."""

    def __init__(
        self,
        fd: int,
        deliver: Callable[[bytes], None],
        on_end: Callable[[], object] = lambda: None,
        roomy: bool = True,
    ) -> None:
        """`roomy` enlarges the pipe, so that a program that prints much seldom has to wait. All
        pipes of a user share some 64 MB, so children's pipes stay small.
        """
        self.fd = fd
        self._deliver = deliver
        self._on_end = on_end
        self._held = b""
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self.inode = os.fstat(fd).st_ino
        self.ended = asyncio.Event()
        os.set_blocking(fd, False)
        if roomy:
            with contextlib.suppress(OSError):  # an unprivileged user may be at the pipe limit
                fcntl.fcntl(fd, _F_SETPIPE_SZ, _PIPE_BYTES)
        self._loop.add_reader(fd, self._readable)

    def _readable(self) -> None:
        # One read for each turn of the loop, so that a flood of output does not delay calls.
        try:
            data = os.read(self.fd, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._take(data)
        else:
            self.close()

    def _take(self, data: bytes) -> None:
        data, self._held = self._held + data, b""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        cut = data.rfind(b"\n") + 1
        if cut < len(data) and len(data) - cut < _READ_BYTES:
            self._held = data[cut:]
            data = data[:cut]
            self._timer = self._loop.call_later(_HOLD_SECONDS, self.flush)
        if data:
            self._deliver(data)

    def drain(self) -> None:
        """Read all that is in the pipe now, without waiting for more."""
        for _ in range(4096):
            if self.ended.is_set():
                return
            try:
                data = os.read(self.fd, _READ_BYTES)
            except OSError:
                break
            if not data:
                self.close()
                return
            self._take(data)
        self.flush()

    def flush(self) -> None:
        """Deliver an unfinished line."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        held, self._held = self._held, b""
        if held:
            self._deliver(held)

    def close(self) -> None:
        if self.ended.is_set():
            return
        self._loop.remove_reader(self.fd)
        os.close(self.fd)
        self.flush()
        self.ended.set()
        self._on_end()
