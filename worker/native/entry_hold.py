"""Holds a program at its first instruction, until a native server takes it over.

The worker traces the new program up to its exec, where the kernel stops it. A process has one
tracer, so the worker must detach before the native server can trace it, and the program must not
run on meanwhile. SIGSTOP would stop it, but the debugger's user would see that signal, and a
program that was resumed with it would stop again. So the program runs in between: in a loop of one
instruction, which the worker writes over its first one and removes when the native server has
stopped it.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from debug_relay.protocol.errors import Code, RelayError

_PTRACE_TRACEME: Final = 0
_PTRACE_ATTACH: Final = 16
_PTRACE_DETACH: Final = 17
# A jump to itself.
_LOOPS: Final[Mapping[str, bytes]] = {
    "x86_64": b"\xeb\xfe",
    "i686": b"\xeb\xfe",
    "aarch64": b"\x00\x00\x00\x14",
}
_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long] * 4
_libc.ptrace.restype = ctypes.c_long
_LOOP: Final = _LOOPS.get(os.uname().machine) if sys.platform == "linux" else None


def is_possible() -> bool:
    return _LOOP is not None


def require() -> None:
    if not is_possible():
        raise RelayError(
            Code.ATTACH_UNSUPPORTED,
            f"On {os.uname().machine} the relay cannot hold a program at its first instruction",
            "Send wait_for_debugger false; the program then runs at once, and a debugger may "
            "connect later.",
        )


def ask_parent_to_trace() -> None:
    """Run in the new process, before it executes the program."""
    if _libc.ptrace(_PTRACE_TRACEME, 0, 0, 0) < 0:
        os._exit(126)


class EntryHold:
    """All of it runs in the worker's main thread, because the kernel lets only the tracing
    thread control a traced process.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._traces = False
        self._memory = -1  # the program's, open while the loop is in it
        self._place = 0
        self._instruction = b""

    async def begin(self) -> bool:
        """Wait until the program is stopped at its first instruction; false if it has ended."""
        self._traces = await self._until_stopped()
        return self._traces

    async def _until_stopped(self) -> bool:
        def wait() -> bool:
            # The exit code of a program that has ended is left for the part that waits for it.
            os.waitid(os.P_PID, self._pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            with suppress(ChildProcessError):
                return os.waitid(os.P_PID, self._pid, os.WSTOPPED | os.WNOHANG) is not None
            return False

        return await asyncio.to_thread(wait)

    def release(self) -> None:
        """Let the program run."""
        if self._traces:
            self._traces = False
            _libc.ptrace(_PTRACE_DETACH, self._pid, 0, 0)
        self._restore()

    def hand_over(self) -> None:
        """Let the program run in the loop, so that a native server can stop it there."""
        assert _LOOP is not None
        if not self._traces:
            raise ProcessLookupError("the program has ended")
        self._place = _program_counter(self._pid)
        memory = os.open(f"/proc/{self._pid}/mem", os.O_RDWR | os.O_CLOEXEC)
        try:
            self._instruction = os.pread(memory, len(_LOOP), self._place)
            os.pwrite(memory, _LOOP, self._place)
        except OSError:
            os.close(memory)
            raise
        self._memory = memory
        self._traces = False
        _libc.ptrace(_PTRACE_DETACH, self._pid, 0, 0)

    def taken(self) -> None:
        """The native server has stopped the program: its first instruction is put back.

        It raises OSError where the kernel lets only the tracer write to a program
        (`proc_mem.force_override`); the hold must then be taken back.
        """
        os.pwrite(self._memory, self._instruction, self._place)
        self._forget_memory()

    async def take_back(self) -> None:
        """No native server has attached: hold the program again."""
        if not self._traces and _libc.ptrace(_PTRACE_ATTACH, self._pid, 0, 0) == 0:
            self._traces = await self._until_stopped()
        self._restore()

    def _restore(self) -> None:
        if self._memory < 0:
            return
        with suppress(OSError):  # the program has ended
            os.pwrite(self._memory, self._instruction, self._place)
        self._forget_memory()

    def _forget_memory(self) -> None:
        os.close(self._memory)
        self._memory = -1


def _program_counter(pid: int) -> int:
    """The address of a stopped process's next instruction; the kernel shows it last."""
    with open(f"/proc/{pid}/syscall") as file:
        return int(file.read().split()[-1], 16)
