"""One run of gdbserver or lldb-server: traces the program for one debugger's connection.

The server speaks with the debugger through an inherited socket and never listens: a listener that
does not check its peer would let every local user run code as us. The server ends with its
connection, and the next debugger gets another server.
"""

from __future__ import annotations

import asyncio
import os
import socket
from asyncio import StreamReader, StreamWriter
from contextlib import suppress
from functools import partial
from typing import Final

from debug_relay.protocol.system import procfs
from debug_relay.worker.debuggee.process import die_with
from debug_relay.worker.native.plan import Adapter
from debug_relay.worker.native.remote_protocol import INTERRUPT, Breakpoints
from debug_relay.worker.system import own_processes

_PIECE_BYTES: Final = 64 * 1024  # One read of either side; twice as much may wait for the debugger.
_TAIL_BYTES: Final = 2000  # The end of what the server prints about itself.
_ATTACH_SECONDS: Final = 15.0  # The server stops the program within this time.
_LOOK_SECONDS: Final = 0.002  # The pause between two looks at whether it has.
# A server whose debugger has left removes its breakpoints and detaches within this time.
_LEAVE_SECONDS: Final = 5.0
_KILLED_SECONDS: Final = 5.0  # The kernel ends a killed server within this time.


class NativeServer:
    def __init__(
        self, adapter: Adapter, process: asyncio.subprocess.Process, ours: socket.socket
    ) -> None:
        # lldb-server leaves the breakpoints of a debugger that is killed; gdbserver removes them.
        self._left = Breakpoints() if adapter == "lldb-server" else None
        self._process = process
        self._ours = ours
        self._said = b""
        self._killing: asyncio.TimerHandle | None = None
        self._listening = asyncio.create_task(self._listen(), name="words of the native server")

    @classmethod
    async def start(cls, adapter: Adapter, path: str, program: int) -> NativeServer:
        """Start the server; it attaches to the process `program`."""
        ours, theirs = socket.socketpair()
        with theirs:
            end = theirs.fileno()
            if adapter == "gdbserver":
                command = [path, "--once", "--attach", "-", str(program)]
            else:
                command = [path, "gdbserver", "--fd", str(end), "--attach", str(program)]
            speaks_on_stdio = adapter == "gdbserver"
            try:
                with own_processes.starting():
                    process = await asyncio.create_subprocess_exec(
                        *command,
                        stdin=end if speaks_on_stdio else asyncio.subprocess.DEVNULL,
                        stdout=end if speaks_on_stdio else asyncio.subprocess.DEVNULL,
                        stderr=asyncio.subprocess.PIPE,
                        pass_fds=() if speaks_on_stdio else (end,),
                        env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
                        cwd="/",
                        start_new_session=True,
                        preexec_fn=partial(die_with, os.getpid()),
                    )
                    own_processes.add(process.pid)
            except BaseException:
                ours.close()
                raise
        ours.setblocking(False)
        return cls(adapter, process, ours)

    async def _listen(self) -> None:
        assert self._process.stderr is not None
        while piece := await self._process.stderr.read(_TAIL_BYTES):
            self._said = (self._said + piece)[-_TAIL_BYTES:]

    async def until_attached(self, program: int) -> str | None:
        """Wait until the server has stopped the program; returns why it has not, or None."""
        ended = asyncio.create_task(self._process.wait())
        try:
            async with asyncio.timeout(_ATTACH_SECONDS):
                while not self._holds(program):
                    if ended.done():
                        await asyncio.wait([self._listening], timeout=_KILLED_SECONDS)
                        return " ".join(self._said.decode("utf-8", "replace").split())
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            return f"it did not stop the program within {_ATTACH_SECONDS:g} s"
        finally:
            ended.cancel()
        return None

    def _holds(self, program: int) -> bool:
        row, status = procfs.stat(program), procfs.status(program)
        if row is None or status is None or row.state != "t" or not status.tracer:
            return False
        # The kernel names the thread that traces.
        return os.path.exists(f"/proc/{self._process.pid}/task/{status.tracer}")

    async def carry(
        self, program: int, first: bytes, reader: StreamReader, writer: StreamWriter
    ) -> None:
        """Carry bytes between the debugger and the server until either has ended, `first` before
        all others. Who does not read stops the other one's writing.
        """
        writer.transport.set_write_buffer_limits(high=_PIECE_BYTES)
        up = asyncio.create_task(self._carry_up(first, reader), name="debugger to server")
        down = asyncio.create_task(self._carry_down(writer), name="server to debugger")
        try:
            await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
            if not down.done():
                await self._remove_breakpoints(program)
                self.hang_up()
                await down
        finally:
            up.cancel()
            down.cancel()
            await asyncio.gather(up, down, return_exceptions=True)

    async def _carry_up(self, first: bytes, reader: StreamReader) -> None:
        loop = asyncio.get_running_loop()
        piece = first
        with suppress(ConnectionError):  # one of the two has left
            while piece:
                if self._left is not None:
                    self._left.read(piece)
                await loop.sock_sendall(self._ours, piece)
                piece = await reader.read(_PIECE_BYTES)

    async def _carry_down(self, writer: StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        with suppress(ConnectionError):  # one of the two has left
            while piece := await loop.sock_recv(self._ours, _PIECE_BYTES):
                writer.write(piece)
                await writer.drain()

    async def _remove_breakpoints(self, program: int) -> None:
        """Stop the program and remove what a debugger has left in it, in the debugger's place."""
        removal = self._left.removal() if self._left is not None else b""
        if not removal:
            return
        loop = asyncio.get_running_loop()
        with suppress(TimeoutError, OSError):  # a server that does not answer is killed
            async with asyncio.timeout(_LEAVE_SECONDS):
                if not self._holds(program):
                    await loop.sock_sendall(self._ours, INTERRUPT)
                while not self._holds(program):
                    await asyncio.sleep(_LOOK_SECONDS)
                await loop.sock_sendall(self._ours, removal)
                while self._holds(program):
                    await asyncio.sleep(_LOOK_SECONDS)

    def hang_up(self) -> None:
        """Close the debugger's side: the server resumes the program, detaches and ends."""
        if self._killing is None:
            loop = asyncio.get_running_loop()
            self._killing = loop.call_later(_LEAVE_SECONDS, self._kill)
        with suppress(OSError):  # the server has ended
            self._ours.shutdown(socket.SHUT_WR)

    def _kill(self) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()

    @property
    def was_killed(self) -> bool:
        """Whether it has ended without its work: the program may have its breakpoints still."""
        return self._process.returncode is not None and self._process.returncode < 0

    async def end(self) -> None:
        """Return when the server has ended. If it has detached before, nothing is lost."""
        self.hang_up()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LEAVE_SECONDS + _KILLED_SECONDS):
                    await self._process.wait()
        finally:
            self._kill()
            if self._killing is not None:
                self._killing.cancel()
            own_processes.remove(self._process.pid)
            self._ours.close()
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
