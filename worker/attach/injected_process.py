"""One running process that the worker attached to by injection: from its pid to a debug server, and
back.

It knows nothing of session states or of other processes. The process outlives the worker in any
case. Its side (`probe/lifecycle/attached.py`) detaches by itself when our end of the connection
closes or falls silent; so silence must not happen while we live.
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
from debug_relay.protocol.models.sessions import WorkerParams
from debug_relay.protocol.system import procfs
from debug_relay.protocol.wire import dap
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
_NOTED_SECONDS: Final = 0.3
_MOST_TRIES: Final = 5  # Waits for another session that is just attaching to the same target.
_END_SECONDS: Final = 0.5  # A target that says that it is ending is seen as ended within this time.


class InjectedProcess:
    """`on_lost` is told of a connection that we have not closed, `on_gone` of the process's end."""

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
        self._cut = asyncio.Event()
        self.is_ending = False  # the process itself reported this: its exit may take long
        self._left = probe.Left()
        self._late = False  # it had not detached when our wait ended
        self._beating: asyncio.Task[None] | None = None
        self._adapter = adapter.Adapter(self._told, self._lost, lambda: procfs.uids(pid))

    @property
    def server(self) -> DebugServer | None:
        return self._server

    @property
    def lives(self) -> bool:
        """As long as the pidfd is open, the pid belongs to this process."""
        return self._pidfd >= 0

    @property
    def pidfd(self) -> int:
        return self._pidfd

    # -- coming

    async def begin(
        self,
        timeout: float,
        identity: str | None,
        set_up: Callable[[DebugServer], Awaitable[None]],
    ) -> None:
        """Until it runs under the debugger; refused, nothing of ours is left.

        `set_up` goes through the handshake.
        """
        try:
            async with asyncio.timeout(timeout):
                self._take_hold(identity)
                await self._inject()
                assert self._server is not None
                assert self._injection is not None
                await set_up(self._server)
                # Its main thread stays stopped as long as gdb traces it.
                await self._injection.ended.wait()
                self._injection.release()
        except TimeoutError:
            pending = self._is_pending()
            await self.release()
            raise refusals.too_late(self._pid, timeout, pending) from None
        except RelayError as error:
            why = await self._why(error)
            await self.release()
            raise why from None
        except BaseException:
            await self.release()
            raise
        self._beating = asyncio.create_task(self._beat(self._server), name="beat")

    async def _why(self, error: RelayError) -> RelayError:
        """Nearer to the cause than that a connection was lost."""
        injection = self._injection
        if injection is None or error.code.value.startswith("ATTACH_"):
            return refusals.no_such(self._pid) if self.gone else error
        refusal = injection.refusal()  # the process had connected, and then failed
        # Its connection closes a moment before its end is told.
        if await self.until_gone(_END_SECONDS):
            return refusals.no_such(self._pid)
        if refusal is not None:
            return refusals.of_the_program(self._pid, refusal.reason, refusal.words)
        if injection.found_another_program:
            return refusals.another_program(self._pid)
        return refusals.failed(self._pid, error.message, injection.said())

    def _take_hold(self, identity: str | None) -> None:
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
        stat = procfs.stat(self._pid)
        if identity is not None and (stat is None or identity != stat.identity):
            raise RelayError(
                Code.ATTACH_PID_RECYCLED,
                f"Process {self._pid} is another process now",
                "GET /api/v1/processes again, and attach with the identity shown there.",
                pid=self._pid,
            )

    async def _inject(self) -> None:
        self._adapter.listen()
        setup = {
            "port": self._adapter.port,
            "token": self._adapter.token,
            "access_token": self._adapter.access_token,
            "debugpy_parent": os.path.dirname(self._params.debugpy_dir),
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
                if injection is not None and injection.found_another:
                    # Another session comes in just now: soon the program tells which.
                    await asyncio.sleep(_NOTED_SECONDS)
                    tries -= 1
                rest = await main_thread_rest.resting_place(self._pid)
                if injection is None or injection.failed or rest is not None:
                    self._begin(Injection(self._pid, setup, rest))
                self._server = await self._let_in(accepting, gone, tries)
        finally:
            accepting.cancel()
            gone.cancel()
            await asyncio.gather(accepting, gone, return_exceptions=True)
            if self._server is None and _has_result(accepting):
                accepting.result().close("no caller waits for it any more")

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
        waiting: set[asyncio.Future[Any]] = {accepting, gone, injected}
        clock = asyncio.get_running_loop().time
        patience = clock() + _NOTED_SECONDS
        try:
            while True:
                _, waiting = await asyncio.wait(
                    waiting, timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                if accepting.done():
                    return accepting.result()
                if self._gone.is_set():
                    raise refusals.no_such(self._pid)
                if injection.found_another and tries:
                    return None
                await self._refuse_what_cannot_come(injection)
                if not injection.ended.is_set():
                    patience = clock() + _NOTED_SECONDS
                elif clock() >= patience and not injection.begun:
                    return None
        finally:
            injected.cancel()
            await asyncio.gather(injected, return_exceptions=True)

    async def _refuse_what_cannot_come(self, injection: Injection) -> None:
        said = injection.refusal()
        if said is not None:
            if said.reason == "ending" and await self.until_gone(_END_SECONDS):
                raise refusals.no_such(self._pid)
            raise refusals.of_the_program(self._pid, said.reason, said.words)
        if injection.found_another_program:
            raise refusals.another_program(self._pid)
        if injection.failed:
            raise refusals.not_injected(self._pid, injection)
        raised = injection.raised
        if raised is not None:
            await injection.take_back()
            raise refusals.raised(self._pid, raised)

    def _is_pending(self) -> bool:
        """Whether something of ours is still on its way into the program."""
        injection = self._injection
        if injection is None or injection.failed:
            return False
        return self._server is None or not injection.ended.is_set()

    async def _beat(self, server: DebugServer) -> None:
        """Anything that arrives tells the program's side that we live."""
        while not server.lost:
            server.post("setDebuggerProperty")
            await asyncio.sleep(_BEAT_SECONDS)

    # -- events

    def _told(self, server: DebugServer, message: dap.Message) -> None:
        if message.event == "relayLeft":
            self._left = msgspec.json.decode(bytes(message.body), type=probe.Left)
        elif message.event == "relayEnding":
            self.is_ending = True
        elif message.event not in ("terminated", "exited"):
            self._on_event(server, message)

    def _lost(self, server: DebugServer, why: str) -> None:
        if server is self._server:
            self._cut.set()
            self._on_lost(self, server, why)

    def _ended(self) -> None:
        """The process is gone, by the kernel's word."""
        asyncio.get_running_loop().remove_reader(self._pidfd)
        self._gone.set()
        self._on_gone(self)
        self._close_pidfd()

    # -- going

    async def detach(self, asking: ProbeClient) -> None:
        """Let it run on as it was, with nothing of ours left in it."""
        server = self._server
        if server is None or server.lost:
            return
        with contextlib.suppress(RelayError, TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                await asking.ask(server, probe.Leave())
                # The process closes the connection when its detach is complete, and not before.
                await self._cut.wait()
        self._late = not self._cut.is_set()
        server.close()

    @property
    def residue(self) -> str | None:
        """What could not be removed from the process."""
        if self._late:
            return f"it had not detached within {_LEAVE_SECONDS:g} s; it will detach when it can"
        if self._left.stuck:
            return f"{self._left.stuck} threads are still inside an evaluation"
        return "; ".join(self._left.errors) or None

    async def release(self) -> None:
        self._adapter.close()
        if self._server is not None:
            self._server.close()
        if self._injection is not None:
            self._injection.release()
        self._close_pidfd()
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)

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
