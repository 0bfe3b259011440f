"""A program that listens with `debugpy --listen`, joined by host and port.

Its own debug adapter, in its machine or container, is between the program and the worker. That
adapter accepts one client at a time, cannot resume one thread alone, and leaves tracing on in the
program after a detach.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from typing import Any, Final

import msgspec

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.program import Attach
from debug_relay.protocol.models.sessions import Program
from debug_relay.protocol.system import procfs
from debug_relay.protocol.system.procfs import Stat
from debug_relay.protocol.wire import dap
from debug_relay.worker import bundle
from debug_relay.worker.attach.behind_port import processes_behind
from debug_relay.worker.attach.unowned import UnownedProgram
from debug_relay.worker.debuggee import child_events
from debug_relay.worker.debuggee.handshake import NewServers
from debug_relay.worker.debugger import adapter
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.target import Debuggee
from debug_relay.worker.state.core import Core

log = logging.getLogger("debug_relay.worker")

_GOODBYE_SECONDS: Final = 5.0  # A debug server answers a disconnect within this time.
_TAKEN: Final = "already being debugged"  # debugpy's message
_TEXT: Final = bundle.text("engine/connection/joined_by_port")
_LEAVING_SECONDS: Final = 2.0  # The probe in a joined program undoes its changes within this time.
_LEAVING: Final = {"restart": False, "terminateDebuggee": False}
_GREENLETS: Final = "relay: greenlets"
_HERE: Final = ("127.0.0.1", "localhost", "::1")


class _ProcessBody(msgspec.Struct, rename="camel"):
    system_process_id: int | None = None


class _ChildBody(msgspec.Struct, rename="camel"):
    sub_process_id: int


def check(params: Attach) -> None:
    """Refuse what the program's own debug adapter cannot do."""
    if params.port is not None and params.tree:
        raise RelayError(
            Code.ATTACH_UNSUPPORTED,
            f"The children of the program behind port {params.port} cannot be reached by that port",
            "Attach by pid, or leave tree out.",
            field="tree",
        )
    if params.port is not None and params.tracing != "auto":
        raise RelayError(
            Code.ATTACH_UNSUPPORTED,
            f"The program behind port {params.port} chose its kind of tracing when it started",
            "Leave tracing out; PYDEVD_USE_SYS_MONITORING=0 in its environment makes it settrace.",
            field="tracing",
        )


class JoinedProgram(UnownedProgram):
    """Another owner's program: it ran before us and outlives us."""

    shows: Final = "full"  # there is no probe, and pydevd renders the values

    def __init__(
        self,
        params: Attach,
        core: Core,
        debuggee: Debuggee,
        servers: NewServers,
    ) -> None:
        self.keeps_children = True
        self._settings = core.settings
        self._lifecycle = core.lifecycle
        self._log = core.log
        self._hub, self._handshake, self._servers = servers
        self._debuggee = debuggee
        self._params = params
        self._host = params.host or "127.0.0.1"
        assert params.port is not None
        self._port = params.port
        self._server: DebugServer | None = None
        self._running = False
        self._disconnecting = False
        self._has_ended = False
        self._pid: int | None = None
        self._child_tasks: set[asyncio.Task[None]] = set()

    @property
    def pid(self) -> int | None:
        return self._pid

    def processes(self) -> list[Stat]:
        return []  # the program reports its pid, which may be one of another machine or container

    # -- starting

    async def start(self) -> None:
        try:
            async with asyncio.timeout(self._params.connect_timeout):
                await self._join(await self._connect())
        except TimeoutError:
            refusal = await self._timeout_refusal()
            await self.release()
            raise refusal from None
        except (OSError, UnicodeError) as error:  # UnicodeError: no host name can look like that
            await self.release()
            raise self._refusal(
                Code.ATTACH_REFUSED,
                f"cannot be connected to: {_words_of(error)}",
                f"Start the program with python -m debugpy --listen {self._port} script.py.",
            ) from None
        except RelayError as error:
            # Before the release, which closes the connection.
            refusal = await self._join_refusal(error)
            await self.release()
            raise refusal from None
        except BaseException:
            await self.release()
            raise
        self._running = True
        if self._has_ended:  # it ended during the handshake
            self._report_end()

    async def _connect(self) -> DebugServer:
        server = DebugServer(self._servers.take, self._lost)
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: server, self._host, self._port)
        self._server = server
        return server

    async def _join(self, server: DebugServer) -> None:
        self._hub.add(server)
        config = self._settings.config
        chosen = self._params.just_my_code
        options = adapter.attach_options(config.just_my_code if chosen is None else chosen)
        options["redirectOutput"] = False
        if self._params.path_mappings:
            options["pathMappings"] = [
                {"localRoot": mapping.local, "remoteRoot": mapping.remote}
                for mapping in self._params.path_mappings
            ]
        await adapter.configure(server, self._prepare, options, self._params.connect_timeout)
        await self._settle(server)
        self._debuggee.program = Program(
            attached=True, pid=self._pid, host=self._host, port=self._port
        )

    async def _prepare(self) -> None:
        assert self._server is not None
        await self._handshake.prepare_plainly(self._server)

    async def _settle(self, server: DebugServer) -> None:
        try:
            # We wait as long as for the attach: a program whose threads are greenlets must be
            # refused, and we must know that before it is paused.
            await self._run_text(server, "settle", self._params.connect_timeout)
        except RelayError as error:
            if _GREENLETS in error.message:
                await self._disconnect(terminate=False)
                raise self._greenlets_refusal() from None
            # The program can be debugged all the same, only slower; and each of its children waits
            # for a client, so that we resume them one by one.
            log.warning("joined.unsettled", extra={"fields": {"error": error.message}})

    async def _run_text(self, server: DebugServer, task: str, timeout: float) -> None:
        expression = f"exec({_TEXT!r}, {{'__name__': 'relay', 'task': {task!r}}})"
        arguments = {"expression": expression, "context": "repl"}
        await server.request("evaluate", arguments, dap.Evaluation, timeout)

    def _greenlets_refusal(self) -> RelayError:
        return self._refusal(
            Code.ATTACH_UNSUPPORTED,
            "debugs a program whose threads are greenlets of gevent, and was not started for that",
            "Start the program with GEVENT_SUPPORT=True in its environment.",
        )

    async def _timeout_refusal(self) -> RelayError:
        if self._server is not None and not self._server.has_greeted:
            return self._silence_refusal()
        # pydevd's own threads sometimes hang in such a program and cannot answer; ask the kernel.
        if self._host in _HERE and await asyncio.to_thread(self._is_behind_greenlets):
            return self._greenlets_refusal()
        return self._refusal(
            Code.ATTACH_TIMEOUT,
            f"did not answer within {self._params.connect_timeout:g} s",
            "Its program may be in C code that holds the interpreter. "
            "Give a larger connect_timeout if it is slow.",
        )

    def _is_behind_greenlets(self) -> bool:
        """Whether a process behind the port has greenlets as threads. pydevd may hang before it has
        reported its pid; the kernel's list of sockets then gives the processes.
        """
        pids = processes_behind(self._port) if self._pid is None else [self._pid]
        return any(_has_unforeseen_greenlets(pid) for pid in pids)

    def _silence_refusal(self) -> RelayError:
        """The peer has sent nothing. We have waited the whole time: the way may be slow, as through
        a tunnel, and up to debugpy 1.8.0 a client that disconnects too early ends the debug server.
        """
        return self._refusal(
            Code.ATTACH_TIMEOUT,
            f"took the connection and sent nothing for {self._params.connect_timeout:g} s",
            f"{self._no_debugpy()} debugpy sends a message at once; if the way there is slow, as "
            "through ssh -L or kubectl port-forward, give a larger connect_timeout.",
        )

    async def _join_refusal(self, error: RelayError) -> RelayError:
        server = self._server
        if error.code is Code.ATTACH_UNSUPPORTED:
            return error
        if _TAKEN in error.message:
            # A debugger that cannot know of its greenlets will never answer.
            if self._host in _HERE and await asyncio.to_thread(self._is_behind_greenlets):
                return self._greenlets_refusal()
            return self._refusal(
                Code.ATTACH_REFUSED,
                "has a client already, and debugpy takes one at a time",
                "Disconnect the other client (an editor, another relay), then attach again. "
                "An attach that timed out counts as a client until the program answers.",
            )
        if server is not None and server.lost and not server.has_greeted:
            return self._refusal(
                Code.ATTACH_REFUSED,
                f"is not debugpy: {server.why_lost}",
                self._no_debugpy(),
            )
        lost = server is None or server.lost
        return self._refusal(
            Code.ATTACH_REFUSED if lost else Code.ATTACH_FAILED,
            f"refused the handshake: {error.message}",
            "Attach again; if it fails again, restart the program with "
            f"python -m debugpy --listen {self._port} script.py.",
        )

    def _no_debugpy(self) -> str:
        return (
            f"Is it debugpy that listens on port {self._port}? Start the program with "
            "python -m debugpy --listen PORT script.py and give that PORT."
        )

    def _refusal(self, code: Code, what: str, suggestion: str) -> RelayError:
        return RelayError(
            code,
            f"{self._host}:{self._port} {what}",
            suggestion,
            host=self._host,
            port=self._port,
        )

    # -- events

    def on_event(self, server: DebugServer, message: dap.Message) -> bool:
        if message.event == "process":
            body = msgspec.json.decode(bytes(message.body), type=_ProcessBody)
            self._pid = body.system_process_id
        elif message.event == "debugpyAttach":
            self._resume_child(
                msgspec.json.decode(bytes(message.body), type=_ChildBody).sub_process_id
            )
        elif message.event in ("terminated", "exited"):
            self._report_end()
        else:
            return False
        return True

    def _lost(self, server: DebugServer, why: str) -> None:
        self._servers.server_lost(server, why)
        self._report_end()

    def _report_end(self) -> None:
        self._has_ended = True
        if self._running and not self._disconnecting:
            self._running = False  # up to three events report the end
            self._lifecycle.ended(None, None, "target_lost")

    # -- living with it

    async def end(self, grace: float, for_all: bool = False) -> None:
        """End the program itself, which only an explicit call asks for. Its children belong to its
        owner.
        """
        await self._disconnect(terminate=True)
        self._running = False
        self._lifecycle.ended(None, None, "terminated")

    async def detach(self) -> None:
        """Detach: the program runs on, and its debug server stays in it."""
        await self._disconnect(terminate=False)

    @property
    def residue(self) -> str | None:
        return "tracing"  # the program's own debug server keeps tracing

    async def _disconnect(self, terminate: bool) -> None:
        self._disconnecting = True
        server = self._server
        if server is None or server.lost:
            return
        with contextlib.suppress(RelayError):  # the program may be in C code
            await self._run_text(server, "leave", _LEAVING_SECONDS)
        arguments = {**_LEAVING, "terminateDebuggee": terminate}
        with contextlib.suppress(RelayError):  # the adapter may close before it answers
            await server.request("disconnect", arguments, Any, _GOODBYE_SECONDS)
        server.close()

    async def release(self) -> None:
        for task in list(self._child_tasks):
            task.cancel()
        await asyncio.gather(*self._child_tasks, return_exceptions=True)
        if self._server is not None:
            self._disconnecting = True
            self._server.close()

    # -- its children

    def _resume_child(self, pid: int) -> None:
        """Resume a child that was started before our handshake was complete: it waits for a client
        of its own.
        """
        task = asyncio.create_task(self._resume_waiting_child(pid))
        self._child_tasks.add(task)
        task.add_done_callback(self._child_tasks.discard)

    async def _resume_waiting_child(self, pid: int) -> None:
        server = DebugServer(lambda server, message: None, lambda server, why: None)
        options = {**adapter.attach_options(False), "subProcessId": pid}
        try:
            async with asyncio.timeout(self._params.connect_timeout):
                loop = asyncio.get_running_loop()
                await loop.create_connection(lambda: server, self._host, self._port)
                await adapter.configure(server, _nothing, options)
                await server.request("disconnect", _LEAVING, Any, _GOODBYE_SECONDS)
        except (TimeoutError, OSError, RelayError) as error:
            log.warning("child.waits", extra={"fields": {"pid": pid, "error": str(error)}})
        else:
            child_events.released(self._log, pid, "the program was joined by its port")
        finally:
            server.close()


async def _nothing() -> None:
    """Send nothing: a child that only has to run on gets no breakpoints."""


def _has_unforeseen_greenlets(pid: int) -> bool:
    """Whether the process has gevent loaded and was not started with GEVENT_SUPPORT; the kernel's
    files about it show that.
    """
    environment = procfs.environment(pid)
    if environment is None:
        return False  # it has ended, or we may not read it
    is_foreseen = any(entry.startswith(b"GEVENT_SUPPORT=") for entry in environment)
    return b"/gevent/" in procfs.maps(pid) and not is_foreseen


def _words_of(error: Exception) -> str:
    """The kernel's words for the error; asyncio puts a sentence of its own in their place."""
    number = getattr(error, "errno", None)
    if isinstance(error, socket.gaierror) or not number:
        return getattr(error, "strerror", None) or str(error)
    return os.strerror(number)
