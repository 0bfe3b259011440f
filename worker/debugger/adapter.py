"""The session's debug adapter: accepts the program's debug server and sets it up.

The worker does not use `python -m debugpy.adapter`. docs/architecture/30-launch.md has the measured
reasons: a step in 1 ms instead of 44, exact exit codes, no launcher process, threads that can be
resumed one by one, and no port on which any local user may drive the session.

The order of the handshake is fixed. pydevd answers `attach` only after `configurationDone`, so to
wait for that answer earlier is to wait for ever.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import msgspec

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.wire.dap import Message, SystemInfo
from debug_relay.worker.debugger.admission import CHILD_WAITS_SECONDS, Admission
from debug_relay.worker.debugger.connection import DebugServer

log = logging.getLogger("debug_relay.worker")

_HANDSHAKE_SECONDS: Final = 20.0  # The handshake with one debug server.
# The pause after a connection could not be accepted for want of descriptors.
_ACCEPT_AGAIN_SECONDS: Final = 0.1
# Connections that wait to be accepted: the children of a pool come all at once.
_MOST_PENDING: Final = 512


class _Ready(msgspec.Struct):
    """The body of an answer that we do not read."""


class Adapter:
    """Listens on loopback for the debug servers of a program and of its children."""

    def __init__(
        self,
        on_event: Callable[[DebugServer, Message], None],
        on_lost: Callable[[DebugServer, str], None],
        uids_of_program: Callable[[], Iterable[int]],
    ) -> None:
        """`uids_of_program` gives the uids of the program's processes now."""
        self._on_event = on_event
        self._on_lost = on_lost
        self._admission = Admission(uids_of_program)
        # The program's debug server obeys a client only after the client has sent this token.
        self.access_token = secrets.token_hex(32)
        self._listener: socket.socket | None = None
        self.port = 0

    @property
    def token(self) -> str:
        """The token that the program sends first."""
        return self._admission.token

    def listen(self) -> None:
        self._admission.begin()
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setblocking(False)
        listener.bind(("127.0.0.1", 0))
        listener.listen(_MOST_PENDING)
        self._listener = listener
        self.port = listener.getsockname()[1]

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            self._admission.close()

    async def accept(self, stay_open: bool = False) -> DebugServer:
        """Accept the one debug server that sends our token, and refuse all others.

        The listener closes then; with `stay_open` it stays, because children will connect too.
        """
        found: asyncio.Future[DebugServer] = asyncio.get_running_loop().create_future()

        async def welcome(server: DebugServer) -> None:
            if found.done():
                server.close("the program has connected already")
            else:
                found.set_result(server)

        accepting = asyncio.create_task(self.welcome_all(welcome))
        try:
            return await found
        except asyncio.CancelledError:
            if found.done() and not found.cancelled():
                found.result().close("no caller waits for it any more")
            raise
        finally:
            accepting.cancel()
            await asyncio.gather(accepting, return_exceptions=True)
            # The task must have ended before: the loop would still watch the listener's number,
            # which the next descriptor gets.
            if not stay_open:
                self.close()

    async def welcome_all(self, welcome: Callable[[DebugServer], Awaitable[None]]) -> None:
        """Examine connections side by side, so that a silent one delays no other."""
        assert self._listener is not None
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    peer, _ = await loop.sock_accept(self._listener)
                except OSError as error:
                    # No descriptor is free. The connection waits in the backlog until one is.
                    log.warning("adapter.accept_failed", extra={"fields": {"error": str(error)}})
                    await asyncio.sleep(_ACCEPT_AGAIN_SECONDS)
                    continue
                group.create_task(self._examine(peer, welcome))
                # A peer that connects without pause must not keep the loop from other work.
                await asyncio.sleep(0)

    async def _examine(
        self, peer: socket.socket, welcome: Callable[[DebugServer], Awaitable[None]]
    ) -> None:
        server: DebugServer | None = None
        try:
            if await self._admission.admits(peer):
                # From here on we believe what the peer sends; so not before it is admitted.
                server = DebugServer(self._on_event, self._on_lost)
                await self._join(server, peer)
                await welcome(server)
                return
        except asyncio.CancelledError:
            _close(server, peer, "no caller waits for it any more")
            raise
        except RelayError as error:
            log.warning("adapter.not_joined", extra={"fields": {"error": error.message}})
        except Exception:
            # An error with one connection must not end the others.
            log.exception("adapter.welcome_failed")
        _close(server, peer, "not the program that was started")

    async def _join(self, server: DebugServer, peer: socket.socket) -> None:
        """Authorize us: pydevd obeys only after it has seen our access token."""
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(lambda: server, peer)
        shown = {"debugServerAccessToken": self.access_token}
        await server.request("pydevdAuthorize", shown, _Ready, CHILD_WAITS_SECONDS)
        info = await server.request("pydevdSystemInfo", None, SystemInfo, CHILD_WAITS_SECONDS)
        server.pid = info.process.pid


def _close(server: DebugServer | None, peer: socket.socket, why: str) -> None:
    if server is not None:
        server.close(why)
    else:
        peer.close()


async def configure(
    server: DebugServer,
    prepare: Callable[[], Awaitable[None]],
    options: dict[str, Any],
    seconds: float = _HANDSHAKE_SECONDS,
) -> None:
    """Go through the handshake, from `initialize` until the program runs; `prepare` sends the
    breakpoints in between.
    """
    try:
        async with asyncio.timeout(seconds):
            await server.request("initialize", _CLIENT, _Ready, seconds)
            attached = server.post("attach", options)
            await _until_initialized(server.initialized, attached)
            await prepare()
            await server.request("configurationDone", None, _Ready, seconds)
            await attached
    except TimeoutError:
        raise RelayError(
            Code.LAUNCH_FAILED,
            f"The debug server did not finish its handshake within {seconds:g} s",
            f"Launch again; if it fails again, {call_of('output')} shows what the program printed.",
        ) from None


async def _until_initialized(initialized: asyncio.Event, attached: asyncio.Future[Message]) -> None:
    """Wait until pydevd takes breakpoints. An answer to `attach` before that is a failure."""
    waiting = asyncio.ensure_future(initialized.wait())
    try:
        await asyncio.wait((waiting, attached), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    if initialized.is_set():
        return
    error = attached.exception()
    why = str(error) if error else attached.result().message
    raise RelayError(Code.DEBUGPY_ERROR, f"The debugger inside the program could not begin: {why}")


def attach_options(just_my_code: bool) -> dict[str, Any]:
    return {
        "justMyCode": just_my_code,
        "subProcess": False,
        # the worker reads the output by pipe; the debugger has none to send
        "isOutputRedirected": True,
        # Off, because pydevd would add a name of its own to the frame's variables. `step-out` turns
        # it on for as long as it lasts (`ProbeClient.keep_returns`).
        "showReturnValue": False,
        "stopAllThreadsOnSuspend": True,
        # Auto-reload is off. By default pydevd would read the working directory, which may be gone.
        "autoReload": {"enable": False, "watchDirectories": ["/"]},
        "variablePresentation": {
            "all": "inline",
            "special": "hide",
            "function": "inline",
            "class": "inline",
            "protected": "inline",
        },
    }


_CLIENT: Final = {
    "clientID": "debug-relay",
    "adapterID": "python",
    "linesStartAt1": True,
    "columnsStartAt1": True,
    "pathFormat": "path",
    "supportsVariableType": True,
    "supportsVariablePaging": False,
    "supportsRunInTerminalRequest": False,
    "locale": "en-US",
}
