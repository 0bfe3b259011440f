"""Attaching to a running program by its pid, and letting it go without a trace.

The program outlives us in any case. Its side (`probe/attached.py`) lets go by itself when our end
of the connection closes or falls silent; so silence is what must not happen while we live.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import Struct

from debug_relay.protocol import dap
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.processes import identity_of
from debug_relay.protocol.program import Attach
from debug_relay.protocol.sessions import Program
from debug_relay.worker import adapter, at_rest, process_tree
from debug_relay.worker import attach_refusals as refusals
from debug_relay.worker.connection import DebugServer
from debug_relay.worker.injection import Injection
from debug_relay.worker.launch import prepare, writable_folder
from debug_relay.worker.lines import LineBook
from debug_relay.worker.process_tree import Row
from debug_relay.worker.sweep import Ended

if TYPE_CHECKING:
    from debug_relay.worker.session import Session

_PROBE: Final = str(Path(__file__).parent / "probe")
_BEAT_SECONDS: Final = 1.5
_SILENCE_SECONDS: Final = 10.0
_LEAVE_SECONDS: Final = 8.0
_NOTED_SECONDS: Final = 0.3
_TRIES: Final = 5
_EXIT_SECONDS: Final = 1.0  # an end is seen as the connection's a moment before as the process's
_TERM_SECONDS: Final = 0.1


class _Begun(Struct):
    token: str


class _Refusal(Struct):
    token: str
    reason: str
    words: str


class _Left(Struct):
    stuck: int = 0
    errors: list[str] = []


class AttachedProgram:
    """Somebody else's program on this machine."""

    attached = True

    def __init__(self, session: Session, params: Attach) -> None:
        assert params.pid is not None
        self.keeps_children = True
        self._session = session
        self._params = params
        self._pid = params.pid
        self.shows = params.repr
        self._pidfd = -1
        self._server: DebugServer | None = None
        self._injection: Injection | None = None
        self._begun = False  # what was brought into the program runs there
        self._refused: asyncio.Future[_Refusal] = asyncio.get_running_loop().create_future()
        self._gone = asyncio.Event()
        self._cut = asyncio.Event()
        self._running = False
        self._leaving = False
        self._left = _Left()
        self._tasks: set[asyncio.Task[None]] = set()
        self._adapter = adapter.Adapter(session.on_debug_event, self._lost)

    @property
    def pid(self) -> int | None:
        return self._pid

    def processes(self) -> list[Row]:
        # As long as the handle says that it lives, the pid is its own.
        row = process_tree.read(self._pid) if self._pidfd >= 0 else None
        return [row, *process_tree.below(self._pid)] if row is not None else []

    # -- starting

    async def start(self) -> None:
        timeout = self._params.connect_timeout
        try:
            async with asyncio.timeout(timeout):
                self._take_hold()
                await self._inject()
                await self._set_up()
        except TimeoutError:
            pending = self._is_pending()
            await self.release()
            raise refusals.too_late(self._pid, timeout, pending) from None
        except RelayError as error:
            said = self._injection.said() if self._injection else ""
            await self.release()
            if error.code.value.startswith("ATTACH_"):
                raise
            raise refusals.failed(self._pid, error.message, said) from None
        except BaseException:
            await self.release()
            raise
        self._running = True
        self._start(self._beat())
        if self._gone.is_set():
            self._ended()

    def _take_hold(self) -> None:
        """From here on no other process can be meant."""
        try:
            self._pidfd = os.pidfd_open(self._pid)
        except ProcessLookupError:
            raise refusals.no_such(self._pid) from None
        except OSError as error:
            raise refusals.failed(
                self._pid, f"it cannot be watched: {error.strerror}", ""
            ) from None
        asyncio.get_running_loop().add_reader(self._pidfd, self._ended)
        wanted = self._params.identity
        if wanted is not None and wanted != _identity(self._pid):
            raise RelayError(
                Code.ATTACH_PID_RECYCLED,
                f"Process {self._pid} is another one by now",
                "GET /api/v1/processes again, and attach with the identity told there.",
                pid=self._pid,
            )

    async def _inject(self) -> None:
        self._adapter.listen()
        setup = {
            "port": self._adapter.port,
            "token": self._adapter.token,
            "debugpy_parent": os.path.dirname(self._session.params.debugpy_dir),
            "probe": _PROBE,
            "bytecode": writable_folder(self._session.params.bytecode_dir),
            "silence": _SILENCE_SECONDS,
            "session": self._session.id,
        }
        accepting = asyncio.ensure_future(self._adapter.accept())
        gone = asyncio.ensure_future(self._gone.wait())
        try:
            tries = _TRIES
            while self._server is None:
                injection = self._injection
                if injection is not None and injection.found_another:
                    # Another session comes in just now: soon the program tells which.
                    await asyncio.sleep(_NOTED_SECONDS)
                    tries -= 1
                rest = await at_rest.resting_place(self._pid)
                if injection is None or injection.failed or rest is not None:
                    self._begin(Injection(self._pid, setup, rest))
                self._server = await self._let_in(accepting, gone, tries)
        finally:
            accepting.cancel()
            gone.cancel()
            await asyncio.gather(accepting, gone, return_exceptions=True)

    def _begin(self, injection: Injection) -> None:
        if self._injection is not None:
            self._injection.release()
        self._injection = injection

    async def _let_in(
        self,
        accepting: asyncio.Future[DebugServer],
        gone: asyncio.Future[Literal[True]],
        tries: int,
    ) -> DebugServer | None:
        """The program's debug server; failing that, the reason. None when what was brought waits
        for the main thread, which may have come to rest since: then there is another way in."""
        injection = self._injection
        assert injection is not None
        injected = asyncio.ensure_future(injection.ended.wait())
        waiting: set[asyncio.Future[Any]] = {accepting, gone, injected, self._refused}
        try:
            while True:
                patience = _NOTED_SECONDS if injection.noted and not self._begun else None
                done, waiting = await asyncio.wait(
                    waiting, timeout=patience, return_when=asyncio.FIRST_COMPLETED
                )
                if self._refused.done():
                    said = self._refused.result()
                    raise refusals.of_the_program(self._pid, said.reason, said.words)
                if accepting.done():
                    return accepting.result()
                if self._gone.is_set():
                    raise refusals.no_such(self._pid)
                if injection.found_another and tries:
                    return None
                if injection.failed:
                    raise refusals.not_injected(self._pid, injection)
                if not done:
                    return None
        finally:
            injected.cancel()
            await asyncio.gather(injected, return_exceptions=True)

    async def _set_up(self) -> None:
        server = self._server
        assert server is not None
        assert self._injection is not None
        self._session.hub.add(server)
        config = self._session.params.config
        mine = self._params.just_my_code
        options = adapter.attach_options(config.just_my_code if mine is None else mine)
        if self._params.redirect_output:
            options.update(redirectOutput=True, isOutputRedirected=False)
        if self._params.path_mappings:
            options["pathMappings"] = [
                {"localRoot": mapping.local, "remoteRoot": mapping.remote}
                for mapping in self._params.path_mappings
            ]
        await self._use_its_interpreter()
        await adapter.configure(server, lambda: prepare(self._session, server), options)
        # As long as gdb is in it, its main thread stands still.
        await self._injection.ended.wait()

    async def _use_its_interpreter(self) -> None:
        """Lines are judged as the program's own interpreter compiles them."""
        facts = _facts(self._pid)
        config = self._session.params.config
        version = None
        with contextlib.suppress(RelayError):  # one that may not be run: judged by the session's
            interpreter = await self._session.interpreters.find(facts.executable)
            version = interpreter.version_text
            book = LineBook(interpreter, project_root=config.project_root)
            self._session.breakpoints.use(book)
        self._session.program = Program(
            attached=True,
            pid=self._pid,
            args=facts.command[1:],
            cwd=facts.cwd,
            python_path=facts.executable,
            python_version=version,
        )

    def _is_pending(self) -> bool:
        """Whether something of ours is still on its way into the program."""
        injection = self._injection
        if injection is None or injection.failed:
            return False
        return self._server is None or not injection.ended.is_set()

    # -- events

    def on_event(self, server: DebugServer, message: dap.Message) -> bool:
        if message.event == "relayBegun":
            begun = msgspec.json.decode(bytes(message.body), type=_Begun)
            self._begun = self._begun or begun.token == self._adapter.token
        elif message.event == "relayRefused":
            refusal = msgspec.json.decode(bytes(message.body), type=_Refusal)
            if refusal.token == self._adapter.token and not self._refused.done():
                self._refused.set_result(refusal)
        elif message.event == "output" and self._params.redirect_output:
            printed = msgspec.json.decode(bytes(message.body), type=dap.OutputBody)
            data = printed.output.encode("utf-8", "backslashreplace")
            if printed.category == "stderr":
                self._session.take_output("stderr", data)
            elif printed.category == "stdout":
                self._session.take_output("stdout", data)
            else:
                return False
        elif message.event == "relayLeft":
            self._left = msgspec.json.decode(bytes(message.body), type=_Left)
        elif message.event not in ("terminated", "exited"):
            return False
        return True

    def _lost(self, server: DebugServer, why: str) -> None:
        if server is not self._server:
            return
        self._cut.set()
        self._session.server_lost(server, why)
        if self._running and not self._leaving:
            self._start(self._let_go())

    def _ended(self) -> None:
        """The process is gone, by the kernel's word."""
        self._close_pidfd()
        self._gone.set()
        if self._running and not self._leaving:
            self._session.program_ended(None, None, "target_lost")

    async def _let_go(self) -> None:
        """The connection is gone. If the process is not, it has let us go: it has executed another
        program, or we were silent for too long."""
        if await self._until_gone(_EXIT_SECONDS):
            return
        session = self._session
        async with session.driving:
            if session.target is not self or self._leaving:
                return
            self._leaving = True
            session.say(f"The connection to process {self._pid} was lost; it runs on undebugged.")
            await self._release()
            session.let_go()

    # -- living with it

    async def _beat(self) -> None:
        """Anything that arrives tells the program's side that we live."""
        while self._server is not None and not self._server.lost:
            self._server.post("setDebuggerProperty")
            await asyncio.sleep(_BEAT_SECONDS)

    def wake(self) -> None:
        """Its signals are its own."""

    def state_changed(self) -> None:
        """Nothing of it depends on that."""

    def flush_output(self) -> None:
        """Its output goes where its owner sent it."""

    async def write_input(self, data: bytes, eof: bool) -> None:
        raise RelayError(
            Code.ATTACH_UNSUPPORTED,
            "The standard input of an attached program is not ours",
            "Write to the terminal or pipe that it was started with, or launch it instead.",
        )

    async def end(self, grace: float) -> None:
        """End the program itself: asked for by name only."""
        self._leaving = True
        self._signal(signal.SIGTERM)
        if not await self._until_gone(min(_TERM_SECONDS, grace)):
            # Without its debugger it runs on and can act on the signal.
            await self.detach()
            await self._until_gone(grace)
        if not self._gone.is_set():
            self._signal(signal.SIGKILL)
            await self._until_gone(5.0)
        self._running = False
        self._session.program_ended(None, None, "terminated")

    async def end_children(self) -> list[Ended]:
        return []  # what it has started is its owner's

    async def detach(self) -> None:
        """Let it run on as it was, with nothing of ours left in it."""
        self._leaving = True
        server = self._server
        if server is None or server.lost:
            return
        with contextlib.suppress(RelayError, TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._session.asking.ask(server, "leave")
                # It closes when all is done, and not before.
                await self._cut.wait()
        server.close()

    @property
    def residue(self) -> str | None:
        """What could not be cleared away."""
        if self._left.stuck:
            return f"{self._left.stuck} threads are still inside an evaluation"
        return "; ".join(self._left.errors) or None

    async def release(self) -> None:
        self._leaving = True
        await self._release()

    async def _release(self) -> None:
        self._adapter.close()
        if self._server is not None:
            self._server.close()
        if self._injection is not None:
            self._injection.release()
        self._close_pidfd()
        for task in self._tasks - {asyncio.current_task()}:
            task.cancel()
        await asyncio.gather(*self._tasks - {asyncio.current_task()}, return_exceptions=True)

    # -- its process

    def _signal(self, number: signal.Signals) -> None:
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    async def _until_gone(self, timeout: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._gone.wait()
        return self._gone.is_set()

    def _close_pidfd(self) -> None:
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _identity(pid: int) -> str | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    return identity_of(pid, int(fields[19]), boot_id)


class _Facts(Struct):
    executable: str
    command: list[str]
    cwd: str | None


def _facts(pid: int) -> _Facts:
    """What its files in /proc say; what may not be read is left out."""
    executable, command, cwd = "", [""], None
    with contextlib.suppress(OSError):
        executable = os.readlink(f"/proc/{pid}/exe")
    with contextlib.suppress(OSError):
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
        command = [part.decode("utf-8", "replace") for part in raw.rstrip(b"\0").split(b"\0")]
    with contextlib.suppress(OSError):
        cwd = os.readlink(f"/proc/{pid}/cwd")
    return _Facts(executable, command, cwd)
