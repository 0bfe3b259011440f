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

    async def accept(self, expected_pid: int) -> DebugServer:
        """The debug server of `expected_pid`; whoever else connects is shown out.

        The listener closes as soon as the right one is in: nobody else is awaited.
        """
        loop = asyncio.get_running_loop()
        assert self._listener is not None
        try:
            while True:
                peer, _ = await loop.sock_accept(self._listener)
                server = DebugServer(self._on_event, self._on_lost)
                await loop.connect_accepted_socket(lambda s=server: s, peer)  # type: ignore[misc]
                if await self._authorized(server, expected_pid):
                    return server
                server.close("not the program that was started")
        finally:
            self.close()

    async def _authorized(self, server: DebugServer, expected_pid: int) -> bool:
        try:
            answer = await server.request(
                "pydevdAuthorize", {"debugServerAccessToken": None}, Authorization, 5.0
            )
            if not hmac.compare_digest(answer.client_access_token or "", self.token):
                return False
            info = await server.request("pydevdSystemInfo", None, SystemInfo, 5.0)
        except RelayError:
            return False
        server.pid = info.process.pid
        # A launcher script may have started Python as its child; its token is proof enough.
        server.pid = server.pid or expected_pid
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
        "showReturnValue": True,
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
