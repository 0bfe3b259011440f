"""The page of memory that the injection brings into a program: a text, and what runs it.

Python calls what is noted for its main thread with one argument and takes any answer but 0 for an
exception. `PyRun_SimpleString` answers otherwise whenever the text could not begin: at the limit of
recursion, without memory, or where an audit hook refuses to compile; the program would end by a
SystemError then. So it calls a few instructions of ours, which forget what went wrong, mark the
page, and always answer 0; after a success they give the page back in the same breath. Where no
memory may be both written and run (systemd's MemoryDenyWriteExecute, SELinux), and on other
machines, the text is run without them.
"""

from __future__ import annotations

import os
import platform
import struct
from contextlib import suppress
from typing import Final

ROOM: Final = 32768  # the kernel gives what of it is used
_MARK: Final = 79
_TABLE: Final = 80
_FUNCTIONS: Final = (
    "PyImport_AddModule", "PyModule_GetDict", "PyRun_StringFlags", "PyErr_Clear", "munmap",
)  # fmt: skip
_NAME: Final = _TABLE + 8 * len(_FUNCTIONS)
TEXT: Final = 136
_FILE_INPUT: Final = 257
_CODE: Final = b"".join(
    [
        b"\x53",  # push rbx
        b"\x48\x89\xfb",  # mov rbx, rdi: the page
        b"\x48\x8d\x7b" + bytes([_NAME]),  # lea rdi, [rbx + name]
        b"\xff\x53\x50",  # call PyImport_AddModule
        b"\x48\x85\xc0\x74\x32",  # test rax, rax; jz failed
        b"\x48\x89\xc7",  # mov rdi, rax
        b"\xff\x53\x58",  # call PyModule_GetDict
        b"\x48\x8d\xbb" + struct.pack("<i", TEXT),  # lea rdi, [rbx + text]
        b"\xbe" + struct.pack("<i", _FILE_INPUT),  # mov esi, file_input
        b"\x48\x89\xc2\x48\x89\xc1",  # mov rdx, rax; mov rcx, rax: globals and locals
        b"\x45\x31\xc0",  # xor r8d, r8d
        b"\xff\x53\x60",  # call PyRun_StringFlags
        b"\x48\x85\xc0\x74\x0f",  # test rax, rax; jz failed
        b"\x48\x89\xdf",  # mov rdi, rbx
        b"\xbe" + struct.pack("<i", ROOM),  # mov esi, room
        b"\x48\x8b\x43\x70",  # mov rax, munmap
        b"\x5b\xff\xe0",  # pop rbx; jmp rax: it answers 0 to who has called us
        b"\xff\x53\x68",  # failed: call PyErr_Clear
        b"\xc6\x43" + bytes([_MARK]) + b"\x01",  # mov byte [rbx + mark], 1
        b"\x31\xc0\x5b\xc3",  # xor eax, eax; pop rbx; ret
    ]
)
_SWALLOWED: Final = "pass "


def content(program: str) -> bytes:
    """Of the page, before the addresses of the functions are in its table."""
    head = _CODE.ljust(_TABLE, b"\0") + bytes(8 * len(_FUNCTIONS)) + b"__main__\0"
    text = f"try: __import__('builtins').exec({program!r}, {{}})\nexcept BaseException: raise"
    page = head.ljust(TEXT, b"\0") + text.encode() + b"\0"
    assert len(page) <= ROOM
    return page


def commands(file: str, size: int, former: int | None) -> list[str]:
    """For gdb: `$page` has the content of `file`, and `$runs` says whether it can run itself.

    `former` is a page that could not be run; it is given back.
    """
    map_it = (
        "set $page = ((unsigned long (*)(unsigned long, unsigned long, int, int, int, long))"
        f"mmap)(0, {ROOM}, %d, 0x22, -1, 0)"
    )
    can_run = platform.machine() == "x86_64"
    last = size - len(_SWALLOWED) - 1
    table = [
        f"set {{unsigned long}}($page + {_TABLE + 8 * n}) = (unsigned long) &{name}"
        for n, name in enumerate(_FUNCTIONS)
    ]
    give_back = [] if former is None else [f"set $gone = {_unmap(str(former))}"]
    return [
        *give_back,
        f"set $runs = {int(can_run)}",
        map_it % (7 if can_run else 3),
        "if $page + 1 == 0",
        "set $runs = 0",
        map_it % 3,
        "end",
        f"restore {file} binary $page",
        "if $runs",
        *table,
        "else",
        f'set {{char[6]}}($page + {last}) = "{_SWALLOWED}"',
        "end",
    ]


def unmap() -> str:
    return f"set $gone = {_unmap('$page')}"


def _unmap(page: str) -> str:
    return f"((int (*)(unsigned long, unsigned long)) munmap)({page}, {ROOM})"


def could_not_run(pid: int, page: int) -> bool:
    with suppress(OSError):
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(memory, _MARK + 1, page) == _CODE.ljust(_MARK, b"\0") + b"\1"
        finally:
            os.close(memory)
    return False
