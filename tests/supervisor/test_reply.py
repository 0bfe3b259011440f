"""Replies over real sockets: their head, their bytes, and clients that do not take them."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import AsyncIterator

import pytest

from debug_relay.supervisor.http.connection import Deadlines
from tests.kit.raw_http import RawServer, closed, get, parsed, serve, until


@pytest.fixture
async def relay() -> AsyncIterator[RawServer]:
    async with serve() as here:
        yield here


async def test_a_reply(relay: RawServer) -> None:
    received = await relay.exchange(get("/a?b", "X-Request-ID: r1", "Connection: close"))
    status, fields, body = parsed(received)
    assert status == 200
    assert fields == {
        "Content-Type": "application/json; charset=utf-8",
        "X-Request-ID": "r1",
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Content-Length": str(len(body)),
        "Connection": "close",
    }
    assert json.loads(body) == {"path": "/a?b", "uid": os.geteuid(), "unix": False, "body": ""}


@pytest.mark.parametrize(
    ("sent", "connection"),
    [
        (get(version="1.0"), "close"),
        (get("/", "Connection: keep-alive", version="1.0"), "keep-alive"),
        (get(), None),
        (get("/", "Connection: close"), "close"),
    ],
    ids=["1.0", "1.0-keep", "1.1", "1.1-close"],
)
async def test_the_connection_header(relay: RawServer, sent: bytes, connection: str | None) -> None:
    reader, writer = await relay.connect()
    writer.write(sent)
    _, fields, _ = parsed(await reader.readuntil(b"}"))
    assert fields.get("Connection") == connection
    if connection == "close":
        assert await reader.read() == b""
    else:
        writer.write(sent)
        assert await reader.readuntil(b"}")
    await closed(writer)


async def test_head_has_the_length_and_no_body(relay: RawServer) -> None:
    sent = get("/bytes/500", "Connection: close").replace(b"GET", b"HEAD", 1)
    _, fields, body = parsed(await relay.exchange(sent))
    assert (fields["Content-Length"], body) == ("500", b"")


@pytest.mark.parametrize("count", [0, 1, 64 * 1024, 64 * 1024 + 1, 3_000_000])
async def test_replies_of_any_size(relay: RawServer, count: int) -> None:
    _, _, body = parsed(await relay.exchange(get(f"/bytes/{count}", "Connection: close")))
    assert body == b"x" * count


async def test_a_client_that_never_reads_is_dropped() -> None:
    async with serve(deadlines=Deadlines(send=0.1)) as relay:
        with socket.create_connection(("127.0.0.1", relay.port)) as client:
            client.sendall(get("/bytes/30000000"))
            await until(lambda: relay.requests == ["/bytes/30000000"])
            await until(lambda: relay.listener.open_connections == 0)


async def test_a_header_cannot_be_split(relay: RawServer) -> None:
    assert b"Set-Cookie" not in await relay.exchange(get("/split"))
