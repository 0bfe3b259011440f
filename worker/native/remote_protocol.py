"""The remote protocol of gdb and lldb, as far as is needed to refuse a debugger with a message."""

from __future__ import annotations

import asyncio
import re
from asyncio import StreamReader, StreamWriter
from typing import Final

# A debugger begins with a packet, or with an answer to the packet that another one has left.
BEGINNINGS: Final = (b"$", b"+", b"-", b"\x03")
_FIRST_PACKET: Final = re.compile(rb"\$[^#]*#[0-9a-fA-F]{2}")
INTERRUPT: Final = b"\x03"
_BREAKPOINT: Final = re.compile(rb"\$([Zz])0,([0-9a-fA-F]+,[0-9a-fA-F]+)[^$#]*#")
_PACKET_BYTES: Final = 512  # A packet about a breakpoint; lldb's have no conditions.
_MOST_BYTES: Final = 4096  # A debugger's first packet.
_ASK_SECONDS: Final = 2.0  # A debugger sends its first packet within this time.
_READ_SECONDS: Final = 1.0  # It reads the refusal within this time.
# These have a meaning within a packet.
_SPECIAL: Final = str.maketrans("$#}*", "____")


class Breakpoints:
    """The breakpoints in the program's code that a debugger has set and not removed."""

    def __init__(self) -> None:
        self._set: dict[bytes, None] = {}  # "ADDRESS,KIND", in their order
        self._unread = b""

    def read(self, piece: bytes) -> None:
        """Read what the debugger sends; a packet may lie in two pieces."""
        text = self._unread + piece
        end = 0
        for found in _BREAKPOINT.finditer(text):
            end = found.end()
            if found[1] == b"Z":
                self._set[found[2]] = None
            else:
                self._set.pop(found[2], None)
        self._unread = text[max(end, len(text) - _PACKET_BYTES) :]

    def removal(self) -> bytes:
        """Packets that remove them and detach from the stopped program; empty if there are none.

        Each one begins with the acknowledgement of the answer before, for a server that waits for
        it.
        """
        if not self._set:
            return b""
        packets = [b"z0," + one for one in self._set]
        return b"".join(b"+" + _framed(data) for data in (*packets, b"D"))


async def refuse(first: bytes, reader: StreamReader, writer: StreamWriter, words: str) -> None:
    """Answer the debugger's first packet with an error, which it prints; `first` is what it has
    sent so far.
    """
    try:
        async with asyncio.timeout(_ASK_SECONDS):
            asked = first
            while not _FIRST_PACKET.search(asked) and len(asked) < _MOST_BYTES:
                piece = await reader.read(_MOST_BYTES)
                if not piece:
                    return
                asked += piece
        writer.write(b"+" + _packet("E." + words))
        writer.write_eof()
        async with asyncio.timeout(_READ_SECONDS):
            # To close with unread bytes would reset the connection, and the words might be lost.
            while await reader.read(_MOST_BYTES):
                continue
    except (TimeoutError, ConnectionError):
        return


def _packet(text: str) -> bytes:
    return _framed(text.translate(_SPECIAL).encode("ascii", "replace"))


def _framed(data: bytes) -> bytes:
    return b"$%b#%02x" % (data, sum(data) & 0xFF)
