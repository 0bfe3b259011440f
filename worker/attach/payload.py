"""The page of memory that an injection writes into the program: a text, and the machine code that
runs it.

Python calls a pending call with one argument and takes any result but 0 for an exception.
`PyRun_SimpleString` returns another result if the text cannot begin: at the recursion limit,
without memory, or if an audit hook refuses to compile; a SystemError would then end the program. So
Python calls a few machine instructions of the payload. They raise the recursion limit meanwhile,
note the class of an exception and clear it, and always return 0; after a success they also free the
page. The text runs without these instructions if memory may not be both writable and executable
(systemd's MemoryDenyWriteExecute, SELinux), and on other machines than x86-64.
"""

from __future__ import annotations

import os
import platform
import struct
from contextlib import suppress
from typing import Any, Final

# The page that is injected into a target; the kernel allocates only the pages that are used.
ROOM_BYTES: Final = 512 * 1024
_NOWHERE: Final = 32768  # an address below all that a program may map
# The recursion limit is raised by this many frames while the injected text runs.
_EXTRA_RECURSION: Final = 200
_CODE_ROOM: Final = 192  # Bytes of machine code in the injected page.
_FAILED: Final = _CODE_ROOM  # 1 when the text has raised an exception
_CLASS: Final = _FAILED + 8  # the address of the name of its class
_TABLE: Final = _CLASS + 8
_FUNCTIONS: Final = (
    "Py_GetRecursionLimit", "Py_SetRecursionLimit", "PyImport_AddModule", "PyModule_GetDict",
    "PyRun_StringFlags", "PyErr_Occurred", "PyExceptionClass_Name", "PyErr_Clear", "munmap",
)  # fmt: skip
_MAIN: Final = _TABLE + 8 * len(_FUNCTIONS)
_STATUS_NAME: Final = _MAIN + 16
TEXT: Final = _STATUS_NAME + 16
STATUS_FILE: Final = "debug relay"  # the name of the payload status file
_STATUS_DIGITS: Final = 6
_MEMFD_CREATE: Final = {"x86_64": 319, "i686": 356}
_CLOEXEC: Final = 1
_GET_SEALS: Final = 1034
_FILE_INPUT: Final = 257
_SWALLOWED: Final = "pass "
_NAME_BYTES: Final = 100  # The name of an exception that is read from the target's memory.


def _disp(offset: int) -> bytes:
    return struct.pack("<i", offset)


def _call(name: str) -> bytes:
    return b"\xff\x93" + _disp(_TABLE + 8 * _FUNCTIONS.index(name))  # call [rbx + …]


def _assembled() -> bytes:
    """The machine code. `rbx` is the page, `r12` the recursion limit as it was."""
    begin = b"".join(
        [
            b"\x53\x41\x54\x48\x83\xec\x08",  # push rbx; push r12; sub rsp, 8
            b"\x48\x89\xfb",  # mov rbx, rdi
            _call("Py_GetRecursionLimit"),
            b"\x41\x89\xc4",  # mov r12d, eax
            b"\x8d\xb8" + _disp(_EXTRA_RECURSION),  # lea edi, [rax + deeper]
            _call("Py_SetRecursionLimit"),
            b"\x48\x8d\xbb" + _disp(_MAIN),  # lea rdi, [rbx + main]
            _call("PyImport_AddModule"),
        ]
    )
    run = b"".join(
        [
            b"\x48\x89\xc7",  # mov rdi, rax
            _call("PyModule_GetDict"),
            b"\x48\x8d\xbb" + _disp(TEXT),  # lea rdi, [rbx + text]
            b"\xbe" + _disp(_FILE_INPUT),  # mov esi, file_input
            b"\x48\x89\xc2\x48\x89\xc1",  # mov rdx, rax; mov rcx, rax: globals and locals
            b"\x45\x31\xc0",  # xor r8d, r8d
            _call("PyRun_StringFlags"),
        ]
    )
    limit = b"\x44\x89\xe7" + _call("Py_SetRecursionLimit")  # mov edi, r12d; call
    leave = b"\x48\x83\xc4\x08\x41\x5c\x5b"  # add rsp, 8; pop r12; pop rbx
    done = b"".join(
        [
            limit,
            b"\x48\x89\xdf",  # mov rdi, rbx
            b"\xbe" + _disp(ROOM_BYTES),  # mov esi, room
            b"\x48\x8b\x83" + _disp(_TABLE + 8 * _FUNCTIONS.index("munmap")),  # mov rax, munmap
            leave,
            b"\xff\xe0",  # jmp rax: munmap returns 0 to our caller
        ]
    )
    failed = b"".join(
        [
            _call("PyErr_Occurred"),
            b"\x48\x89\xc7",  # mov rdi, rax
            _call("PyExceptionClass_Name"),
            b"\x48\x89\x83" + _disp(_CLASS),  # mov [rbx + class], rax
            _call("PyErr_Clear"),
            limit,
            b"\xc6\x83" + _disp(_FAILED) + b"\x01",  # mov byte [rbx + failed], 1
            b"\x31\xc0" + leave + b"\xc3",  # xor eax, eax; …; ret
        ]
    )
    run += _unless_null(len(done))
    return begin + _unless_null(len(run + done)) + run + done + failed


def _unless_null(skip: int) -> bytes:
    return b"\x48\x85\xc0\x74" + bytes([skip])  # test rax, rax; jz …


_CODE: Final = _assembled()


def content(program: str, **names: Any) -> bytes:
    """The page, before gdb fills in the addresses of the functions. The text gets `names`, and as
    `status` the descriptor of the status file.
    """
    head = _CODE.ljust(_CODE_ROOM, b"\0").ljust(_MAIN, b"\0") + b"__main__".ljust(16, b"\0")
    head += STATUS_FILE.encode().ljust(16, b"\0")
    page = head + _text(program, names).encode() + b"\0"
    assert len(_CODE) <= _CODE_ROOM
    assert len(head) == TEXT
    assert len(page) <= ROOM_BYTES
    return page


def _text(program: str, names: dict[str, Any]) -> str:
    known = ", ".join(f"{name!r}: {value!r}" for name, value in names.items())
    status = "-1".rjust(_STATUS_DIGITS)
    return (
        f"try: __import__('builtins').exec({program!r}, {{{known}, 'status': {status}}})\n"
        "except BaseException: raise"
    )


NO_MEMORY: Final = "relay: no memory"


def commands(file: str, page: bytes) -> list[str]:
    """The gdb commands that put the page into the program. Afterwards `$page` is its address,
    `$runs` is 1 if its machine code can run, and `$status` is the status file's descriptor.
    """
    machine = platform.machine()
    can_run = machine == "x86_64"
    map_it = (
        "set $page = ((unsigned long (*)(unsigned long, unsigned long, int, int, int, long))"
        f"mmap)(0, {ROOM_BYTES}, %d, 0x22, -1, 0)"
    )
    table = [
        f"set {{unsigned long}}($page + {_TABLE + 8 * n}) = (unsigned long) &{name}"
        for n, name in enumerate(_FUNCTIONS)
    ]
    return [
        f"set $runs = {int(can_run)}",
        map_it % (7 if can_run else 3),
        "if $page + 1 == 0",
        "set $runs = 0",
        map_it % 3,
        "end",
        # Without memory the next command fails, and gdb ends.
        "if $page + 1 == 0",
        f'printf "{NO_MEMORY}\\n"',
        "end",
        f"restore {file} binary $page",
        "if $runs",
        *table,
        "else",
        f'set {{char[6]}}($page + {len(page) - len(_SWALLOWED) - 1}) = "{_SWALLOWED}"',
        "end",
        f"set $status = (int) ((long (*)(long, ...)) syscall)({_MEMFD_CREATE[machine]}, "
        f"$page + {_STATUS_NAME}, {_CLOEXEC})",
        "if $status >= 0",
        *_digits(page.rindex(b"-1}") + 2 - _STATUS_DIGITS),
        "end",
    ]


def _digits(place: int) -> list[str]:
    """Write the descriptor digit by digit: gdb would append a NUL, which ends the text."""
    powers = [10 ** (_STATUS_DIGITS - 1 - n) for n in range(_STATUS_DIGITS)]
    return [
        f"set {{char}}($page + {place + n}) = "
        + (f"$status >= {power} ? " if power > 1 else "")
        + f"48 + $status / {power} % 10"
        + (" : 32" if power > 1 else "")
        for n, power in enumerate(powers)
    ]


def unmap(page: str) -> str:
    return f"set $gone = ((int (*)(unsigned long, unsigned long)) munmap)({page}, {ROOM_BYTES})"


def take_back(page: int, status: int) -> list[str]:
    """The gdb commands that remove a payload that could not run."""
    # Only a file in memory has seals: we do not close a file of the program's by this number.
    sealed = f"((int (*)(int, int, ...)) fcntl)({status}, {_GET_SEALS})"
    return [unmap(str(page)), f"if {sealed} > 0", f"call ((int (*)(int)) close)({status})", "end"]


class Memory:
    """A program's memory, read from outside; after an exec it is another memory."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._fd = -1
        with suppress(OSError):  # it has ended; then nothing can be read
            self._fd = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)

    def _read(self, size: int, place: int) -> bytes | None:
        """None if nothing is mapped there; empty if the whole memory is gone."""
        with suppress(OSError, OverflowError):  # no such address, or none at all
            return os.pread(self._fd, size, place) if self._fd >= 0 else None
        return None

    @property
    def is_anothers(self) -> bool:
        """Whether the process has executed another program. One that ends also has no memory for a
        moment, but no executable either.
        """
        return self._read(1, _NOWHERE) == b"" and os.path.exists(f"/proc/{self._pid}/exe")

    def raised(self, page: int) -> str | None:
        """The class of the exception that the text in this page raised, if it raised one."""
        head = self._read(_TABLE, page) or b""
        if head[: _FAILED + 1] != _CODE.ljust(_FAILED, b"\0") + b"\1":
            return None
        (place,) = struct.unpack_from("<Q", head, _CLASS)
        name = self._read(_NAME_BYTES, place) or b""
        return name.partition(b"\0")[0].decode("ascii", "replace")

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
