"""The session's debug adapter: accepts the program's debug server and sets it up.

It is ours and not `python -m debugpy.adapter`, for reasons that are measured in
docs/architecture/30-launch.md: a step in 1 ms instead of 44, exact exit codes, no launcher
process, threads that can be resumed one by one, and no port on which any local user may drive the
session.

The order of the handshake is fixed. `attach` is answered only after `configurationDone`: whoever
waits for its answer earlier waits for ever.
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
from debug_relay.worker.debugger.admission import Admission
from debug_relay.worker.debugger.connection import DebugServer

log = logging.getLogger("debug_relay.worker")

_HANDSHAKE_SECONDS: Final = 20.0
_AUTHORIZE_SECONDS: Final = 15.0  # as long as a child waits for us
_ACCEPT_AGAIN: Final = 0.1
_BACKLOG: Final = 512  # a pool's children come all at once


class _Ready(msgspec.Struct):
    """Answers that nobody reads."""


class Adapter:
    """Listens on loopback for the debug server of a program that we have started, and of what that
    has started."""

    def __init__(
        self,
        on_event: Callable[[DebugServer, Message], None],
        on_lost: Callable[[DebugServer, str], None],
        uids_of_program: Callable[[], Iterable[int]],
    ) -> None:
        """`uids_of_program` tells what the program's processes run as now."""
        self._on_event = on_event
        self._on_lost = on_lost
        self._admission = Admission(uids_of_program)
        # The program takes commands from nobody who does not say this first.
        self.access_token = secrets.token_hex(32)
        self._listener: socket.socket | None = None
        self.port = 0

    @property
    def token(self) -> str:
        """What the program says first."""
        return self._admission.token

    def listen(self) -> None:
        self._admission.begin()
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setblocking(False)
        listener.bind(("127.0.0.1", 0))
        listener.listen(_BACKLOG)
        self._listener = listener
        self.port = listener.getsockname()[1]

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            self._admission.close()

    async def accept(self, stay_open: bool = False) -> DebugServer:
        """The debug server of the program that knows our token; others are refused.

        The listener closes as soon as the right one is in, unless its children are to come too.
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
            # Not before: the loop would watch a number that the next descriptor gets.
            if not stay_open:
                self.close()

    async def welcome_all(self, welcome: Callable[[DebugServer], Awaitable[None]]) -> None:
        """Connections are asked side by side: one that says nothing holds nobody up."""
        assert self._listener is not None
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    peer, _ = await loop.sock_accept(self._listener)
                except OSError as error:
                    # No descriptor is left: whoever waits there is served when there is one again.
                    log.warning("adapter.accept_failed", extra={"fields": {"error": str(error)}})
                    await asyncio.sleep(_ACCEPT_AGAIN)
                    continue
                group.create_task(self._examine(peer, welcome))
                # Whoever connects as fast as it can keeps nobody waiting.
                await asyncio.sleep(0)

    async def _examine(
        self, peer: socket.socket, welcome: Callable[[DebugServer], Awaitable[None]]
    ) -> None:
        server: DebugServer | None = None
        try:
            if await self._admission.admits(peer):
                # Not before: what it says from now on is believed.
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
            # Whatever is wrong with this one, the others are to be served.
            log.exception("adapter.welcome_failed")
        _close(server, peer, "not the program that was started")

    async def _join(self, server: DebugServer, peer: socket.socket) -> None:
        """The program does not obey before we have shown our token."""
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(lambda: server, peer)
        shown = {"debugServerAccessToken": self.access_token}
        await server.request("pydevdAuthorize", shown, _Ready, _AUTHORIZE_SECONDS)
        info = await server.request("pydevdSystemInfo", None, SystemInfo, _AUTHORIZE_SECONDS)
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
    """From `initialize` to a program that runs; `prepare` sets breakpoints in between."""
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
            f"Launch again; if it lasts, {call_of('output')} shows what the program printed.",
        ) from None


async def _until_initialized(initialized: asyncio.Event, attached: asyncio.Future[Message]) -> None:
    """`attach` is answered before only where it has failed."""
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
        "isOutputRedirected": True,  # output is ours by pipe; the debugger has none to send
        # Off: it would put a name of its own among the program's. `step-out` turns it on for once.
        "showReturnValue": False,
        "stopAllThreadsOnSuspend": True,
        # Nothing is watched; by default pydevd asks for the working directory, which may be gone.
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
