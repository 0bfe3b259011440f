"""A pseudo terminal for a program: its two ends, its size, and the keys that end input.

We keep the program's end open, too. Otherwise the kernel hangs up the terminal as soon as the
program has ended, and we could not distinguish unread output from an error.

The worker leads the terminal's session, as a shell does, and the program is the foreground process
group. If the program led the session, the kernel would hang up all its children when it ends.
multiprocessing's trackers are among them, and would not unlink the program's shared memory.
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from debug_relay.protocol.models.fields import TerminalSize

_SIZE: Final = struct.Struct("HHHH")
_COUNT: Final = struct.Struct("i")


@contextmanager
def _from_behind() -> Iterator[None]:
    """Block SIGTTOU: it would stop a background process that changes its terminal."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def come_to_front() -> None:
    """Make the program's group the foreground group. This runs in the program's process before the
    program begins; the terminal is its standard input already.
    """
    with _from_behind():
        os.tcsetpgrp(0, os.getpgrp())


class Terminal:
    def __init__(self, size: TerminalSize) -> None:
        self.master, self.slave = os.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, _SIZE.pack(size.rows, size.columns, 0, 0))
        try:
            fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)
        except OSError:
            os.close(self.master)
            os.close(self.slave)
            raise
        self.device = os.fstat(self.slave).st_rdev

    def end_of_file(self, at_line_start: bool) -> bytes:
        """The keys that end the input; within a line the first one only sends the line."""
        key = termios.tcgetattr(self.slave)[6][termios.VEOF]
        return bytes(key) * (1 if at_line_start else 2)

    def unread(self) -> int:
        """The number of bytes that the program could read now."""
        return int(_COUNT.unpack(fcntl.ioctl(self.slave, termios.FIONREAD, bytes(4)))[0])

    def close(self) -> None:
        if self.slave >= 0:
            # When the session's leader gives up the terminal, the kernel hangs up the foreground
            # group. So we make ourselves the foreground group first.
            with _from_behind():
                os.tcsetpgrp(self.slave, os.getpgrp())
                fcntl.ioctl(self.slave, termios.TIOCNOTTY)
        for fd in (self.master, self.slave):
            if fd >= 0:
                os.close(fd)
        self.master = self.slave = -1
