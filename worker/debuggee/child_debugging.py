"""The processes that a launched program has started, as far as they are debugged with it.

They come to the same listener as the program, with the same token, at any time: each has a debug
server of its own, and its process is known by a pidfd. Who waits for us is served at once and
within a bound; whom we cannot serve is shown out and runs on without a debugger. Children that are
there when the program ends run on as well, and end with the session.
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
from debug_relay.worker.system.blocked_syscalls import waits_for_signal

# The kernel's word on a process that has ended (Linux 6.15 and later): what its parent was told.
_PIDFD_GET_INFO: Final = 0xC040FF0B
_PIDFD_INFO_EXIT: Final = 1 << 3
_INFO_BYTES: Final = 64
_END_SECONDS: Final = 0.5  # From the loss of a dying process's connection to the news of its end.


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
        """`root` tells the program's own pid; `introduce` goes through the handshake; `bootstrap`
        is what starts them all, the program itself by `interpreter`."""
        self._log = log
        self._publication = publication
        self._hub = hub
        self._adapter = adapter
        self._root = root
        self._introduce = introduce
        self._bootstrap = bootstrap
        self._interpreter = interpreter
        self._children: dict[int, Child] = {}
        self._called: dict[int, str] = {}  # pid → the interpreter's name in its command line
        self._accepting: asyncio.Task[None] | None = None

    def open(self) -> None:
        """From now on they may come."""
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
            # It has executed another program in its place.
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
            # It has ended meanwhile, or is too slow: its own bound is not longer than ours.
            server.close("the handshake failed")
            child = self._children.get(pid)
            if child is not None and child.server is server and not await _ends(child):
                child_events.released(self._log, pid, str(error))

    def _command_of(self, pid: int, parent: int | None) -> list[str]:
        """As the program has written it, without what was put before its words."""
        words = procfs.command(pid)
        if self._bootstrap in words:
            self._called[pid] = words[0]
            own = words[words.index(self._bootstrap) + 2 :]
            return [words[0], *(own or ["(fork)"])]
        # Who shows its program's words already, before it has come, has them from who forked it.
        return [self._called.get(parent or 0, self._interpreter), "(fork)"]

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
        self._called.pop(pid, None)
        child = self._children.pop(pid, None)
        if child is not None:
            asyncio.get_running_loop().remove_reader(child.pidfd)
            os.close(child.pidfd)
            child.gone.set()

    # -- living with them

    def wake(self) -> None:
        """Main threads that sleep in the kernel run a line, so that a pause reaches them."""
        for pid, child in self._children.items():
            if not child.server.lost and not waits_for_signal(pid):
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(child.pidfd, signal.SIGURG)


async def _ends(child: Child) -> bool:
    """Whether it is about to, or has become another."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(child.gone.wait(), _END_SECONDS)
    return child.gone.is_set()


def exit_of(pid: int, pidfd: int) -> Exit | None:
    """How it ended; None where its parent was quicker and the kernel does not tell."""
    for look in (_told_by_kernel, _read_of_zombie, _told_by_kernel):
        status = look(pid, pidfd)
        if status is not None:
            return Exit(os.waitstatus_to_exitcode(status))
    return None


def _told_by_kernel(pid: int, pidfd: int) -> int | None:
    info = bytearray(_INFO_BYTES)
    struct.pack_into("Q", info, 0, _PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, info)
    except OSError:
        return None
    if not struct.unpack_from("Q", info)[0] & _PIDFD_INFO_EXIT:
        return None
    return int(struct.unpack_from("i", info, _INFO_BYTES - 4)[0])


def _read_of_zombie(pid: int, pidfd: int) -> int | None:
    """While its parent has not asked; one that was left to us is collected."""
    with contextlib.suppress(ChildProcessError):
        found, status = os.waitpid(pid, os.WNOHANG)
        return status if found else None
    stat = procfs.stat(pid)
    try:
        # Still there after the look: it was this process, and no other by the same number.
        signal.pidfd_send_signal(pidfd, 0)
    except OSError:
        return None
    return stat.exit_status if stat is not None and stat.state == "Z" else None
