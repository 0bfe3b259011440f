"""Removes the breakpoints that a killed native server has left in the code of its program.

A breakpoint is a trap instruction in place of the program's own. The kernel resumes the program
when the server is gone, and the first trap would end it. The files of which the code is mapped have
the instructions that were there.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from debug_relay.protocol.system import procfs

_X86: Final = b"\xcc"
_TRAP: Final = {
    "x86_64": _X86,
    "i686": _X86,
    "aarch64": b"\x00\x00\x20\xd4",
}.get(platform.machine())
# A mapping with code: its first address, its last, its place in the file, and the file.
_CODE: Final = re.compile(
    rb"^([0-9a-f]+)-([0-9a-f]+) r-xp ([0-9a-f]+) \S+ \S+ +(/.*)$", re.MULTILINE
)
_PIECE_BYTES: Final = 1 << 20  # One read of a file, and of the program's memory.


def remove(pid: int) -> int:
    """Put the program's own instructions back while it runs; returns how many.

    It raises OSError where the kernel lets only a tracer write to a program.
    """
    if _TRAP is None:
        return 0
    count = 0
    memory = os.open(f"/proc/{pid}/mem", os.O_RDWR | os.O_CLOEXEC)
    try:
        for first, last, offset, path in _CODE.findall(procfs.maps(pid)):
            with suppress(FileNotFoundError), open(path, "rb", buffering=0) as file:
                begins = int(first, 16)
                for at in range(0, int(last, 16) - begins, _PIECE_BYTES):
                    size = min(_PIECE_BYTES, int(last, 16) - begins - at)
                    there = os.pread(file.fileno(), size, int(offset, 16) + at)
                    now = os.pread(memory, len(there), begins + at)
                    for place, own in _replaced(now, there, _TRAP):
                        os.pwrite(memory, own, begins + at + place)
                        count += 1
    finally:
        os.close(memory)
    return count


def _replaced(now: bytes, there: bytes, trap: bytes) -> list[tuple[int, bytes]]:
    """The places of traps that are not in the file. There are none if anything else differs: the
    program runs another version of that file then.
    """
    if now == there:
        return []
    found = [
        (place, there[place : place + len(trap)])
        for place in _places(now, trap)
        if there[place : place + len(trap)] != trap
    ]
    restored = bytearray(now)
    for place, own in found:
        restored[place : place + len(trap)] = own
    return found if restored == there else []


def _places(code: bytes, trap: bytes) -> Iterator[int]:
    place = code.find(trap)
    while place >= 0:
        yield place
        place = code.find(trap, place + len(trap))
