"""Whether a program waits in a read of its standard input or waits for a signal, by the kernel.

There is no event for it; one look costs some microseconds and touches the program not at all. It
sees every way of reading (`input`, `sys.stdin`, `os.read`, C code, a child like `cat`) on any
version. Where the machine is unknown or the kernel tells nothing, the answer is no.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from typing import Final

from debug_relay.protocol.system import procfs

_MOST_PROCESSES: Final = 16  # Processes of a program that are looked at for blocked system calls.
_MOST_THREADS: Final = 32  # Threads of one process that are looked at for blocked system calls.
_DEV_TTY: Final = os.makedev(5, 0)
# read and readv; select and pselect, by which readline waits.
_READS: Final = {"x86_64": (0, 19), "aarch64": (63, 65)}.get(platform.machine(), ())
_SELECTS: Final = {"x86_64": (23, 270), "aarch64": (72,)}.get(platform.machine(), ())
# pause, which is a ppoll of nothing and for ever where there is no such call.
_PAUSES: Final = {"x86_64": (34,), "aarch64": (73, 0, 0, 0)}.get(platform.machine(), ())


def waits_for_input(pid: int, stdin: tuple[int, ...]) -> bool:
    """`stdin`: device and inode of the pipe, or the terminal's number alone."""
    return any(
        _reads_stdin(process, thread, stdin)
        for process in _family(pid)
        for thread in procfs.threads(process)[:_MOST_THREADS]
    )


def waits_for_signal(pid: int) -> bool:
    """Whether the main thread waits in `signal.pause()`, which any signal ends, ours too."""
    call = procfs.syscall(pid, pid)
    if call is None or not _PAUSES:
        return False  # gone since, not ours to look at, or it runs
    return (call.number, *call.arguments)[: len(_PAUSES)] == _PAUSES


def _family(pid: int) -> Iterator[int]:
    """The process and those below it, which may have inherited its standard input."""
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
        return False  # it runs, is gone since, or is not ours to look at
    first, second = call.arguments[:2]
    if call.number in _SELECTS:
        # One descriptor is watched and it is the first: standard input.
        return first == 1 and second != 0 and _is_stdin(pid, 0, stdin)
    return call.number in _READS and _is_stdin(pid, first, stdin)


def _is_stdin(pid: int, fd: int, stdin: tuple[int, ...]) -> bool:
    try:
        facts = os.stat(f"/proc/{pid}/fd/{fd}")
    except OSError:
        return False  # closed since, or gone
    if len(stdin) == 2:
        return (facts.st_dev, facts.st_ino) == stdin
    return facts.st_rdev in (stdin[0], _DEV_TTY)
