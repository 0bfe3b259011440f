"""Asks the kernel whether a program is blocked in a read of its standard input, or in a wait that
any signal ends.

The kernel gives no event for this. A look costs some microseconds and does not touch the program.
It sees every way of reading (`input`, `sys.stdin`, `os.read`, C code, a child like `cat`) on any
version. On an unknown machine, or if the kernel shows nothing, the answer is no.
"""

from __future__ import annotations

import os
import platform
import re
import struct
from collections.abc import Iterator
from typing import Final

from debug_relay.protocol.system import procfs

_MOST_PROCESSES: Final = 16  # Processes of a program that are looked at for blocked system calls.
_MOST_THREADS: Final = 32  # Threads of one process that are looked at for blocked system calls.
_DEV_TTY: Final = os.makedev(5, 0)
# read and readv; select and pselect, by which readline waits.
_READS: Final = {"x86_64": (0, 19), "aarch64": (63, 65)}.get(platform.machine(), ())
_SELECTS: Final = {"x86_64": (23, 270), "aarch64": (72,)}.get(platform.machine(), ())
# pause; on machines without that call it is a ppoll of nothing, without a timeout.
_PAUSES: Final = {"x86_64": (34,), "aarch64": (73, 0, 0, 0)}.get(platform.machine(), ())

# The code of a mapped file: its first address, its last, and the file's name.
_CODE: Final = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) r-x\S+ .*/([^/\n]+)$", re.MULTILINE)
_STACK_BYTES: Final = 65536  # The part of a stack that is searched for the caller of a system call.


def waits_for_input(pid: int, stdin: tuple[int, ...]) -> bool:
    """Whether the program waits for input. `stdin` is the pipe's device and inode, or the number of
    the terminal.
    """
    return any(
        _reads_stdin(process, thread, stdin)
        for process in _family(pid)
        for thread in procfs.threads(process)[:_MOST_THREADS]
    )


def is_ended_by_signal(pid: int) -> bool:
    """Whether any signal ends the main thread's wait, also ours: it waits in `signal.pause()`, or
    in C code that ctypes has called. Such code may take the interrupted call for a failure, or for
    its end, as `sleep` does. Python repeats its own calls.
    """
    call = procfs.syscall(pid, pid)
    if call is None:
        return False  # it has ended, is another user's, or runs
    if _PAUSES and (call.number, *call.arguments)[: len(_PAUSES)] == _PAUSES:
        return True
    return _is_called_by_ctypes(pid, call.stack)


def _is_called_by_ctypes(pid: int, stack: int) -> bool:
    """Whether the nearest caller on the stack, after the C library, is libffi and not Python. An
    interpreter that contains libffi, as a static library, does not show it.
    """
    foreign: list[range] = []
    own: list[range] = []
    for first, last, name in _CODE.findall(procfs.maps(pid)):
        if name.startswith(b"libffi"):
            foreign.append(range(int(first, 16), int(last, 16)))
        elif b"python" in name:
            own.append(range(int(first, 16), int(last, 16)))
    if not foreign:
        return False  # it has not imported ctypes
    words = procfs.memory(pid, stack, _STACK_BYTES)
    for (word,) in struct.iter_unpack("Q", words[: len(words) // 8 * 8]):
        if any(word in code for code in own):
            return False
        if any(word in code for code in foreign):
            return True
    return False


def _family(pid: int) -> Iterator[int]:
    """The process and its descendants, which may have inherited its standard input."""
    waiting = [pid]
    for _ in range(_MOST_PROCESSES):
        if not waiting:
            return
        process = waiting.pop(0)
        yield process
        waiting += procfs.children(process, only_thread=True)


def _reads_stdin(pid: int, thread: int, stdin: tuple[int, ...]) -> bool:
    call = procfs.syscall(pid, thread)
    if call is None:
        return False  # it runs, has ended, or is another user's
    first, second = call.arguments[:2]
    if call.number in _SELECTS:
        # The call watches one descriptor, the first one: standard input.
        return first == 1 and second != 0 and _is_stdin(pid, 0, stdin)
    return call.number in _READS and _is_stdin(pid, first, stdin)


def _is_stdin(pid: int, fd: int, stdin: tuple[int, ...]) -> bool:
    try:
        facts = os.stat(f"/proc/{pid}/fd/{fd}")
    except OSError:
        return False  # it is closed, or the process has ended
    if len(stdin) == 2:
        return (facts.st_dev, facts.st_ino) == stdin
    return facts.st_rdev in (stdin[0], _DEV_TTY)
