"""The session's debug adapter: lets the program's debug server in and sets it up.

It is ours and not `python -m debugpy.adapter`, for reasons that are measured in
docs/architecture.md: a step in 1 ms instead of 44, exact exit codes, no launcher process, threads
that can be resumed one by one, and no port on which any local user may drive the session.

The order of the handshake is fixed. `attach` is answered only after `configurationDone`: whoever
waits for its answer earlier waits for ever.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from debug_relay.protocol.dap import Authorization, Message, SystemInfo
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.worker.connection import DebugServer

_HANDSHAKE_SECONDS: Final = 20.0
_TOKEN_SECONDS: Final = 5.0


class _Ready(msgspec.Struct):
    """Answers that nobody reads."""


class Adapter:
    """Listens on loopback for the debug server of one program that we have started."""

    def __init__(
        self,
        on_event: Callable[[DebugServer, Message], None],
        on_lost: Callable[[DebugServer, str], None],
    ) -> None:
        self._on_event = on_event
        self._on_lost = on_lost
        self.token = secrets.token_hex(32)
        self._listener: socket.socket | None = None
        self.port = 0

    def listen(self) -> None:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setblocking(False)
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        self._listener = listener
        self.port = listener.getsockname()[1]

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def accept(self) -> DebugServer:
        """The debug server of the program that knows our token; others are shown out.

        Connections are asked side by side: one that says nothing holds nobody up. The listener
        closes as soon as the right one is in.
        """
        assert self._listener is not None
        found: asyncio.Future[DebugServer] = asyncio.get_running_loop().create_future()
        accepting = asyncio.create_task(self._accept_all(self._listener, found))
        try:
            return await found
        finally:
            self.close()
            accepting.cancel()
            await asyncio.gather(accepting, return_exceptions=True)

    async def _accept_all(
        self, listener: socket.socket, found: asyncio.Future[DebugServer]
    ) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            while not found.done():
                peer, _ = await loop.sock_accept(listener)
                server = DebugServer(self._on_event, self._on_lost)
                await loop.connect_accepted_socket(lambda s=server: s, peer)  # type: ignore[misc]
                group.create_task(self._examine(server, found))

    async def _examine(self, server: DebugServer, found: asyncio.Future[DebugServer]) -> None:
        try:
            if await self._authorized(server) and not found.done():
                found.set_result(server)
                return
        except asyncio.CancelledError:
            # Another was the right one, or nobody waits any more.
            if not (found.done() and not found.cancelled() and found.result() is server):
                server.close("the program has connected already")
            raise
        server.close("not the program that was started")

    async def _authorized(self, server: DebugServer) -> bool:
        try:
            answer = await server.request(
                "pydevdAuthorize", {"debugServerAccessToken": None}, Authorization, _TOKEN_SECONDS
            )
            if not hmac.compare_digest(answer.client_access_token or "", self.token):
                return False
            info = await server.request("pydevdSystemInfo", None, SystemInfo, _TOKEN_SECONDS)
        except RelayError:
            return False
        server.pid = info.process.pid
        return True


async def configure(
    server: DebugServer,
    initialized: asyncio.Event,
    prepare: Callable[[], Awaitable[None]],
    options: dict[str, Any],
) -> None:
    """From `initialize` to a program that runs; `prepare` sets breakpoints in between."""
    try:
        async with asyncio.timeout(_HANDSHAKE_SECONDS):
            await server.request("initialize", _CLIENT, _Ready, _HANDSHAKE_SECONDS)
            attached = server.post("attach", options)
            await initialized.wait()
            await prepare()
            await server.request("configurationDone", None, _Ready, _HANDSHAKE_SECONDS)
            await attached
    except TimeoutError:
        raise RelayError(
            Code.LAUNCH_FAILED,
            f"The debug server did not finish its handshake within {_HANDSHAKE_SECONDS:g} s",
            "Launch again; if it lasts, read GET …/output for what the program printed.",
        ) from None


def attach_options(just_my_code: bool) -> dict[str, Any]:
    return {
        "justMyCode": just_my_code,
        "subProcess": False,
        "isOutputRedirected": True,  # output is ours by pipe; the debugger has none to send
        # Off: it would put a name of its own among the program's. `step-out` turns it on for once.
        "showReturnValue": False,
        "stopAllThreadsOnSuspend": True,
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
