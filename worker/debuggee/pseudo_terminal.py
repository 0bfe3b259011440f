"""A pseudo terminal for a program: its two ends, its size, what it does with keys.

The program's end is kept open here too. Without it the kernel hangs up the terminal as soon as the
program is gone, and what lies in it unread could not be told from an error.

The worker leads the terminal's session, as a shell does, and the program is the group in front. If
the program led it, the kernel would hang up all that it has started when it ends, the trackers of
multiprocessing among them, before they have unlinked the program's shared memory.
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
    """Who is not in front is stopped for changing a terminal, unless that signal is blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def come_to_front() -> None:
    """In the program's process, whose standard input it is by now, before the program begins."""
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
        """The keys that end the input: within a line the first one only hands the line over."""
        key = termios.tcgetattr(self.slave)[6][termios.VEOF]
        return bytes(key) * (1 if at_line_start else 2)

    def unread(self) -> int:
        """How many bytes the program could read at once."""
        return int(_COUNT.unpack(fcntl.ioctl(self.slave, termios.FIONREAD, bytes(4)))[0])

    def close(self) -> None:
        if self.slave >= 0:
            # Given up by us, with us in front: the kernel hangs up who is in front then.
            with _from_behind():
                os.tcsetpgrp(self.slave, os.getpgrp())
                fcntl.ioctl(self.slave, termios.TIOCNOTTY)
        for fd in (self.master, self.slave):
            if fd >= 0:
                os.close(fd)
        self.master = self.slave = -1
