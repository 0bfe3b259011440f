"""Joining a program that listens with `debugpy --listen`, by host and port.

A stock debug adapter stands between: its own, in the program's machine or container. It has one
client at a time, cannot move one thread alone, and leaves tracing on in the program when we go.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from debug_relay.protocol import dap
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.program import Attach
from debug_relay.protocol.sessions import Program
from debug_relay.worker import adapter
from debug_relay.worker.connection import DebugServer

if TYPE_CHECKING:
    from debug_relay.worker.session import Session

_LATER: Final = ("pid", "identity", "listening_on", "match", "redirect_output", "tree")
_GOODBYE_SECONDS: Final = 5.0
# The program's own debug server sends header and body apart; without this each waits 40 ms.
_NO_DELAY: Final = (
    "__import__('pydevd').get_global_debugger().writer.sock.setsockopt("
    "__import__('socket').IPPROTO_TCP, __import__('socket').TCP_NODELAY, 1)"
)


class _ProcessBody(msgspec.Struct, rename="camel"):
    system_process_id: int | None = None


def check(params: Attach) -> None:
    """Refuse what does not fit together, and what is not there yet."""
    if (params.pid is None) == (params.port is None):
        what = "both were given" if params.pid is not None else "neither was given"
        raise RelayError(
            Code.INVALID_REQUEST,
            f"Attach needs either pid or port (with optional host); {what}",
            'Send {"port": 5678} for a program started with debugpy --listen 5678.',
            errors=[
                {"field": name, "message": "give exactly one of pid, port", "value": None}
                for name in ("pid", "port")
            ],
        )
    for field in _LATER:
        if getattr(params, field):
            raise RelayError(
                Code.NOT_IMPLEMENTED,
                f"Attaching with {field} is not there yet in this version",
                "Start the program with python -m debugpy --listen PORT and attach by port.",
                field=field,
            )


class JoinedProgram:
    """Somebody else's program: it was there before us and outlives us."""

    attached = True

    def __init__(self, session: Session, params: Attach) -> None:
        self._session = session
        self._params = params
        self._host = params.host or "127.0.0.1"
        assert params.port is not None
        self._port = params.port
        self._server: DebugServer | None = None
        self._initialized = asyncio.Event()
        self._running = False
        self._leaving = False
        self._pid: int | None = None

    @property
    def pid(self) -> int | None:
        return self._pid

    # -- starting

    async def start(self) -> None:
        try:
            async with asyncio.timeout(self._params.connect_timeout):
                server = await self._connect()
                await self._join(server)
        except TimeoutError:
            await self.release()
            raise self._refusal(
                Code.ATTACH_TIMEOUT,
                f"did not answer within {self._params.connect_timeout:g} s",
                "Is it debugpy that listens there, and without another client? "
                "Give a larger connect_timeout if it is slow.",
            ) from None
        except (OSError, UnicodeError) as error:  # UnicodeError: no host name can look like that
            await self.release()
            raise self._refusal(
                Code.ATTACH_REFUSED,
                f"refuses the connection: {getattr(error, 'strerror', None) or error}",
                f"Start the program with python -m debugpy --listen {self._port} script.py.",
            ) from None
        except RelayError as error:
            # Before the release: after it the connection is cut off in any case.
            code = Code.ATTACH_REFUSED if self._was_cut_off(error) else Code.ATTACH_FAILED
            await self.release()
            raise self._refusal(
                code,
                f"does not let us join: {error.message}",
                "debugpy takes one client at a time: let the other one disconnect first.",
            ) from None
        self._running = True

    async def _connect(self) -> DebugServer:
        server = DebugServer(self._session.on_debug_event, self._lost)
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: server, self._host, self._port)
        self._server = server
        return server

    async def _join(self, server: DebugServer) -> None:
        self._session.hub.add(server)
        config = self._session.params.config
        mine = self._params.just_my_code
        options = adapter.attach_options(config.just_my_code if mine is None else mine)
        options["redirectOutput"] = False
        if self._params.path_mappings:
            options["pathMappings"] = [
                {"localRoot": mapping.local, "remoteRoot": mapping.remote}
                for mapping in self._params.path_mappings
            ]
        await adapter.configure(server, self._initialized, self._prepare, options)
        await self._speed_up(server)
        self._session.program = Program(
            attached=True, pid=self._pid, host=self._host, port=self._port
        )

    async def _prepare(self) -> None:
        assert self._server is not None
        await self._session.breakpoints.judge_again()
        await self._session.breakpoints.send_all(self._server)
        await self._server.request(
            "setExceptionBreakpoints",
            {"filters": self._session.exception_filters},
            dict,
            self._session.params.request_timeout,
        )

    async def _speed_up(self, server: DebugServer) -> None:
        with contextlib.suppress(RelayError):  # slower without, and no worse
            await server.request(
                "evaluate", {"expression": _NO_DELAY, "context": "repl"}, dap.Evaluation, 2.0
            )

    def _was_cut_off(self, error: RelayError) -> bool:
        return self._server is None or self._server.lost or "went away" in error.message

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
        if message.event == "initialized":
            self._initialized.set()
        elif message.event == "process":
            body = msgspec.json.decode(bytes(message.body), type=_ProcessBody)
            self._pid = body.system_process_id
        elif message.event in ("terminated", "exited"):
            self._gone()
        else:
            return False
        return True

    def _lost(self, server: DebugServer, why: str) -> None:
        self._session.server_lost(server, why)
        self._gone()

    def _gone(self) -> None:
        if self._running and not self._leaving:
            self._session.program_ended(None, None, "target_lost")

    # -- living with it

    def wake(self) -> None:
        """Its process is not ours to signal."""

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
        await self._disconnect(terminate=True)
        self._running = False
        self._session.program_ended(None, None, "terminated")

    async def detach(self) -> None:
        """Let it run on as it was; its debug server stays in it."""
        await self._disconnect(terminate=False)

    async def _disconnect(self, terminate: bool) -> None:
        self._leaving = True
        server = self._server
        if server is None or server.lost:
            return
        arguments = {"restart": False, "terminateDebuggee": terminate}
        with contextlib.suppress(RelayError):  # it may close before it has answered
            await server.request("disconnect", arguments, Any, _GOODBYE_SECONDS)
        server.close()

    async def release(self) -> None:
        if self._server is not None:
            self._leaving = True
            self._server.close()
