"""When a stream ends: a client that takes nothing, one that falls behind, one that may not."""

from __future__ import annotations

import asyncio
import os
import socket

import aiohttp
import pytest
from aiohttp import web

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.supervisor.access.guard import Guard
from debug_relay.supervisor.http.connection import Deadlines
from debug_relay.supervisor.http.listener import Listener
from debug_relay.supervisor.streams.feed import Encoded
from debug_relay.supervisor.streams.sse import send_events
from debug_relay.supervisor.streams.stream import End, Patience, Stream
from debug_relay.supervisor.streams.websocket import serve_socket
from tests.kit.raw_http import get, until

QUICK = Patience(heartbeat=0.05, send=0.1, behind=0.1, most_behind=100, linger=0.1)


class Feed:
    """Of a session that goes on."""

    is_closed = False

    def __init__(self) -> None:
        self.readers: set[Stream] = set()

    def join(self, reader: Stream) -> None:
        self.readers.add(reader)

    def leave(self, reader: Stream) -> None:
        self.readers.remove(reader)


class Source:
    """So many messages, in batches of ten; more may come."""

    def __init__(self, there: int) -> None:
        self.there = there

    def read(self, cursor: str | None) -> Encoded:
        at = int(cursor or 0)
        count = min(10, self.there - at)
        behind = self.there - at - count
        return Encoded(b"m" * count, str(at + count), count, 0, behind, behind > 0)


def stream(source: Source, admit=lambda: None) -> Stream:
    return Stream(Feed(), None, source.read, admit, QUICK)  # type: ignore[arg-type]


async def test_a_client_that_takes_nothing_is_told_what_it_missed():
    taken: list[bytes] = []

    async def send(data: bytes) -> None:
        if len(taken) == 2:
            await asyncio.sleep(60)
        taken.append(data)

    end = await asyncio.wait_for(stream(Source(1000)).run(send), 5)
    # The third batch was written; the client gets it before the last message, if it reads again.
    assert (end.reason, end.cursor, end.missed) == ("too_slow", "30", 970)
    assert "970 messages" in end.message


async def test_a_client_that_reads_late_but_reads_may_replay_for_long():
    async def send(data: bytes) -> None:
        await asyncio.sleep(0.02)

    source = Source(300)
    one = stream(source)
    running = asyncio.create_task(one.run(send))
    await asyncio.sleep(0.9)  # longer than it might be behind, had it been at the end before
    assert (running.done(), one.cursor) == (False, "300")
    source.there = 5000
    one.wake()
    end = await asyncio.wait_for(running, 5)
    assert end.reason == "too_slow"
    assert int(end.cursor or 0) + end.missed == 5000


async def test_a_caller_is_asked_again_before_each_batch():
    allowed = True
    taken: list[bytes] = []

    def admit() -> None:
        if not allowed:
            raise RelayError(Code.UNAUTHENTICATED, "revoked")

    async def send(data: bytes) -> None:
        taken.append(data)

    source = Source(10)
    one = stream(source, admit)
    running = asyncio.create_task(one.run(send))
    async with asyncio.timeout(5):
        while len(taken) < 3 and not running.done():
            await asyncio.sleep(0.01)
    assert taken == [b"m" * 10, b"", b""]  # heartbeats
    allowed, source.there = False, 20
    assert await asyncio.wait_for(running, 5) == End("refused", "UNAUTHENTICATED: revoked", "10")
    assert len(taken) == 3 or set(taken[3:]) == {b""}


async def test_results_that_are_not_taken_stop_the_questions():
    gate = asyncio.Event()

    async def send(data: bytes) -> None:
        await gate.wait()

    one = stream(Source(10))
    running = asyncio.create_task(one.run(send))
    await asyncio.sleep(0)
    one.put(b"x" * 300_000)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(one.has_room(), 0.05)
    gate.set()
    await asyncio.wait_for(one.has_room(), 5)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert one._feed.readers == set()  # type: ignore[attr-defined]


@pytest.mark.parametrize("reads_at_last", [False, True])
@pytest.mark.parametrize("is_socket", [False, True], ids=["sse", "websocket"])
async def test_a_connection_that_is_not_read_is_closed(is_socket: bool, reads_at_last: bool):
    """It ends although the kernel's buffers are full; who reads again gets the last message."""
    patience = Patience(send=0.3, linger=5 if reads_at_last else 0.3)
    streams: list[Stream] = []

    def endless(cursor: str | None) -> Encoded:
        return Encoded(b"m" * 60_000, str(int(cursor or 0) + 1), 1, 0, 7, True)

    async def handle(http: web.BaseRequest) -> web.StreamResponse:
        one = Stream(Feed(), None, endless, lambda: None, patience)  # type: ignore[arg-type]
        streams.append(one)
        if is_socket:
            return await serve_socket(http, one, "sess_1", None, patience)
        return await send_events(http, one, "1", patience)

    listener = Listener(handle, Guard(own_uid=os.geteuid()), deadlines=Deadlines(send=0.3))
    port = await listener.start_tcp("127.0.0.1", 0)
    upgrade = (
        "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    )  # fmt: skip
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(get("/", *(upgrade if is_socket else ())))
        client.setblocking(False)
        await until(lambda: bool(streams) and streams[0].end is not None)
        end = streams[0].end
        assert end is not None
        assert (end.reason, end.missed) == ("too_slow", 8)
        last = b""
        while reads_at_last and b"too_slow" not in last:
            piece = await asyncio.get_running_loop().sock_recv(client, 1 << 20)
            assert piece, last[-200:]
            last = last[-200:] + piece
        await until(lambda: listener.open_connections == 0)
    await listener.stop(0.1)


async def test_pings_find_clients_that_have_gone():
    """One that answers them stays; a pong that waits behind the client's commands is not missed."""
    patience = Patience(heartbeat=0.02, gone=1)
    gate = asyncio.Event()

    class Waiting:
        async def take(self, text: bytes) -> None:
            await gate.wait()

        async def close(self) -> None:
            pass

    async def handle(http: web.BaseRequest) -> web.StreamResponse:
        one = Stream(Feed(), None, Source(0).read, lambda: None, patience)  # type: ignore[arg-type]
        return await serve_socket(http, one, None, Waiting(), patience)  # type: ignore[arg-type]

    listener = Listener(handle, Guard(own_uid=os.geteuid()))
    port = await listener.start_tcp("127.0.0.1", 0)
    async with aiohttp.ClientSession() as http:
        url = f"http://127.0.0.1:{port}/"
        answers = await http.ws_connect(url)
        reading = asyncio.create_task(answers.receive())
        busy = await http.ws_connect(url, autoping=False)
        await busy.send_str("{}")
        gone = await http.ws_connect(url, autoping=False)
        await until(lambda: listener.open_connections == 2)
        assert not reading.done()
        gate.set()  # its messages are read again
        await until(lambda: listener.open_connections == 1)
        reading.cancel()
        for one in (answers, busy, gone):
            await one.close()
    await listener.stop(0.1)
