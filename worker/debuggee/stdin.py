"""The program's standard input: a pipe or a terminal, written without ever blocking the loop.

Input that the program has not read yet is kept here, so that no call has to wait for the program.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import struct
import termios
from typing import Final

from debug_relay.worker.debuggee.pseudo_terminal import Terminal

MOST_WAITING_BYTES: Final = 64 << 20  # Input that waits for a program to read it.
_COUNT: Final = struct.Struct("i")


class Stdin:
    def __init__(self, fd: int, terminal: Terminal | None = None) -> None:
        self._fd = fd
        self._terminal = terminal
        self._waiting = bytearray()
        self._watched = False
        self._finishing = False
        self._last = b"\n"
        os.set_blocking(fd, False)
        facts = os.fstat(fd)
        # The identity of the program's descriptor: (device, inode), or a terminal's number.
        self.identity = (facts.st_dev, facts.st_ino) if terminal is None else (terminal.device,)

    @property
    def is_open(self) -> bool:
        return self._fd >= 0 and not self._finishing

    def unread(self) -> int:
        """The number of bytes that were written and the program has not read."""
        if self._fd < 0:
            return 0
        if self._terminal is not None:
            return len(self._waiting) + self._terminal.unread()
        in_pipe = _COUNT.unpack(fcntl.ioctl(self._fd, termios.FIONREAD, bytes(4)))[0]
        return len(self._waiting) + int(in_pipe)

    def write(self, data: bytes) -> None:
        """Write; raises BrokenPipeError if it is closed, BufferError if too much is unread."""
        if not self.is_open:
            raise BrokenPipeError("standard input is closed")
        if len(self._waiting) + len(data) > MOST_WAITING_BYTES:
            raise BufferError(f"{len(self._waiting)} bytes of input are unread")
        self._waiting += data
        self._last = data[-1:] or self._last
        self._push()
        if self._fd < 0:
            raise BrokenPipeError("the program has closed its standard input")

    def finish(self) -> None:
        """End the input behind all that was written."""
        if not self.is_open:
            return
        if self._terminal is not None:
            # A terminal's input has no end. We send the keys that mean one; more may follow.
            self._waiting += self._terminal.end_of_file(self._last == b"\n")
            self._last = b"\n"
        else:
            self._finishing = True
        self._push()

    def close(self) -> None:
        if self._fd < 0:
            return
        self._watch(False)
        os.close(self._fd)
        self._fd = -1
        self._waiting.clear()

    def _push(self) -> None:
        try:
            while self._waiting:
                del self._waiting[: os.write(self._fd, self._waiting)]
        except BlockingIOError:
            self._watch(True)
            return
        except OSError:
            # No process will read it any more.
            self.close()
            return
        self._watch(False)
        if self._finishing:
            self.close()

    def _watch(self, wanted: bool) -> None:
        if wanted == self._watched:
            return
        self._watched = wanted
        loop = asyncio.get_running_loop()
        if wanted:
            loop.add_writer(self._fd, self._push)
        else:
            with contextlib.suppress(ValueError):
                loop.remove_writer(self._fd)
