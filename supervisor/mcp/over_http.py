"""`/mcp`: the streamable HTTP transport of MCP on the relay's own sockets.

The front has checked Host and Origin, and dispatch the caller, before the SDK sees a request; each
call of a tool is a request to dispatch with the same caller, so the same scopes apply. The SDK
speaks ASGI, which is bridged here. It serves both eras of the protocol, without sessions of its
own.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import uuid
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from aiohttp import HttpVersion11, web

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.validation.json_body import parse_json
from debug_relay.supervisor.mcp.calls import Calls, Form
from debug_relay.supervisor.operations.dispatch import Dispatch
from debug_relay.supervisor.operations.request import Request, fill

if TYPE_CHECKING:  # the extra [mcp]
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

# The key in the ASGI scope under which a tool finds the request that it is called by.
_REQUEST: Final = "debug_relay.request"
# One message: the SDK parses it on the event loop.
_LONGEST_MESSAGE_BYTES: Final = 256 * 1024
# The protocol demands it; a call by hand works without.
_ACCEPT: Final = (b"accept", b"application/json, text/event-stream")
_END_SECONDS: Final = 2.0  # Tools under way have ended within this time when the relay stops.

Message = MutableMapping[str, Any]


class Mcp:
    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch
        self._starting = asyncio.Lock()
        self._manager: StreamableHTTPSessionManager | None = None
        self._running: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    async def serve(
        self, http: web.BaseRequest, request: Request, read: Callable[[], Awaitable[bytes]]
    ) -> web.StreamResponse:
        """Answers one request; raises RelayError if the caller may not send it."""
        self._dispatch.admit(request)
        body = await read()
        if len(body) > _LONGEST_MESSAGE_BYTES:
            raise RelayError(
                Code.REQUEST_TOO_LARGE,
                f"The message has {len(body)} bytes; {_LONGEST_MESSAGE_BYTES} is the most",
                "Send less in one call.",
                max_bytes=_LONGEST_MESSAGE_BYTES,
            )
        parse_json(body)  # within our bounds on depth and entries, before the SDK parses it
        manager = await self._started()
        return await _bridged(manager.handle_request, http, body, request)

    async def close(self) -> None:
        self._stop.set()
        if self._running is not None:
            done, _ = await asyncio.wait({self._running}, timeout=_END_SECONDS)
            if not done:
                self._running.cancel()
                await asyncio.gather(self._running, return_exceptions=True)

    async def _started(self) -> StreamableHTTPSessionManager:
        async with self._starting:
            if self._manager is None:
                self._manager = await self._start()
        return self._manager

    async def _start(self) -> StreamableHTTPSessionManager:
        try:
            sdk: Any = await asyncio.to_thread(_imported)
        except ImportError as error:
            raise not_installed(error) from None
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        # Streamed, not as one JSON document: progress must reach a client that waits.
        manager = StreamableHTTPSessionManager(sdk.server(self._calls), stateless=True)
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._running = asyncio.create_task(self._run(manager, ready), name="mcp")
        # A manager that cannot begin ends its task, and never gets ready.
        await asyncio.wait({self._running, ready}, return_when=asyncio.FIRST_COMPLETED)
        if self._running.done():
            await self._running
        return manager

    async def _run(
        self, manager: StreamableHTTPSessionManager, ready: asyncio.Future[None]
    ) -> None:
        """The task in which the manager's own tasks are begun and ended."""
        async with manager.run():
            ready.set_result(None)
            await self._stop.wait()

    def _calls(self, context: Any) -> Calls:
        return _DispatchCalls(self._dispatch, context.request.scope[_REQUEST])


class _DispatchCalls:
    """Operations by dispatch, for the caller of one request."""

    def __init__(self, dispatch: Dispatch, opening: Request) -> None:
        self._dispatch = dispatch
        self._opening = opening

    async def reply(
        self, operation: str, fields: Mapping[str, Any], form: Form
    ) -> tuple[int, bytes]:
        row = OPERATIONS[operation]
        opening = self._opening
        request = Request(
            id=str(uuid.uuid4()),
            uid=opening.uid,
            address=opening.address,
            operation=None,
            agent=opening.agent,
            key=opening.key,
            authorization=opening.authorization,
            asked=("MCP", row.path),
            format=form,
        )
        fill(request, row, fields)
        finished = await self._dispatch.perform(request)
        return finished.status, finished.body


def _imported() -> Any:
    importlib.invalidate_caches()  # it may have been installed since the relay started
    return importlib.import_module("debug_relay.supervisor.mcp.sdk")


def not_installed(error: ImportError) -> RelayError:
    return RelayError(
        Code.ATTACH_NO_DEBUGGER,
        f"The relay's Python lacks what MCP needs: {error}",
        f"Install it: {sys.executable} -m pip install 'opencode-debug-relay[mcp]'. Everything else "
        "works without it, by plain HTTP.",
    )


async def _bridged(
    app: Callable[..., Awaitable[None]], http: web.BaseRequest, body: bytes, request: Request
) -> web.StreamResponse:
    """Calls an ASGI application; it is cancelled when the client leaves."""
    response: web.StreamResponse | None = None
    unread = [body]

    async def receive() -> Message:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        await asyncio.Event().wait()  # the connection cancels this when the client leaves
        raise AssertionError

    async def send(message: Message) -> None:
        nonlocal response
        with suppress(ConnectionError):  # the client has its answer, or has left
            if message["type"] == "http.response.start":
                response = _response(message, http, request)
                await response.prepare(http)
                return
            assert response is not None
            await response.write(message.get("body", b""))
            if not message.get("more_body"):
                await response.write_eof()

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": http.method,
        "scheme": "http",
        "path": http.path,
        "raw_path": http.path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [*_headers(http), _ACCEPT],
        "client": None,
        "server": None,
        _REQUEST: request,
    }
    await app(scope, receive, send)
    assert response is not None
    return response


def _headers(http: web.BaseRequest) -> list[tuple[bytes, bytes]]:
    found = [(name.lower(), value) for name, value in http.raw_headers]
    return [pair for pair in found if pair[0] != _ACCEPT[0]]


def _response(message: Message, http: web.BaseRequest, request: Request) -> web.StreamResponse:
    response = web.StreamResponse(status=message["status"])
    for name, value in message.get("headers", ()):
        response.headers.add(name.decode("latin-1").title(), value.decode("latin-1"))
    response.headers["X-Request-ID"] = request.id
    response.headers["X-Content-Type-Options"] = "nosniff"
    if "Content-Length" not in response.headers and http.version >= HttpVersion11:
        response.enable_chunked_encoding()
    return response
