"""One running process that the worker attached to by injection: from its pid to a debug server, and
back.

This module knows nothing of session states or of other processes. The process outlives the worker
in any case. The code inside it (`probe/lifecycle/attached.py`) detaches by itself when our end of
the connection closes or falls silent. So we send a heartbeat as long as we live.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal

import msgspec

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.worker_messages import WorkerParams
from debug_relay.protocol.system import procfs
from debug_relay.protocol.wire import dap, probe_events
from debug_relay.protocol.wire import probe_messages as probe
from debug_relay.worker import bundle
from debug_relay.worker.attach import main_thread_rest, refusals
from debug_relay.worker.attach.injection import Injection
from debug_relay.worker.debuggee.handshake import kept_bytecode
from debug_relay.worker.debugger import adapter
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.probe_client import ProbeClient

_BEAT_SECONDS: Final = 1.5  # The pause between two heartbeats to an attached program.
# An attached program that hears no heartbeat for this long detaches itself.
_SILENCE_SECONDS: Final = 10.0
# An attached program detaches within this time, or the reply says that it will later.
_LEAVE_SECONDS: Final = 8.0
_LOOK_SECONDS: Final = 0.02  # The pause between two looks at the injected code's state.
# A pending call that has not run by then is injected again if the main thread rests.
_PENDING_SECONDS: Final = 0.3
_MOST_TRIES: Final = 5  # Waits for another session that is just attaching to the same target.
_END_SECONDS: Final = 0.5  # A target that reports that it is ending has ended within this time.


class InjectedProcess:
    """`on_lost` is called when a connection ends that we did not close, `on_gone` at the process's
    end.
    """

    def __init__(
        self,
        pid: int,
        params: WorkerParams,
        on_event: Callable[[DebugServer, dap.Message], None],
        on_lost: Callable[[InjectedProcess, DebugServer, str], None],
        on_gone: Callable[[InjectedProcess], None],
    ) -> None:
        self.pid = self._pid = pid
        self._params = params
        self._on_event = on_event
        self._on_lost = on_lost
        self._on_gone = on_gone
        self._pidfd = -1
        self._server: DebugServer | None = None
        self._injection: Injection | None = None
        self._gone = asyncio.Event()
        self._closed = asyncio.Event()
        self.is_ending = False  # the process itself reported this: its exit may take long
        self._residue = probe_events.Left()
        self._late = False  # the process had not detached when our wait ended
        self._heartbeat: asyncio.Task[None] | None = None
        self._adapter = adapter.Adapter(self._take, self._lost, lambda: procfs.uids(pid))

    @property
    def server(self) -> DebugServer | None:
        return self._server

    @property
    def lives(self) -> bool:
        """Whether the process lives: while our pidfd is open, the pid belongs to no other."""
        return self._pidfd >= 0

    @property
    def pidfd(self) -> int:
        return self._pidfd

    # -- attaching

    async def begin(
        self,
        timeout: float,
        identity: str | None,
        set_up: Callable[[DebugServer], Awaitable[None]],
    ) -> None:
        """Return when the process runs under the debugger; if it refuses, nothing of the payload is
        left.

        `set_up` goes through the handshake.
        """
        try:
            async with asyncio.timeout(timeout):
                self._open_pidfd(identity)
                await self._inject()
                assert self._server is not None
                assert self._injection is not None
                await set_up(self._server)
                # The main thread stays stopped as long as gdb traces it.
                await self._injection.ended.wait()
                self._injection.release()
        except TimeoutError:
            pending = self._is_pending()
            await self.release()
            raise refusals.timed_out(self._pid, timeout, pending) from None
        except RelayError as error:
            why = await self._cause_of(error)
            await self.release()
            raise why from None
        except BaseException:
            await self.release()
            raise
        self._heartbeat = asyncio.create_task(self._beat(self._server), name="beat")

    async def _cause_of(self, error: RelayError) -> RelayError:
        """The cause behind an error that only says that the connection was lost."""
        injection = self._injection
        if injection is None or error.code.value.startswith("ATTACH_"):
            return refusals.has_ended(self._pid) if self.gone else error
        refusal = injection.refusal()  # the process had connected, and then failed
        # The connection of a process that ends closes a moment before the kernel reports its end.
        if await self.until_gone(_END_SECONDS):
            return refusals.has_ended(self._pid)
        if refusal is not None:
            return refusals.of_the_program(self._pid, refusal.reason, refusal.words)
        if injection.has_executed_another:
            return refusals.another_program(self._pid)
        return refusals.failed(self._pid, error.message, injection.output())

    def _open_pidfd(self, identity: str | None) -> None:
        """Open the pidfd: from here on the pid cannot mean another process."""
        try:
            self._pidfd = os.pidfd_open(self._pid)
        except ProcessLookupError:
            raise refusals.has_ended(self._pid) from None
        except OSError as error:
            raise refusals.failed(
                self._pid, f"it cannot be watched: {error.strerror}", ""
            ) from None
        asyncio.get_running_loop().add_reader(self._pidfd, self._ended)
        stat = procfs.stat(self._pid)
        if identity is not None and (stat is None or identity != stat.identity):
            raise RelayError(
                Code.ATTACH_PID_RECYCLED,
                f"Process {self._pid} has ended, and its pid belongs to another process now",
                "GET /api/v1/processes again, and attach with the identity shown there.",
                pid=self._pid,
            )

    async def _inject(self) -> None:
        self._adapter.listen()
        setup = {
            "port": self._adapter.port,
            "token": self._adapter.token,
            "access_token": self._adapter.access_token,
            "debugger_parent": os.path.dirname(self._params.debugpy_dir),
            "probe": bundle.probe(),
            "bytecode": kept_bytecode(self._params.bytecode),
            "silence": _SILENCE_SECONDS,
            "session": self._params.session_id,
            "pid": self._pid,
        }
        accepting = asyncio.ensure_future(self._adapter.accept())
        gone = asyncio.ensure_future(self._gone.wait())
        try:
            tries = _MOST_TRIES
            while self._server is None:
                injection = self._injection
                if injection is not None and injection.is_traced_by_another:
                    # Another session is attaching at this moment; soon the program reports which.
                    await asyncio.sleep(_PENDING_SECONDS)
                    tries -= 1
                rest = await main_thread_rest.resting_place(self._pid)
                if injection is None or injection.failed or rest is not None:
                    self._inject_with(Injection(self._pid, setup, rest))
                self._server = await self._until_connected(accepting, gone, tries)
        finally:
            accepting.cancel()
            gone.cancel()
            await asyncio.gather(accepting, gone, return_exceptions=True)
            if self._server is None and _has_result(accepting):
                accepting.result().close("no caller waits for it any more")

    def _inject_with(self, injection: Injection) -> None:
        if self._injection is not None:
            self._injection.release()
        self._injection = injection

    async def _until_connected(
        self,
        accepting: asyncio.Future[DebugServer],
        gone: asyncio.Future[Literal[True]],
        tries: int,
    ) -> DebugServer | None:
        """Wait for the program's debug server; raise if the program refuses.

        None if the payload is still queued for the main thread, which may rest in a system call by
        now: then the next injection runs it directly.
        """
        injection = self._injection
        assert injection is not None
        injected = asyncio.ensure_future(injection.ended.wait())
        waiting: set[asyncio.Future[Any]] = {accepting, gone, injected}
        clock = asyncio.get_running_loop().time
        patience = clock() + _PENDING_SECONDS
        try:
            while True:
                _, waiting = await asyncio.wait(
                    waiting, timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                if accepting.done():
                    return accepting.result()
                if self._gone.is_set():
                    raise refusals.has_ended(self._pid)
                if injection.is_traced_by_another and tries:
                    return None
                await self._raise_refusal(injection)
                if not injection.ended.is_set():
                    patience = clock() + _PENDING_SECONDS
                elif clock() >= patience and not injection.begun:
                    return None
        finally:
            injected.cancel()
            await asyncio.gather(injected, return_exceptions=True)

    async def _raise_refusal(self, injection: Injection) -> None:
        refusal = injection.refusal()
        if refusal is not None:
            if refusal.reason == "ending" and await self.until_gone(_END_SECONDS):
                raise refusals.has_ended(self._pid)
            raise refusals.of_the_program(self._pid, refusal.reason, refusal.words)
        if injection.has_executed_another:
            raise refusals.another_program(self._pid)
        if injection.failed:
            raise refusals.not_injected(self._pid, injection)
        raised = injection.raised
        if raised is not None:
            await injection.take_back()
            raise refusals.raised(self._pid, raised)

    def _is_pending(self) -> bool:
        """Whether the injected payload may still begin to run in the program."""
        injection = self._injection
        if injection is None or injection.failed:
            return False
        return self._server is None or not injection.ended.is_set()

    async def _beat(self, server: DebugServer) -> None:
        """Send heartbeats: any message shows the code in the program that we live."""
        while not server.lost:
            server.post("setDebuggerProperty")
            await asyncio.sleep(_BEAT_SECONDS)

    # -- events

    def _take(self, server: DebugServer, message: dap.Message) -> None:
        if message.event == "relayLeft":
            self._residue = msgspec.json.decode(bytes(message.body), type=probe_events.Left)
        elif message.event == "relayEnding":
            self.is_ending = True
        elif message.event not in ("terminated", "exited"):
            self._on_event(server, message)

    def _lost(self, server: DebugServer, why: str) -> None:
        if server is self._server:
            self._closed.set()
            self._on_lost(self, server, why)

    def _ended(self) -> None:
        """The kernel has reported by pidfd that the process ended."""
        asyncio.get_running_loop().remove_reader(self._pidfd)
        self._gone.set()
        self._on_gone(self)
        self._close_pidfd()

    # -- ending

    async def detach(self, probes: ProbeClient) -> None:
        """Detach: the process runs on as before, without probe and pydevd."""
        server = self._server
        if server is None or server.lost:
            return
        with contextlib.suppress(RelayError, TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                await probes.ask(server, probe.Leave())
                # The process closes the connection when its detach is complete, and not before.
                await self._closed.wait()
        self._late = not self._closed.is_set()
        server.close()

    @property
    def residue(self) -> str | None:
        """Describes what could not be removed from the process."""
        if self._late:
            return f"it had not detached within {_LEAVE_SECONDS:g} s; it will detach when it can"
        if self._residue.stuck:
            return f"{self._residue.stuck} threads are still inside an evaluation"
        return "; ".join(self._residue.errors) or None

    async def release(self) -> None:
        self._adapter.close()
        if self._server is not None:
            self._server.close()
        if self._injection is not None:
            self._injection.release()
        self._close_pidfd()
        if self._heartbeat is not None:
            self._heartbeat.cancel()
            await asyncio.gather(self._heartbeat, return_exceptions=True)

    # -- its process

    @property
    def gone(self) -> bool:
        return self._gone.is_set()

    def signal(self, number: signal.Signals) -> None:
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    async def until_gone(self, timeout: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._gone.wait()
        return self._gone.is_set()

    def _close_pidfd(self) -> None:
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1


def _has_result(future: asyncio.Future[Any]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None
