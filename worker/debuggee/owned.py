"""A program that this worker has started: its output, its input and its end, whatever debugs it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.fields import TerminalSize
from debug_relay.protocol.models.output_events import Category
from debug_relay.protocol.state import State
from debug_relay.protocol.system.procfs import Stat
from debug_relay.worker.debuggee.graceful_stop import GracefulStop
from debug_relay.worker.debuggee.input_wait import InputWatch
from debug_relay.worker.debuggee.process import Exit, Process
from debug_relay.worker.debugger.input_requests import InputRequests
from debug_relay.worker.state.lifecycle import Lifecycle
from debug_relay.worker.state.log import SessionLog
from debug_relay.worker.system import descendants

_SWEEP_SECONDS: Final = 3.0  # Processes that a program has left are ended within this time.


class OwnedProgram:
    """We are its parent, own its pipes and end it when we end.

    A subclass knows the debugger: it starts the program with `_spawn`, and detaches the debugger in
    `_drop_debugger`.
    """

    attached = False

    def __init__(
        self,
        lifecycle: Lifecycle,
        log: SessionLog,
        input_requests: InputRequests,
        keeps_children: bool,
    ) -> None:
        self._lifecycle = lifecycle
        self._log = log
        self._input_requests = input_requests
        self.keeps_children = keeps_children
        self.shows: Final = "full"
        self._process: Process | None = None
        self._input: InputWatch | None = None
        self._endings = 0  # calls that end the program now; they report its end with its children's

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def processes(self) -> list[Stat] | None:
        return descendants.of_programs()

    def _spawn(
        self,
        command: list[str],
        *,
        cwd: str,
        env: dict[str, str],
        terminal: TerminalSize | None,
        pass_fds: tuple[int, ...] = (),
        prepare: Callable[[], None] | None = None,
    ) -> Process:
        """Start the process. `prepare` runs in it before the program begins."""
        self._log.forget_tail()
        process = self._process = Process(
            command,
            cwd=cwd,
            env=env,
            pass_fds=pass_fds,
            on_output=self._printed,
            on_exit=self._exited,
            terminal=terminal,
            alone=self.keeps_children,
            prepare=prepare,
            on_kept=self._drop_debugger,
        )
        self._input = InputWatch(
            process,
            lambda: self._lifecycle.state is State.RUNNING,
            self._input_requests.set,
            on_terminal=terminal is not None,
        )
        return process

    def _printed(self, name: Category, data: bytes) -> None:
        self._log.take_output(name, data)
        if self._input is not None:
            self._input.printed(data)

    def _exited(self, exit: Exit) -> None:
        if not self._endings:
            self._report_end(exit, [])

    def _report_end(self, exit: Exit, swept: list[descendants.Ended]) -> None:
        raise NotImplementedError

    def _drop_debugger(self) -> None:
        """Detach the debugger, so that the program can act on a signal, or its end be collected."""
        raise NotImplementedError

    # -- living with it

    def flush_output(self) -> None:
        if self._process is not None:
            self._process.flush()

    def state_changed(self) -> None:
        if self._input is None:
            return
        if self._lifecycle.state is State.RUNNING:
            self._input.soon()
        else:
            self._input.at_rest()

    async def write_input(self, data: bytes, eof: bool) -> None:
        assert self._process is not None
        try:
            self._process.stdin.write(data)
        except OSError as error:
            raise RelayError(
                Code.INVALID_SESSION_STATE,
                f"The program's standard input is closed: {error.strerror or error}",
                "A call closed it with eof, or the program closed it; restart to write more.",
            ) from None
        except BufferError as error:
            raise RelayError(
                Code.INVALID_SESSION_STATE,
                f"The program does not read its standard input: {error}",
                "Wait until the program has read some of it: "
                f"{call_of('session-status')} shows whether it runs, {call_of('continue')} resumes "
                "it.",
            ) from None
        if eof:
            self._process.stdin.finish()
        if self._input is not None:
            self._input.written(data, eof)

    async def end(self, grace: float, for_all: bool = False) -> None:
        process = self._process
        if process is None:
            return
        deadline = asyncio.get_running_loop().time() + grace
        graceful = (
            GracefulStop(self.processes) if for_all and grace and not self.keeps_children else None
        )
        swept: dict[int, descendants.Ended] = {}
        self._endings += 1
        try:
            # The signal to the program's group ends some of them: these count as swept, too.
            there = [] if self.keeps_children else descendants.named(self.processes() or [])
            if graceful is not None:
                graceful.begin(process.pid)
            # A paused program cannot act on SIGTERM; without the debugger it runs on.
            await process.end(grace, self._drop_debugger)
            if graceful is not None:
                self._drop_debugger()  # its children's debuggers too
                await graceful.until_gone(deadline)
            swept = {one.pid: one for one in [*there, *await self.end_children()]}
            swept.pop(process.pid, None)
        finally:
            self._endings -= 1
            if process.exit is not None:
                self._report_end(process.exit, list(swept.values()))

    def kept_pipes(self) -> list[int]:
        if not self.keeps_children or self._process is None:
            return []
        return self._process.open_pipes()

    async def end_children(self) -> list[descendants.Ended]:
        if self.keeps_children or self._process is None:
            return []
        deadline = time.monotonic() + _SWEEP_SECONDS
        awaited = self._process.pid if self._process.exit is None else None
        return await asyncio.to_thread(descendants.end_programs, deadline, awaited)

    async def detach(self) -> None:
        raise RelayError(
            Code.ATTACH_UNSUPPORTED,
            "The program was launched by this session and ends with it",
            "Resume it with continue, or end it with terminate; only attached programs "
            "keep running.",
        )

    @property
    def residue(self) -> str | None:
        return None

    async def release(self) -> None:
        if self._process is not None:
            self._process.release()
