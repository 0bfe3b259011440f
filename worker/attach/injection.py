"""Puts a first thread of ours into a running program, with gdb.

gdb interrupts the program's main thread, which may hold any lock of the C library and of the
interpreter at that moment: waiting for such a lock in it would block the program for ever. So gdb
only asks for some memory and for a file in memory, which hold the code to run and its answer, and
adds that code to the calls that Python makes when its main thread next runs (`Py_AddPendingCall`:
made for signal handlers, waits for nothing). A main thread that rests in a system call holds none
of those locks, and may rest for long: it runs the code at once.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any, Final

from debug_relay.protocol.system.procfs import Syscall
from debug_relay.worker import bundle
from debug_relay.worker.attach import payload
from debug_relay.worker.attach.gdb import Gdb
from debug_relay.worker.attach.status_file import Refusal, StatusFile

# The code that the program's main thread runs.
ARRIVAL: Final = bundle.text("startup/injected")
# Passed to it as names: the texts with which it loads the other modules.
TEXTS: Final = {
    name: bundle.text(f"startup/{name}")
    for name in (
        "switch_interval", "eager_imports", "stdlib_imports", "bytecode_cache", "loader",
    )
}  # fmt: skip
# gdb takes the injected page back within this time; otherwise the program does it later.
_BACK_SECONDS: Final = 3.0


class Injection:
    """`rest` is where the program's main thread rests, if it does."""

    def __init__(self, pid: int, setup: dict[str, Any], rest: Syscall | None) -> None:
        self._program = pid
        self._memory = payload.Memory(pid)
        self._word: StatusFile | None = None
        self._begun = False
        text = os.memfd_create("debug-relay-text")
        try:
            page = payload.content(ARRIVAL, setup=setup, texts=TEXTS)
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

    def said(self) -> str:
        return self._gdb.said()

    @property
    def failed(self) -> bool:
        """gdb has ended, and nothing of ours will run in the program."""
        return self.ended.is_set() and (self.code != 0 or self._noted() != 0)

    def _noted(self) -> int | None:
        return self._gdb.told("injected")

    @property
    def found_another(self) -> bool:
        """Somebody traces the program: the kernel lets only one."""
        return self.failed and "already traced by" in self.said()

    @property
    def found_another_program(self) -> bool:
        """The one that was meant has executed it."""
        return self._memory.is_anothers

    @property
    def begun(self) -> bool:
        """The injected code runs, or has run."""
        self._begun = self._begun or ((word := self._answer()) is not None and word.begun)
        return self._begun

    def refusal(self) -> Refusal | None:
        word = self._answer()
        return word.refusal() if word is not None else None

    def _answer(self) -> StatusFile | None:
        if self._word is None and (descriptor := self._gdb.told("word")) is not None:
            self._word = StatusFile(self._program, descriptor)
        return self._word

    @property
    def raised(self) -> str | None:
        """The class of what the text has raised instead of answering. The program is as before."""
        page = self._gdb.told("page")
        if not self.ended.is_set() or page is None:
            return None
        return self._memory.raised(page)

    async def take_back(self) -> None:
        """The memory of a text that could not run, and the file by which it would have answered."""
        page, word = self._gdb.told("page"), self._answer()
        assert page is not None
        descriptor = word.descriptor if word is not None and word.is_open_there else -1
        gdb = Gdb(self._program, payload.take_back(page, descriptor))
        try:
            async with asyncio.timeout(_BACK_SECONDS):
                await gdb.ended.wait()
        except TimeoutError:
            pass  # the program does it when it can
        finally:
            gdb.release()

    def release(self) -> None:
        if self._word is not None:
            self._word.leave()
        self._memory.close()
        self._gdb.release()


def _commands(file: str, page: bytes, rest: Syscall | None) -> list[str]:
    at_rest = "0"
    if rest is not None:
        at_rest = f"(unsigned long)$sp == {rest.stack:#x} && (unsigned long)$pc == {rest.code:#x}"
    return [
        *payload.commands(file, page),
        'printf "relay page: %lu\\n", $page',
        'printf "relay word: %d\\n", $word',
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
