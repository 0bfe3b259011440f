"""A listener over real sockets, raw bytes to it, and its answers taken apart."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from debug_relay.protocol.errors import RelayError
from debug_relay.supervisor.access.guard import Guard
from debug_relay.supervisor.http.bodies_in_flight import InFlight
from debug_relay.supervisor.http.body import read_body
from debug_relay.supervisor.http.connection import is_over_unix, request_source, request_uid
from debug_relay.supervisor.http.listener import Listener
from debug_relay.supervisor.http.reply import Reply, error_reply

BOUND = 10.0


class RawServer:
    """A listener with a handler that does what the path says."""

    def __init__(self, **settings) -> None:
        self.guard = settings.pop("guard", None) or Guard(
            own_uid=settings.pop("own_uid", os.geteuid())
        )
        self.listener = Listener(self.handle, self.guard, **settings)
        self.port = 0
        self.clients: list[asyncio.StreamWriter] = []
        self.requests: list[str] = []
        self.waiting = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.go_on = asyncio.Event()
        self.body_seconds = BOUND
        self.in_flight = InFlight()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(request.raw_path)
        request_id = request.headers.get("X-Request-ID", "made")
        try:
            with self.in_flight.share(request_source(request)) as share:
                body = await read_body(request, share, 1000, self.body_seconds)
        except RelayError as error:
            return error_reply(error, request_id)
        match request.raw_path.split("/")[1:]:
            case ["wait"]:
                self.waiting.set()
                try:
                    await self.go_on.wait()
                except asyncio.CancelledError:
                    self.cancelled.set()
                    raise
            case ["bytes", count]:
                return Reply(b"x" * int(count), request_id=request_id, content_type="text/plain")
            case ["fail"]:
                raise KeyError("inner secret")
            case ["late"]:
                raise TimeoutError
            case ["http"]:
                raise web.HTTPBadRequest(text="<html>no</html>")
            case ["none"]:
                return None  # type: ignore[return-value]
            case ["split"]:
                return Reply(b"", request_id="a\r\nSet-Cookie: b")
        told = {
            "path": request.raw_path,
            "uid": request_uid(request),
            "unix": is_over_unix(request),
            "body": body.decode(),
        }
        return Reply(json.dumps(told).encode(), request_id=request_id)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.clients.append(writer)
        return reader, writer

    async def exchange(self, sent: bytes, shut: bool = False) -> bytes:
        """Everything that comes back until the relay closes."""
        reader, writer = await self.connect()
        writer.write(sent)
        if shut:
            writer.write_eof()
        async with asyncio.timeout(BOUND):
            try:
                received = await reader.read()
            except ConnectionResetError:
                received = b""
        await closed(writer)
        return received


@asynccontextmanager
async def serve(**settings) -> AsyncIterator[RawServer]:
    here = RawServer(**settings)
    here.port = await here.listener.start_tcp("127.0.0.1", 0)
    try:
        yield here
    finally:
        await here.listener.stop(0.1)
        for writer in here.clients:
            await closed(writer)
        assert here.listener.open_connections == 0


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    try:
        await writer.wait_closed()
    except ConnectionError:
        return


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND):
        while not holds():
            await asyncio.sleep(0.005)


async def within(wait: Awaitable[object]) -> None:
    await asyncio.wait_for(wait, BOUND)


def get(path: str = "/", *headers: str, version: str = "1.1") -> bytes:
    lines = [f"GET {path} HTTP/{version}", "Host: 127.0.0.1", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


def post(body: bytes, *headers: str) -> bytes:
    return get("/", *headers).replace(b"GET", b"POST", 1) + body


def parsed(received: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    fields = dict(line.split(": ", 1) for line in lines)
    assert len(fields) == len(lines), "a header is there twice"
    return int(first.split(" ")[1]), fields, body


def code_of(received: bytes) -> str:
    _, fields, body = parsed(received)
    assert fields["Content-Type"] == "application/json; charset=utf-8"
    assert int(fields["Content-Length"]) == len(body)
    envelope = json.loads(body)
    assert envelope["success"] is False
    assert envelope["meta"]["request_id"] == fields["X-Request-ID"]
    assert envelope["error"]["details"]["suggestion"]
    return envelope["error"]["code"]
