"""The process of a launched program: its start, its pipes or terminal, its end.

This module owns pid, streams and exit status, and knows nothing of debugging.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from debug_relay.protocol.models.fields import TerminalSize
from debug_relay.protocol.models.output_events import Category
from debug_relay.protocol.system import procfs
from debug_relay.worker.debuggee.output_pipe import Pump
from debug_relay.worker.debuggee.pseudo_terminal import Terminal, come_to_front
from debug_relay.worker.debuggee.stdin import Stdin

# A program that has not ended this long after SIGTERM is resumed, so that it can act on it.
_TERM_SECONDS: Final = 0.1
# An ended program that its debugger has not collected is looked at again after this time.
_COLLECT_SECONDS: Final = 0.01
# After so many looks the debugger is not going to collect it.
_MOST_LOOKS: Final = 100
_PR_SET_PDEATHSIG: Final = 1
_libc: Final = ctypes.CDLL(None, use_errno=True)


def die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends. It runs in a new process.

    The kernel sends this signal when the *thread* that forked ends, so the worker starts processes
    from its main thread only. The parent may have died before this line.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(127)


class Exit(Struct):
    """The end of a process as the kernel reports it."""

    code: int  # negative: the number of the signal, as Python's subprocess has it

    @property
    def signal_name(self) -> str | None:
        if self.code >= 0:
            return None
        try:
            return signal.Signals(-self.code).name
        except ValueError:
            return f"signal {-self.code}"


class Process:
    """A child of this worker, in its own process group; it dies with the worker. It also has a
    session of its own, unless it has a terminal: a terminal's session is the worker's.
    """

    def __init__(
        self,
        command: list[str],
        *,
        cwd: str,
        env: dict[str, str],
        pass_fds: tuple[int, ...],
        on_output: Callable[[Category, bytes], None],
        on_exit: Callable[[Exit], None],
        terminal: TerminalSize | None = None,
        alone: bool = False,
        prepare: Callable[[], None] | None = None,
        on_kept: Callable[[], None] = lambda: None,
    ) -> None:
        """`alone`: the processes that it starts are not ended with it. `prepare` runs in the new
        process before the command does. `on_kept`: it has ended, and a debugger that traces it
        does not collect it.
        """
        self._terminal = Terminal(terminal) if terminal is not None else None
        self._alone = alone
        try:
            self._popen = self._started(command, cwd, env, pass_fds, prepare)
        except BaseException:
            if self._terminal is not None:
                self._terminal.close()
            raise
        self.pid = self._popen.pid
        self._pidfd = os.pidfd_open(self.pid)
        self._on_exit = on_exit
        self._on_kept = on_kept
        self.exit: Exit | None = None
        self._ended = asyncio.Event()
        self._again: asyncio.TimerHandle | None = None
        self._looks = 0
        self._pumps: dict[Category, Pump] = {}
        self.stdin = self._connect_streams(on_output)
        asyncio.get_running_loop().add_reader(self._pidfd, self._exited)

    def _started(
        self,
        command: list[str],
        cwd: str,
        env: dict[str, str],
        pass_fds: tuple[int, ...],
        prepare: Callable[[], None] | None,
    ) -> subprocess.Popen[bytes]:
        parent, has_terminal = os.getpid(), self._terminal is not None

        def begin() -> None:
            die_with(parent)
            if has_terminal:
                come_to_front()
            if prepare is not None:
                prepare()

        return subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            **self._streams(),
            bufsize=0,
            close_fds=True,
            pass_fds=pass_fds,
            start_new_session=not has_terminal,
            process_group=0 if has_terminal else None,
            preexec_fn=begin,
        )

    def _streams(self) -> dict[str, Any]:
        if self._terminal is None:
            return dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return dict.fromkeys(("stdin", "stdout", "stderr"), self._terminal.slave)

    def _connect_streams(self, on_output: Callable[[Category, bytes], None]) -> Stdin:
        """Begin to read the program's output; returns its input."""
        if self._terminal is not None:
            self._read("stdout", self._terminal.master, on_output)
            return Stdin(os.dup(self._terminal.master), self._terminal)
        stdin, stdout, stderr = self._popen.stdin, self._popen.stdout, self._popen.stderr
        assert stdin is not None
        assert stdout is not None
        assert stderr is not None
        self._read("stdout", stdout.fileno(), on_output)
        self._read("stderr", stderr.fileno(), on_output)
        program_input = Stdin(os.dup(stdin.fileno()))
        for pipe in (stdin, stdout, stderr):
            pipe.close()  # each is duplicated above
        return program_input

    def _read(self, name: Category, fd: int, on_output: Callable[[Category, bytes], None]) -> None:
        self._pumps[name] = Pump(os.dup(fd), lambda data: on_output(name, data))

    def _exited(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._pidfd)
        code = self._popen.poll()
        if code is None:
            # The kernel notifies a debugger that traces it first, and collects it before we can.
            # The descriptor stays readable meanwhile.
            self._again = loop.call_later(_COLLECT_SECONDS, self._exited)
            self._looks += 1
            if self._looks == _MOST_LOOKS:
                self._on_kept()
            return
        self.exit = Exit(code)
        self._ended.set()
        # All that it has written is in the pipes. We do not wait for their end: a child of the
        # program may keep them open.
        self.flush()
        self.stdin.close()
        self._on_exit(self.exit)

    def pipes(self) -> dict[int, Category]:
        """Its output pipes' categories by inode; empty for a program with a terminal."""
        if self._terminal is not None:
            return {}
        return {pump.inode: name for name, pump in self._pumps.items()}

    def open_pipes(self) -> list[int]:
        """The output pipes to which a process may still write; a terminal is not a pipe."""
        if self._terminal is not None:
            return []
        return [pump.fd for pump in self._pumps.values() if not pump.ended.is_set()]

    def flush_lines(self) -> None:
        """Deliver lines that the program has begun before the output that follows."""
        for pump in self._pumps.values():
            pump.flush()

    def flush(self) -> None:
        """Deliver all that was written so far."""
        for pump in self._pumps.values():
            pump.drain()

    def is_ending(self) -> bool:
        """Whether the process is about to end. The kernel closes its connections before it reports
        its end; on a busy machine much earlier.
        """
        stat = procfs.stat(self.pid)
        return stat is None or stat.is_exiting

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal by pidfd, so never to another process with the same pid."""
        if self.exit is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to the process group, which exists until its leader is collected."""
        if self._alone:
            self.send_signal(number)
        elif self.exit is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    async def end(self, grace: float, resume: Callable[[], None]) -> None:
        """Send SIGTERM to its group, and SIGKILL to the program when `grace` seconds are over.

        The sweep ends the others of the group, because it does not kill all of them at one moment.
        A program that is paused ends by SIGTERM without running another line, unless it handles the
        signal: then `resume` resumes it, so that its handler can run.
        """
        if self.exit is None and grace > 0:
            self.signal_group(signal.SIGTERM)
            if not await self.wait(min(_TERM_SECONDS, grace)):
                resume()
                await self.wait(grace - _TERM_SECONDS)
        if self.exit is None:
            self.send_signal(signal.SIGKILL)
            await self.wait(5.0)

    async def wait(self, timeout: float) -> bool:
        """Wait for the end; whether it came in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._ended.wait()
        return self.exit is not None

    def release(self) -> None:
        """Close all descriptors; the process must have ended."""
        self.stdin.close()
        for pump in self._pumps.values():
            pump.close()
        if self._again is not None:
            self._again.cancel()
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        if self._terminal is not None:
            self._terminal.close()
