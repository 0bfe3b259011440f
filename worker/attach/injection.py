"""Starts the relay's first thread in a running program, with gdb.

gdb interrupts the program's main thread, which may hold any lock of the C library and of the
interpreter at that moment: code that waits for such a lock in this thread would block the program
for ever. So gdb only allocates some memory for the code to run and a file in memory for its status,
and queues the code as a pending call, which Python makes when its main thread next runs
(`Py_AddPendingCall` is made for signal handlers and waits for nothing). A main thread that rests in
a system call holds none of those locks, and may rest for long: gdb makes it run the code at once.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any, Final

from debug_relay.protocol.system.procfs import Syscall
from debug_relay.worker import bundle
from debug_relay.worker.attach import payload
from debug_relay.worker.attach.gdb import Gdb
from debug_relay.worker.attach.status_file import AttachRefusal, StatusFile

# The code that the program's main thread runs.
INJECTED: Final = bundle.text("startup/injected")
# The code gets these texts as names; with them it loads the other modules.
TEXTS: Final = {
    name: bundle.text(f"startup/{name}")
    for name in (
        "switch_interval", "eager_imports", "stdlib_imports", "bytecode_cache", "loader",
    )
}  # fmt: skip
# gdb takes the injected page back within this time; otherwise the program does it later.
_BACK_SECONDS: Final = 3.0


class Injection:
    """One injection; `rest` is the system call in which the main thread rests, if it does."""

    def __init__(self, pid: int, setup: dict[str, Any], rest: Syscall | None) -> None:
        self._program = pid
        self._memory = payload.Memory(pid)
        self._status: StatusFile | None = None
        self._begun = False
        text = os.memfd_create("debug-relay-text")
        try:
            page = payload.content(INJECTED, setup=setup, texts=TEXTS)
            os.write(text, page)
            self._gdb = Gdb(pid, _commands(f"/proc/self/fd/{text}", page, rest), (text,))
        except BaseException:
            self._memory.close()
            raise
        finally:
            os.close(text)
        self.ended = self._gdb.ended

    @property
    def code(self) -> int | None:
        return self._gdb.code

    def output(self) -> str:
        return self._gdb.output()

    @property
    def failed(self) -> bool:
        """gdb has ended, and the payload will not run in the program."""
        return self.ended.is_set() and (self.code != 0 or self._queued() != 0)

    def _queued(self) -> int | None:
        return self._gdb.printed_number("injected")

    @property
    def is_traced_by_another(self) -> bool:
        """Another process traces the program; the kernel allows only one tracer."""
        return self.failed and "already traced by" in self.output()

    @property
    def has_executed_another(self) -> bool:
        """Whether the process has executed another program since the injection."""
        return self._memory.is_anothers

    @property
    def begun(self) -> bool:
        """The injected code runs, or has run."""
        self._begun = self._begun or ((status := self._answer()) is not None and status.begun)
        return self._begun

    def refusal(self) -> AttachRefusal | None:
        status = self._answer()
        return status.refusal() if status is not None else None

    def _answer(self) -> StatusFile | None:
        if self._status is None and (descriptor := self._gdb.printed_number("status")) is not None:
            self._status = StatusFile(self._program, descriptor)
        return self._status

    @property
    def raised(self) -> str | None:
        """The class of the exception that the text raised before it could report anything. The
        program is then as before.
        """
        page = self._gdb.printed_number("page")
        if not self.ended.is_set() or page is None:
            return None
        return self._memory.raised(page)

    async def take_back(self) -> None:
        """Free the memory of a text that could not run, and close its status file."""
        page, status = self._gdb.printed_number("page"), self._answer()
        assert page is not None
        descriptor = status.descriptor if status is not None and status.is_open_there else -1
        gdb = Gdb(self._program, payload.take_back(page, descriptor))
        try:
            async with asyncio.timeout(_BACK_SECONDS):
                await gdb.ended.wait()
        except TimeoutError:
            pass  # gdb does it later, when it can
        finally:
            gdb.release()

    def release(self) -> None:
        if self._status is not None:
            self._status.cancel()
        self._memory.close()
        self._gdb.release()


def _commands(file: str, page: bytes, rest: Syscall | None) -> list[str]:
    at_rest = "0"
    if rest is not None:
        at_rest = f"(unsigned long)$sp == {rest.stack:#x} && (unsigned long)$pc == {rest.code:#x}"
    return [
        *payload.commands(file, page),
        'printf "relay page: %lu\\n", $page',
        'printf "relay status: %d\\n", $status',
        f"set $rests = {at_rest}",
        "set $relay = 0",
        "if $rests",
        "set $lock = ((int (*)(void)) PyGILState_Ensure)()",
        "if $runs",
        "set $relay = ((int (*)(unsigned long)) $page)($page)",
        "else",
        f"set $relay = ((int (*)(unsigned long)) PyRun_SimpleString)($page + {payload.TEXT})",
        payload.unmap("$page"),
        "end",
        "call ((void (*)(int)) PyGILState_Release)($lock)",
        "else",
        "if $runs",
        "set $relay = ((int (*)(unsigned long, unsigned long)) Py_AddPendingCall)($page, $page)",
        "else",
        "set $relay = ((int (*)(void *, unsigned long)) Py_AddPendingCall)"
        f"((void *) PyRun_SimpleString, $page + {payload.TEXT})",
        "end",
        "end",
        'printf "relay injected: %d\\n", $relay',
    ]
