"""The process of a launched program: its birth, its pipes or terminal, its end.

Owns the kernel's facts: pid, streams, exit status. Knows nothing of debugging. Output is read as
bytes and handed on with the moment of reading; an unfinished line is held back for a blink, so that
a line which the program writes in parts is one entry.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from debug_relay.protocol.models.fields import TerminalSize
from debug_relay.protocol.models.output_events import Category
from debug_relay.protocol.system import procfs
from debug_relay.worker.debuggee.pseudo_terminal import Terminal, come_to_front
from debug_relay.worker.debuggee.stdin import Stdin

_F_SETPIPE_SZ: Final = 1031
_PIPE_BYTES: Final = 1 << 20  # The kernel's buffer of a program's output pipe.
_READ_BYTES: Final = 1 << 18  # One read of a program's output.
_HOLD_SECONDS: Final = 0.02  # An unfinished line of output waits this long for its end.
# A program that has not ended this long after SIGTERM is resumed, so that it can act on it.
_TERM_SECONDS: Final = 0.1
_PR_SET_PDEATHSIG: Final = 1
_libc: Final = ctypes.CDLL(None, use_errno=True)


class Exit(Struct):
    """How a process ended, by the kernel's word."""

    code: int  # negative: the number of the signal, as Python's subprocess has it

    @property
    def signal_name(self) -> str | None:
        if self.code >= 0:
            return None
        try:
            return signal.Signals(-self.code).name
        except ValueError:
            return f"signal {-self.code}"


class Pump:
    """Reads one pipe until its end."""

    def __init__(
        self,
        fd: int,
        deliver: Callable[[bytes], None],
        on_end: Callable[[], object] = lambda: None,
        roomy: bool = True,
    ) -> None:
        """`roomy`: who writes much is seldom held up. All pipes of a user share some 64 MB."""
        self._fd = fd
        self._deliver = deliver
        self._on_end = on_end
        self._held = b""
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self.inode = os.fstat(fd).st_ino
        self.ended = asyncio.Event()
        os.set_blocking(fd, False)
        if roomy:
            with contextlib.suppress(OSError):  # an unprivileged user may be at their pipe limit
                fcntl.fcntl(fd, _F_SETPIPE_SZ, _PIPE_BYTES)
        self._loop.add_reader(fd, self._readable)

    def _readable(self) -> None:
        # One read a turn of the loop: commands interleave with a flood.
        try:
            data = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._take(data)
        else:
            self.close()

    def _take(self, data: bytes) -> None:
        data, self._held = self._held + data, b""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        cut = data.rfind(b"\n") + 1
        if cut < len(data) and len(data) - cut < _READ_BYTES:
            self._held = data[cut:]
            data = data[:cut]
            self._timer = self._loop.call_later(_HOLD_SECONDS, self.flush)
        if data:
            self._deliver(data)

    def drain(self) -> None:
        """Take what is in the pipe now, without waiting for more."""
        for _ in range(4096):
            if self.ended.is_set():
                return
            try:
                data = os.read(self._fd, _READ_BYTES)
            except OSError:
                break
            if not data:
                self.close()
                return
            self._take(data)
        self.flush()

    def flush(self) -> None:
        """Hand on an unfinished line."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        held, self._held = self._held, b""
        if held:
            self._deliver(held)

    def close(self) -> None:
        if self.ended.is_set():
            return
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self.flush()
        self.ended.set()
        self._on_end()


class Process:
    """A child of this worker, in its own process group; dies with the worker. It is in a session
    of its own too, unless it has a terminal, whose session is the worker's."""

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
    ) -> None:
        """`alone`: what it starts is not ours to end."""
        parent = os.getpid()
        self._terminal = Terminal(terminal) if terminal is not None else None
        self._alone = alone

        def die_with_parent() -> None:
            # The signal follows the *thread* that forked: the worker starts programs from its main
            # thread only. And the parent may have died before this line.
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(127)
            if terminal is not None:
                come_to_front()

        try:
            self._popen = subprocess.Popen(
                command,
                cwd=cwd,
                env=env,
                **self._streams(),
                bufsize=0,
                close_fds=True,
                pass_fds=pass_fds,
                start_new_session=terminal is None,
                process_group=None if terminal is None else 0,
                preexec_fn=die_with_parent,
            )
        except BaseException:
            if self._terminal is not None:
                self._terminal.close()
            raise
        self.pid = self._popen.pid
        self._pidfd = os.pidfd_open(self.pid)
        self._on_exit = on_exit
        self.exit: Exit | None = None
        self._ended = asyncio.Event()
        self._pumps: dict[Category, Pump] = {}
        if self._terminal is not None:
            self.stdin = Stdin(os.dup(self._terminal.master), self._terminal)
            self._read("stdout", self._terminal.master, on_output)
        else:
            assert self._popen.stdin is not None
            assert self._popen.stdout is not None
            assert self._popen.stderr is not None
            self.stdin = Stdin(os.dup(self._popen.stdin.fileno()))
            self._read("stdout", self._popen.stdout.fileno(), on_output)
            self._read("stderr", self._popen.stderr.fileno(), on_output)
            for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
                pipe.close()
        asyncio.get_running_loop().add_reader(self._pidfd, self._exited)

    def _streams(self) -> dict[str, Any]:
        if self._terminal is None:
            return dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return dict.fromkeys(("stdin", "stdout", "stderr"), self._terminal.slave)

    def _read(self, name: Category, fd: int, on_output: Callable[[Category, bytes], None]) -> None:
        self._pumps[name] = Pump(os.dup(fd), lambda data: on_output(name, data))

    def _exited(self) -> None:
        code = self._popen.poll()
        if code is None:
            return
        asyncio.get_running_loop().remove_reader(self._pidfd)
        self.exit = Exit(code)
        self._ended.set()
        # What it has written is in the pipes. A child of its own may hold them open: not awaited.
        self.flush()
        self.stdin.close()
        self._on_exit(self.exit)

    def pipes(self) -> dict[int, Category]:
        """What its output pipes are, by their inodes; none for one with a terminal."""
        if self._terminal is not None:
            return {}
        return {pump.inode: name for name, pump in self._pumps.items()}

    def flush_lines(self) -> None:
        """Lines that it has begun come before what others print now."""
        for pump in self._pumps.values():
            pump.flush()

    def flush(self) -> None:
        """All that was written so far is delivered."""
        for pump in self._pumps.values():
            pump.drain()

    def is_ending(self) -> bool:
        """The kernel closes the connections of a process that ends before it tells its end; on a
        busy machine much earlier."""
        stat = procfs.stat(self.pid)
        return stat is None or stat.is_exiting

    def send_signal(self, number: signal.Signals) -> None:
        """By pidfd: never to another process that got the same pid."""
        if self.exit is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def signal_group(self, number: signal.Signals) -> None:
        """To the whole process group, which exists as long as its leader is not reaped."""
        if self._alone:
            self.send_signal(number)
        elif self.exit is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    async def end(self, grace: float, let_run: Callable[[], None]) -> None:
        """SIGTERM to its group, and SIGKILL to the program when `grace` seconds are over.

        The others of the group are the sweep's, which does not kill all of them at one moment.
        A program that stands at a breakpoint ends by SIGTERM without another line being run, unless
        it handles the signal: then `let_run` frees it to do so.
        """
        if self.exit is None and grace > 0:
            self.signal_group(signal.SIGTERM)
            if not await self.wait(min(_TERM_SECONDS, grace)):
                let_run()
                await self.wait(grace - _TERM_SECONDS)
        if self.exit is None:
            self.send_signal(signal.SIGKILL)
            await self.wait(5.0)

    async def wait(self, timeout: float) -> bool:
        """Whether it ended in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._ended.wait()
        return self.exit is not None

    def release(self) -> None:
        """Give all descriptors back; the process must have ended."""
        self.stdin.close()
        for pump in self._pumps.values():
            pump.close()
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        if self._terminal is not None:
            self._terminal.close()
