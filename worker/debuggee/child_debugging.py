"""The children of a launched program that are debugged with it.

A child connects to the same listener as the program, with the same token, at any time. It has a
debug server of its own, and a pidfd names its process. It waits for us, so we go through the
handshake at once and within a bound; if the handshake fails, it runs on without a debugger.
Children that live when the program ends run on as well, and end with the session.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec import Struct

from debug_relay.protocol.errors import RelayError
from debug_relay.protocol.system import procfs
from debug_relay.worker.debuggee import child_events
from debug_relay.worker.debuggee.process import Exit
from debug_relay.worker.debugger.adapter import Adapter
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.hub import Hub
from debug_relay.worker.state.log import SessionLog
from debug_relay.worker.state.publication import Publication
from debug_relay.worker.system.blocked_syscalls import is_ended_by_signal

# Since Linux 6.15 a pidfd gives the exit status of a process that has ended and was collected.
_PIDFD_GET_INFO: Final = 0xC040FF0B
_PIDFD_INFO_EXIT: Final = 1 << 3
_INFO_BYTES: Final = 64
_END_SECONDS: Final = 0.5  # From the loss of a dying process's connection to its end by pidfd.


class Child(Struct):
    server: DebugServer
    pidfd: int
    gone: asyncio.Event


class Children:
    def __init__(
        self,
        log: SessionLog,
        publication: Publication,
        hub: Hub,
        adapter: Adapter,
        root: Callable[[], int],
        introduce: Callable[[DebugServer], Awaitable[None]],
        bootstrap: str,
        interpreter: str,
    ) -> None:
        """`root` gives the program's own pid; `introduce` goes through the handshake; `bootstrap`
        is the file that starts every child, and `interpreter` the one of the program itself.
        """
        self._log = log
        self._publication = publication
        self._hub = hub
        self._adapter = adapter
        self._root = root
        self._introduce = introduce
        self._bootstrap = bootstrap
        self._interpreter = interpreter
        self._children: dict[int, Child] = {}
        self._interpreters: dict[int, str] = {}  # pid → the interpreter's name in its command line
        self._accepting: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Accept children from now on."""
        self._accepting = asyncio.create_task(
            self._adapter.welcome_all(self._arrived), name="children"
        )

    async def close(self) -> None:
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)
        for pid in list(self._children):
            self._forget(pid)

    # -- coming and going

    async def _arrived(self, server: DebugServer) -> None:
        pid = server.pid
        is_root = pid == self._root()
        for former in [one for one in self._hub.servers if one.pid == pid]:
            # The process has executed another program, which connects anew.
            former.close("replaced by another program")
        if not is_root and not self._watch(server):
            server.close("it has ended already")
            return
        self._hub.add(server, root=is_root)
        self._publication.changed()
        row = procfs.stat(pid)
        parent = row.parent if row is not None else None
        child_events.attached(self._log, pid, parent, self._command_of(pid, parent))
        try:
            await self._introduce(server)
        except (RelayError, OSError) as error:
            # The child ended meanwhile, or is too slow; its own bound is not longer than this one.
            server.close("the handshake failed")
            child = self._children.get(pid)
            if child is not None and child.server is server and not await _ends(child):
                child_events.released(self._log, pid, str(error))

    def _command_of(self, pid: int, parent: int | None) -> list[str]:
        """The child's command line as the program wrote it, without our own words in front."""
        words = procfs.command(pid)
        if self._bootstrap in words:
            self._interpreters[pid] = words[0]
            own = words[words.index(self._bootstrap) + 2 :]
            return [words[0], *(own or ["(fork)"])]
        # A process whose command line is not ours before it connects was forked: it has the
        # command line of its parent.
        return [self._interpreters.get(parent or 0, self._interpreter), "(fork)"]

    def _watch(self, server: DebugServer) -> bool:
        try:
            pidfd = os.pidfd_open(server.pid)
        except OSError:
            return False
        self._forget(server.pid)
        self._children[server.pid] = Child(server, pidfd, asyncio.Event())
        asyncio.get_running_loop().add_reader(pidfd, self._ended, server.pid)
        return True

    def _ended(self, pid: int) -> None:
        child = self._children[pid]
        exit = exit_of(pid, child.pidfd)
        self._forget(pid)
        child_events.ended(self._log, pid, exit)
        child.server.close("its process has ended")

    def _forget(self, pid: int) -> None:
        self._interpreters.pop(pid, None)
        child = self._children.pop(pid, None)
        if child is not None:
            asyncio.get_running_loop().remove_reader(child.pidfd)
            os.close(child.pidfd)
            child.gone.set()

    # -- living with them

    def wake(self) -> None:
        """Make main threads that sleep in the kernel run a line, so that a pause reaches them."""
        for pid, child in self._children.items():
            if not child.server.lost and not is_ended_by_signal(pid):
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(child.pidfd, signal.SIGURG)


async def _ends(child: Child) -> bool:
    """Wait a moment; whether the child has ended, or has executed another program."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(child.gone.wait(), _END_SECONDS)
    return child.gone.is_set()


def exit_of(pid: int, pidfd: int) -> Exit | None:
    """The exit of a process that ended; None if its parent has collected it, and the kernel does
    not keep the status.
    """
    for look in (_status_from_kernel, _status_of_zombie, _status_from_kernel):
        status = look(pid, pidfd)
        if status is not None:
            return Exit(os.waitstatus_to_exitcode(status))
    return None


def _status_from_kernel(pid: int, pidfd: int) -> int | None:
    info = bytearray(_INFO_BYTES)
    struct.pack_into("Q", info, 0, _PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, info)
    except OSError:
        return None
    if not struct.unpack_from("Q", info)[0] & _PIDFD_INFO_EXIT:
        return None
    return int(struct.unpack_from("i", info, _INFO_BYTES - 4)[0])


def _status_of_zombie(pid: int, pidfd: int) -> int | None:
    """The status of a process that its parent has not collected yet; collect it if it is ours."""
    with contextlib.suppress(ChildProcessError):
        found, status = os.waitpid(pid, os.WNOHANG)
        return status if found else None
    stat = procfs.stat(pid)
    try:
        # The pidfd still exists after we read /proc, so what we read was about this process and
        # not about another with the same pid.
        signal.pidfd_send_signal(pidfd, 0)
    except OSError:
        return None
    return stat.exit_status if stat is not None and stat.state == "Z" else None
