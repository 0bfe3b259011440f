"""A running program that the worker attached to by its pid, alone or with its processes.

It outlives the worker in any case, and a detach leaves no trace in it. `injected_process` attaches
to one process; `descendants` decides which of its children the worker attaches to as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import Any, Final

import msgspec
from msgspec import Struct

from debug_relay.protocol.errors import RelayError
from debug_relay.protocol.models.output_events import Category
from debug_relay.protocol.models.program import Attach
from debug_relay.protocol.models.sessions import Program
from debug_relay.protocol.secrets import masked_command
from debug_relay.protocol.system import procfs
from debug_relay.protocol.system.procfs import Stat
from debug_relay.protocol.wire import dap
from debug_relay.worker.attach.descendants import ProcessTree
from debug_relay.worker.attach.injected_process import InjectedProcess
from debug_relay.worker.attach.unowned import UnownedProgram
from debug_relay.worker.breakpoints.session_breakpoints import Breakpoints
from debug_relay.worker.debuggee import child_events
from debug_relay.worker.debuggee.handshake import NewServers
from debug_relay.worker.debugger import adapter
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.probe_client import ProbeClient
from debug_relay.worker.debugger.run_control import RunControl
from debug_relay.worker.debugger.target import Debuggee
from debug_relay.worker.interpreter.cache import InterpreterCache
from debug_relay.worker.state.core import Core

# A target whose connection is lost has this long to end before it counts as released: the
# connection of a target that ends is lost a moment before.
_EXIT_SECONDS: Final = 1.0
_ENDING_SECONDS: Final = 30.0  # The same for a target that is already ending.
# A target that has not ended this long after SIGTERM is detached from, so that it can act on it.
_TERM_SECONDS: Final = 0.1


class AttachedProgram(UnownedProgram):
    """Another owner's program on this machine."""

    def __init__(
        self,
        params: Attach,
        core: Core,
        probes: ProbeClient,
        debuggee: Debuggee,
        run: RunControl,
        breakpoints: Breakpoints,
        interpreters: InterpreterCache,
        servers: NewServers,
    ) -> None:
        assert params.pid is not None
        self.keeps_children = True
        self._params = params
        self._settings = core.settings
        self._lifecycle = core.lifecycle
        self._log = core.log
        self._publication = core.publication
        self._hub, self._handshake, self._servers = servers
        self._probes = probes
        self._debuggee = debuggee
        self._run = run
        self._breakpoints = breakpoints
        self._interpreters = interpreters
        self._pid = params.pid
        self.shows = params.repr
        self._running = False
        self._detaching = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._process = InjectedProcess(
            params.pid, core.settings.params, servers.listener.take, self._lost, self._ended
        )
        self._tree = (
            ProcessTree(
                core.settings,
                core.log,
                probes,
                servers.listener,
                params.pid,
                self._introduce,
                params.connect_timeout,
            )
            if params.tree
            else None
        )

    @property
    def pid(self) -> int | None:
        return self._pid

    def processes(self) -> list[Stat]:
        row = procfs.stat(self._pid) if self._process.lives else None
        return [row, *procfs.descendants(self._pid)] if row is not None else []

    # -- starting

    async def start(self) -> None:
        deadline = asyncio.get_running_loop().time() + self._params.connect_timeout
        await self._process.begin(self._params.connect_timeout, self._params.identity, self._set_up)
        self._running = True
        if self._process.server is not None and self._process.server.lost:
            # The connection ended while gdb still traced the process: the process executed another
            # program, or it ends.
            self._start(self._after_loss())
        if self._tree is None:
            self._report_children()
        else:
            try:
                await self._tree.open(deadline)
            except BaseException:
                await self.release()
                raise
        if self._process.gone:
            self._lifecycle.ended(None, None, "target_lost")

    def _report_children(self) -> None:
        """Report the children that run already; the probe reports later ones when they start."""
        for row in procfs.descendants(self._pid):
            if row.lives:
                child_events.found(self._log, row.pid, row.parent, procfs.command(row.pid))

    async def _set_up(self, server: DebugServer) -> None:
        self._hub.add(server, root=True)
        await self._use_its_interpreter()
        await adapter.configure(server, lambda: self._handshake.prepare(server), self._options())

    async def _introduce(self, server: DebugServer) -> None:
        """Go through the handshake with a process of the tree."""
        self._hub.add(server)
        self._publication.changed()
        await adapter.configure(server, lambda: self._handshake.introduce(server), self._options())

    def _options(self) -> dict[str, Any]:
        config = self._settings.config
        chosen = self._params.just_my_code
        options = adapter.attach_options(config.just_my_code if chosen is None else chosen)
        if self._params.redirect_output:
            options.update(redirectOutput=True, isOutputRedirected=False)
        if self._params.path_mappings:
            options["pathMappings"] = [
                {"localRoot": mapping.local, "remoteRoot": mapping.remote}
                for mapping in self._params.path_mappings
            ]
        return options

    async def _use_its_interpreter(self) -> None:
        """Verify lines as the program's own interpreter compiles them."""
        facts = _facts(self._pid)
        version = None
        # If that interpreter may not be run, the session's own is used.
        with contextlib.suppress(RelayError):
            interpreter = await self._interpreters.find(facts.executable)
            version = interpreter.version_text
            self._breakpoints.verifier.use(self._breakpoints.verifier.code_lines_of(interpreter))
        shown = await asyncio.to_thread(masked_command, facts.command)
        self._debuggee.program = Program(
            attached=True,
            pid=self._pid,
            args=shown[1:],
            cwd=facts.cwd,
            python_path=facts.executable,
            python_version=version,
        )

    # -- events

    def on_event(self, server: DebugServer, message: dap.Message) -> bool:
        if message.event != "output" or not self._params.redirect_output:
            return False
        printed = msgspec.json.decode(bytes(message.body), type=dap.OutputBody)
        category: Category
        if printed.category == "stderr":
            category = "stderr"
        elif printed.category == "stdout":
            category = "stdout"
        else:
            return False
        data = printed.output.encode("utf-8", "backslashreplace")
        origin = {"pid": server.pid} if server.is_child else None
        self._log.take_output(category, data, origin)
        return True

    def _lost(self, process: InjectedProcess, server: DebugServer, why: str) -> None:
        self._servers.server_lost(server, why)
        if self._running and not self._detaching:
            self._start(self._after_loss())

    def _ended(self, process: InjectedProcess) -> None:
        if self._running and not self._detaching:
            # The connections to its children close as well, and the children detach by themselves.
            if self._tree is not None:
                self._start(self._tree.close())
            self._lifecycle.ended(None, None, "target_lost")

    async def _after_loss(self) -> None:
        """Find out why the connection ended. A process that still runs has detached by itself: it
        executed another program, or we were silent for too long.
        """
        patience = _ENDING_SECONDS if self._process.is_ending else _EXIT_SECONDS
        if await self._process.until_gone(patience):
            return
        async with self._run.lock:
            if self._debuggee.target is not self or self._detaching:
                return
            self._detaching = True
            self._log.say(
                f"The connection to process {self._pid} was lost; it runs without the debugger."
            )
            if self._tree is not None:
                await self._tree.detach()
            await self._release()
            self._lifecycle.detached()

    # -- living with it

    async def end(self, grace: float, for_all: bool = False) -> None:
        """End the program itself, which only an explicit call asks for. Its children belong to its
        owner.
        """
        self._detaching = True
        self._process.signal(signal.SIGTERM)
        if not await self._process.until_gone(min(_TERM_SECONDS, grace)):
            # A paused program cannot act on the signal; without the debugger it runs on.
            await self.detach()
            await self._process.until_gone(grace)
        if not self._process.gone:
            self._process.signal(signal.SIGKILL)
            await self._process.until_gone(5.0)
        self._running = False
        self._lifecycle.ended(None, None, "terminated")

    async def detach(self) -> None:
        """Detach: the program and its processes run on as before, without probe and pydevd."""
        self._detaching = True
        detaching = [self._process.detach(self._probes)]
        if self._tree is not None:
            detaching.append(self._tree.detach())
        await asyncio.gather(*detaching)

    @property
    def residue(self) -> str | None:
        """Describes what could not be removed from the program."""
        left = [self._process.residue, self._tree.residue if self._tree is not None else None]
        return "; ".join(words for words in left if words) or None

    async def release(self) -> None:
        self._detaching = True
        await self._release()

    async def _release(self) -> None:
        if self._tree is not None:
            await self._tree.close()
        await self._process.release()
        others = self._tasks - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Facts(Struct):
    executable: str
    command: list[str]
    cwd: str | None


def _facts(pid: int) -> _Facts:
    """The process's executable, command line and directory, as far as we may read them."""
    return _Facts(procfs.executable(pid) or "", procfs.command(pid) or [""], procfs.cwd(pid))
