"""Attaches to the descendants of an attached process, if the attach asks for them (`tree`).

We look for them in /proc twice a second and inject into them one after the other. A process that
was just forked may be about to execute another program (and shares its parent's memory until then,
after a vfork), so it must look the same for a while first. A process that we cannot attach to is
reported and left alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec import Struct

from debug_relay.protocol.errors import RelayError
from debug_relay.protocol.system import procfs
from debug_relay.protocol.system.procfs import Stat
from debug_relay.protocol.wire import dap
from debug_relay.worker.attach.injected_process import InjectedProcess
from debug_relay.worker.debuggee import child_events
from debug_relay.worker.debuggee.child_debugging import exit_of
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.probe_client import ProbeClient
from debug_relay.worker.debugger.target import ServerListener
from debug_relay.worker.probe.startup.python_command_line import is_python
from debug_relay.worker.state.log import SessionLog
from debug_relay.worker.state.settings import Settings

MAX_PROCESSES: Final = 64  # Processes of one attached tree that are debugged.
_LOOK_SECONDS: Final = 0.5  # The pause between two looks for new processes of an attached tree.
# A new process must keep its command line this long before it is attached to: it may be about to
# exec.
_SETTLED_SECONDS: Final = 0.5
# The attach to one process of a tree; one that hangs in C delays the next ones by this.
_ATTACH_SECONDS: Final = 10.0
# A process whose connection is lost has this long to end before it counts as released.
_EXIT_SECONDS: Final = 1.0

Appearance = tuple[str, list[str]]  # its executable and its command line


class _Seen(Struct):
    appearance: Appearance
    since: float
    settled: bool = False  # attached to, or reported as not: nothing more is to be done


class ProcessTree:
    def __init__(
        self,
        settings: Settings,
        log: SessionLog,
        probes: ProbeClient,
        servers: ServerListener,
        root: int,
        introduce: Callable[[DebugServer], Awaitable[None]],
        timeout: float,
    ) -> None:
        """`introduce` goes through the handshake with one process."""
        self._settings = settings
        self._log = log
        self._probes = probes
        self._servers = servers
        self._root = root
        self._introduce = introduce
        self._timeout = min(timeout, _ATTACH_SECONDS)
        self._processes: dict[int, InjectedProcess] = {}
        self._early: dict[DebugServer, list[dap.Message]] = {}  # events before the handshake's end
        self._seen: dict[tuple[int, int], _Seen] = {}
        self._residues: list[str] = []  # descriptions of our code that could not be removed
        self._closing = False
        # Set when the processes that existed at the beginning have been considered.
        self._looked = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, deadline: float) -> None:
        """Attach to the processes that exist. At the deadline return; the rest follows later."""
        self._looking = asyncio.create_task(self._look(), name="tree")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self._looked.wait()

    # -- attaching

    async def _look(self) -> None:
        began = asyncio.get_running_loop().time()
        while True:
            rows = [row for row in procfs.descendants(self._root) if row.lives]
            keys = {row.key for row in rows}
            self._seen = {key: seen for key, seen in self._seen.items() if key in keys}
            for row in rows:
                if self._has_settled(row):
                    await self._consider(row)
            waiting = [seen for seen in self._seen.values() if not seen.settled]
            if not any(seen.since <= began + _LOOK_SECONDS for seen in waiting):
                self._looked.set()
            await asyncio.sleep(_LOOK_SECONDS)

    def _has_settled(self, row: Stat) -> bool:
        """Whether the process has looked the same for long enough and was not considered yet."""
        now = asyncio.get_running_loop().time()
        appearance = _appearance_of(row.pid)
        seen = self._seen.get(row.key)
        if seen is None or seen.appearance != appearance:
            self._seen[row.key] = _Seen(appearance, now)
            return False
        return not seen.settled and now - seen.since >= _SETTLED_SECONDS

    async def _consider(self, row: Stat) -> None:
        if row.pid in self._processes:
            # The process has changed its name, or has just executed another program and will be
            # found again when its connection has ended.
            return
        executable, words = self._seen[row.key].appearance
        self._seen[row.key].settled = True
        why = self._why_unfit(row.pid, executable, words)
        if why is None and len(self._processes) + 1 >= MAX_PROCESSES:
            why = f"the session has {MAX_PROCESSES} processes already, which is the most"
        if why is not None:
            child_events.found(self._log, row.pid, row.parent, words)
            child_events.released(self._log, row.pid, why)
            return
        await self._attach(row, words)

    async def _attach(self, row: Stat, words: list[str]) -> None:
        process = InjectedProcess(
            row.pid, self._settings.params, self._take, self._lost, self._ended
        )
        is_attached = False

        async def introduce(server: DebugServer) -> None:
            """Go through the handshake. The process keeps running during it; breakpoints take
            effect only afterwards.
            """
            nonlocal is_attached
            early = self._early.setdefault(server, [])
            try:
                await self._introduce(server)
                is_attached = True
                self._processes[row.pid] = process
                child_events.attached(self._log, row.pid, row.parent, words)
            finally:
                del self._early[server]
                for message in early:
                    self._servers.take(server, message)

        try:
            await process.begin(self._timeout, None, introduce)
        except RelayError as error:
            self._forget(process)
            if process.gone:
                return  # its end was reported, if it was attached
            if not is_attached:
                child_events.found(self._log, row.pid, row.parent, words)
            child_events.released(self._log, row.pid, error.message)
        except BaseException:
            self._forget(process)
            raise

    def _take(self, server: DebugServer, message: dap.Message) -> None:
        """Buffer a child's events until its `attached` event has been written."""
        early = self._early.get(server)
        if early is None or message.event == "relayAnswer":
            self._servers.take(server, message)
        else:
            early.append(message)

    def _why_unfit(self, pid: int, executable: str, words: list[str]) -> str | None:
        """The reason not to inject; an injection into something else than Python would leave our
        memory in it.
        """
        known = is_python(executable.removesuffix(" (deleted)"))  # type: ignore[no-untyped-call]
        if not known and executable != _appearance_of(self._root)[0]:
            return "it is not a Python that the relay can attach to"
        if procfs.is_tracker(words):
            return "it is a helper of multiprocessing, which runs none of the program's code"
        if not all(procfs.is_in_our_namespace(pid, kind) for kind in ("pid", "net")):
            return "it is in another container than the relay"
        return None

    # -- ending

    def _lost(self, process: InjectedProcess, server: DebugServer, why: str) -> None:
        self._servers.server_lost(server, why)
        if not self._closing and self._processes.get(process.pid) is process:
            task = asyncio.create_task(self._after_loss(process))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _after_loss(self, process: InjectedProcess) -> None:
        """The process executed another program, which is then found as a new one, or we were silent
        for too long.
        """
        if await process.until_gone(_EXIT_SECONDS) or self._closing:
            return
        if self._forget(process):
            child_events.released(
                self._log, process.pid, "its connection was lost; it runs without the debugger"
            )
            await process.release()

    def _ended(self, process: InjectedProcess) -> None:
        if self._closing or not self._forget(process):
            return  # it is not attached yet: `begin` raises in `_attach`
        assert process.server is not None
        child_events.ended(self._log, process.pid, exit_of(process.pid, process.pidfd))
        process.server.close("its process has ended")
        task = asyncio.create_task(process.release())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _forget(self, process: InjectedProcess) -> bool:
        """Forget the process; whether it was attached."""
        if self._processes.get(process.pid) is not process:
            return False
        del self._processes[process.pid]
        return True

    @property
    def residue(self) -> str | None:
        return "; ".join(self._residues) or None

    async def detach(self) -> None:
        """Attach to no more processes, and detach from all of them side by side."""
        await self._stop()
        processes = list(self._processes.values())
        await asyncio.gather(*(process.detach(self._probes) for process in processes))
        self._residues = [f"process {one.pid}: {one.residue}" for one in processes if one.residue]

    async def close(self) -> None:
        await self._stop()
        while self._processes:
            await self._processes.popitem()[1].release()
        tasks = self._tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _stop(self) -> None:
        self._closing = True
        self._looked.set()  # the program may end while its processes are still awaited
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)


def _appearance_of(pid: int) -> Appearance:
    return procfs.executable(pid) or "", procfs.command(pid)
