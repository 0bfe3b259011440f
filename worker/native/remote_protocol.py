"""The remote protocol of gdb and lldb, as far as is needed to refuse a debugger with a message."""

from __future__ import annotations

import asyncio
import re
from asyncio import StreamReader, StreamWriter
from typing import Final

# A debugger begins with a packet, or with an answer to the packet that another one has left.
BEGINNINGS: Final = (b"$", b"+", b"-", b"\x03")
_FIRST_PACKET: Final = re.compile(rb"\$[^#]*#[0-9a-fA-F]{2}")
_MOST_BYTES: Final = 4096  # A debugger's first packet.
_ASK_SECONDS: Final = 2.0  # A debugger sends its first packet within this time.
_READ_SECONDS: Final = 1.0  # It reads the refusal within this time.
# These have a meaning within a packet.
_SPECIAL: Final = str.maketrans("$#}*", "____")


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
    data = text.translate(_SPECIAL).encode("ascii", "replace")
    return b"$%b#%02x" % (data, sum(data) & 0xFF)
