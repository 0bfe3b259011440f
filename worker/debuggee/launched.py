"""A launched Python program, from its plan to its end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any, Final

import msgspec

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.output_events import Category
from debug_relay.protocol.wire import dap
from debug_relay.worker import bundle
from debug_relay.worker.debuggee import start_refusals
from debug_relay.worker.debuggee.child_debugging import Children
from debug_relay.worker.debuggee.child_output import ChildOutput
from debug_relay.worker.debuggee.handshake import NewServers, kept_bytecode
from debug_relay.worker.debuggee.launch_plan import Plan
from debug_relay.worker.debuggee.owned import OwnedProgram
from debug_relay.worker.debuggee.process import Exit
from debug_relay.worker.debuggee.start_status import StartStatus
from debug_relay.worker.debugger import adapter
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.input_requests import InputRequests
from debug_relay.worker.debugger.target import Debuggee
from debug_relay.worker.interpreter.ownership import require_ours
from debug_relay.worker.state.core import Core
from debug_relay.worker.system import descendants
from debug_relay.worker.system.blocked_syscalls import is_ended_by_signal

_TAIL_BYTES: Final = 2000  # The end of the output that a failed start shows.
# A connected program reports within this time that its module does not exist. If importing the
# packages above the module takes longer, the program counts as running: it can be paused, given
# input and ended.
_IMPORT_SECONDS: Final = 2.0
# A lost connection is reported after this time: a killed program loses it before its end is
# known.
_ENDING_SECONDS: Final = 0.5
# These errors go to the caller as they are: only the program's own import system could find them,
# or the interpreter has changed since the plan was made.
_REFUSALS: Final = (
    Code.LAUNCH_MODULE_NOT_FOUND,
    Code.LAUNCH_SYNTAX_ERROR,
    Code.LAUNCH_INTERPRETER_NOT_FOUND,
)


_FLAGS: Final = {"script": [], "module": ["-m"], "code": ["-c"]}
# One argument of the program's command line; the kernel takes 128 KiB.
_LONGEST_ARGUMENT_CHARACTERS: Final = 100_000


class LaunchedProgram(OwnedProgram):
    """A Python program that we launched."""

    def __init__(
        self,
        launch: Plan,
        core: Core,
        debuggee: Debuggee,
        input_requests: InputRequests,
        servers: NewServers,
    ) -> None:
        super().__init__(core.lifecycle, core.log, input_requests, launch.keep_children)
        self._plan = launch
        self._settings = core.settings
        self._hub, self._handshake, self._servers = servers
        self._debuggee = debuggee
        self._status = StartStatus(launch)
        self._running = False
        self._adapter = adapter.Adapter(servers.listener.take, self._lost, descendants.uids)
        # Files for its children, in the session's directory: a child may close inherited
        # descriptors.
        self._child_setup = core.settings.folder / "family.json"
        self._bootstrap = core.settings.folder / "bootstrap.py"
        self._sources = core.settings.folder / "probe"
        self._children = Children(
            core.log,
            core.publication,
            self._hub,
            self._adapter,
            lambda: self.pid or 0,
            self._introduce,
            str(self._bootstrap),
            launch.interpreter.path,
        )
        self._child_output = ChildOutput(self._child_printed)
        self._loss_timer: asyncio.TimerHandle | None = None

    # -- starting

    async def start(self) -> None:
        timeout = self._settings.params.launch_timeout
        try:
            async with asyncio.timeout(timeout):
                await self._look_at_interpreter()
                self._start_process()
                await self._until_started()
        except TimeoutError:
            raise await self._failed(start_refusals.too_slow(timeout)) from None
        except OSError as error:
            raise await self._failed(start_refusals.not_startable(error)) from None
        except RelayError as error:
            if error.code in _REFUSALS:
                await self._give_up()
                raise
            raise await self._failed(error.message) from None
        except BaseException:
            await self._give_up()  # the call was cancelled, and no other would end the program
            raise
        self._running = True

    async def _look_at_interpreter(self) -> None:
        """Examine the interpreter again right before it runs: its files may have changed owner."""
        who = self._plan.interpreter
        await asyncio.to_thread(require_ours, [who.path, who.executable], found=who.found)

    def _start_process(self) -> None:
        self._adapter.listen()
        status_pipe = self._status.listen()
        setup = self._setup_descriptor(status_pipe)
        bootstrap = _in_memory("debug-relay-bootstrap", bundle.BOOTSTRAP.encode())
        interpreter = self._plan.interpreter
        # Frozen modules have no lines to stop at, and debugpy warns of them on stderr.
        extra = ["-X", "frozen_modules=off"] if interpreter.version >= (3, 11) else []
        try:
            process = self._spawn(
                self._command(extra, bootstrap, setup),
                cwd=self._plan.cwd,
                env=self._plan.env,
                terminal=self._plan.terminal,
                pass_fds=(bootstrap, setup, status_pipe),
            )
        finally:
            for descriptor in (bootstrap, setup, status_pipe):
                os.close(descriptor)
        self._debuggee.program = msgspec.structs.replace(self._plan.program, pid=process.pid)

    def _command(self, extra: list[str], bootstrap: int, setup: int) -> list[str]:
        """Bootstrap's command line. It is at least as long as the program's own would be, because
        the probe writes that one over it (`probe/lifecycle/process_title.py`). The descriptor's
        number gets zeros in front to make it long enough.
        """
        plan = self._plan
        start = [plan.interpreter.path, *extra, *plan.python_args, f"/proc/self/fd/{bootstrap}"]
        own = [plan.interpreter.path, *plan.python_args, *_FLAGS[plan.kind], plan.target]
        more = _length([*own, *plan.args]) - _length([*start, ""])
        return [*start, str(setup).zfill(more if more < _LONGEST_ARGUMENT_CHARACTERS else 0)]

    def _printed(self, name: Category, data: bytes) -> None:
        self._child_output.flush()
        super()._printed(name, data)

    def _child_printed(self, name: Category, data: bytes, pid: int) -> None:
        if self._process is not None:
            self._process.flush_lines()
        self._log.take_output(name, data, {"pid": pid})

    def _setup_descriptor(self, status_pipe: int) -> int:
        """A file in memory with bootstrap's settings: other users could read a command line."""
        child_setup = {
            "port": self._adapter.port,
            "token": self._adapter.token,
            "access_token": self._adapter.access_token,
            "debugger_parent": os.path.dirname(self._settings.params.debugpy_dir),
            "probe": bundle.probe(self._sources),
            "bytecode": kept_bytecode(self._settings.params.bytecode),
            "bootstrap": str(self._bootstrap),
            "family": str(self._child_setup),
            "debug_subprocesses": self._plan.debug_subprocesses,
        }
        _write_privately(self._sources, bundle.PACKED)
        if self._plan.debug_subprocesses:
            _write_privately(self._child_setup, _encoded(child_setup))
            _write_privately(self._bootstrap, bundle.BOOTSTRAP.encode())
        setup = {
            **child_setup,
            "kind": self._plan.kind,
            "target": self._plan.target,
            "args": self._plan.args,
            "status": status_pipe,
            "stop_on_entry": self._plan.stop_on_entry,
        }
        return _in_memory("debug-relay-setup", _encoded(setup))

    async def _connect(self) -> None:
        assert self._process is not None
        server = await self._adapter.accept(stay_open=self._plan.debug_subprocesses)
        self._hub.add(server, root=True)
        if self._plan.debug_subprocesses:
            # Before the program can run: a child may connect at once, and the program's report
            # that it runs would end this wait.
            self._children.open()
        await adapter.configure(
            server,
            lambda: self._handshake.prepare(server),
            adapter.attach_options(self._plan.just_my_code),
        )

    async def _introduce(self, server: DebugServer) -> None:
        """Set up a later debug server: a child's, or that of a program that was executed."""
        await adapter.configure(
            server,
            lambda: self._prepare_child(server),
            adapter.attach_options(self._plan.just_my_code),
            self._settings.params.launch_timeout,
        )

    async def _prepare_child(self, server: DebugServer) -> None:
        await self._handshake.introduce(server)
        if server.is_child and self._process is not None:
            await self._child_output.take_over(server, self._process.pipes())

    async def _until_started(self) -> None:
        """Return when the program has reported that it runs; raise if it cannot.

        A program that ends at once does not answer the end of the handshake. Its report is enough.
        """
        assert self._process is not None
        started = self._status.started
        connecting = asyncio.ensure_future(self._connect())
        ended = asyncio.ensure_future(self._process.wait(self._settings.params.launch_timeout))
        waiting: set[asyncio.Future[Any]] = {connecting, ended, started}
        try:
            while not started.done():
                done, waiting = await asyncio.wait(
                    waiting,
                    timeout=_IMPORT_SECONDS if connecting.done() else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if not done:
                    # The program imports the packages above its module: that is its own code.
                    self._status.runs()
                exit = self._process.exit
                if exit is not None and not started.done():
                    reason = start_refusals.ended_early(exit.code, exit.signal_name)
                    raise RelayError(Code.LAUNCH_FAILED, reason)
                if connecting in done and not started.done():
                    connecting.result()
            started.result()
        finally:
            for task in (connecting, ended):
                if not task.done():
                    task.cancel()
            await asyncio.gather(connecting, ended, return_exceptions=True)

    async def _failed(self, reason: str) -> RelayError:
        exit = self._process.exit if self._process else None
        await self._give_up()
        return start_refusals.could_not_run(
            self._plan.interpreter.path,
            "the code" if self._plan.kind == "code" else self._plan.target,
            reason,
            exit.code if exit else None,
            self._log.tail(_TAIL_BYTES),
        )

    async def _give_up(self) -> None:
        self._status.started.cancel()  # later reports are too late
        await self.end(0)
        await self.release()

    # -- events

    def on_event(self, server: DebugServer, message: dap.Message) -> bool:
        if message.event == "stopped":
            # The stop may be in a package above its module, which is the program's code as well.
            self._status.runs()
        return False

    def _lost(self, server: DebugServer, why: str) -> None:
        if server not in self._hub.servers:
            return
        if self._endings and self._process is not None and self._process.exit is not None:
            return  # the program has ended, and `end` reports that in a moment
        self._servers.server_lost(server, why)
        if self._running and not (self._endings or server.is_child or server.has_said_end):
            loop = asyncio.get_running_loop()
            self._loss_timer = loop.call_later(_ENDING_SECONDS, self._report_loss)

    def _report_loss(self) -> None:
        """Report a lost connection if the program lives: it has closed all its descriptors."""
        is_ending = self._process is not None and self._process.is_ending()
        if self._running and not (self._endings or is_ending):
            self._log.say("The connection to the program was lost; it runs without the debugger.")

    def _forget_loss(self) -> None:
        if self._loss_timer is not None:
            self._loss_timer.cancel()

    def _exited(self, exit: Exit) -> None:
        self._forget_loss()
        self._status.read()
        self._child_output.drain()
        super()._exited(exit)

    def _report_end(self, exit: Exit, swept: list[descendants.Ended]) -> None:
        if self._running or self._status.has_run:
            self._lifecycle.ended(exit.code, exit.signal_name, "target_exited", swept)
        for server in [one for one in self._hub.servers if one.lost]:
            self._servers.server_lost(server, "the program has ended")

    # -- living with it

    def wake(self) -> None:
        if self._process is not None and not is_ended_by_signal(self._process.pid):
            self._process.send_signal(signal.SIGURG)
        self._children.wake()

    def flush_output(self) -> None:
        self._child_output.drain()
        super().flush_output()

    def _drop_debugger(self) -> None:
        self._hub.close()

    def kept_pipes(self) -> list[int]:
        pipes = super().kept_pipes()
        return [*pipes, *self._child_output.open_pipes()] if self.keeps_children else pipes

    async def release(self) -> None:
        self._forget_loss()
        await self._children.close()
        self._child_output.close()
        self._adapter.close()
        self._status.close()
        self._hub.close()
        self._child_setup.unlink(missing_ok=True)
        self._sources.unlink(missing_ok=True)
        await super().release()


def _in_memory(name: str, content: bytes) -> int:
    fd = os.memfd_create(name)
    with open(fd, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _write_privately(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o600)


def _length(words: list[str]) -> int:
    """The number of bytes that these words take in a command line, each with a zero at its end."""
    return sum(len(os.fsencode(word)) + 1 for word in words)


def _encoded(setup: dict[str, Any]) -> bytes:
    return json.dumps(setup).encode("utf-8", "surrogateescape")
