"""A pseudo terminal for a program: its two ends, its size, what it does with keys.

The program's end is kept open here too. Without it the kernel hangs up the terminal as soon as the
program is gone, and what lies in it unread could not be told from an error.
"""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from typing import Final

from debug_relay.protocol.fields import TerminalSize

_SIZE: Final = struct.Struct("HHHH")
_COUNT: Final = struct.Struct("i")


class Terminal:
    def __init__(self, size: TerminalSize) -> None:
        self.master, self.slave = os.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, _SIZE.pack(size.rows, size.columns, 0, 0))
        self.device = os.fstat(self.slave).st_rdev

    def end_of_file(self, at_line_start: bool) -> bytes:
        """The keys that end the input: within a line the first one only hands the line over."""
        key = termios.tcgetattr(self.slave)[6][termios.VEOF]
        return bytes(key) * (1 if at_line_start else 2)

    def unread(self) -> int:
        """How many bytes the program could read at once."""
        return int(_COUNT.unpack(fcntl.ioctl(self.slave, termios.FIONREAD, bytes(4)))[0])

    def close(self) -> None:
        for fd in (self.master, self.slave):
            if fd >= 0:
                os.close(fd)
        self.master = self.slave = -1
