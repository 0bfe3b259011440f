"""Connections over real sockets: who is let in, what is answered, when they end."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from debug_relay.protocol.system import peers as peer
from debug_relay.protocol.system.peers import AnySocket
from debug_relay.supervisor.access.guard import UNKNOWN_UID, Guard, PeerCheck
from debug_relay.supervisor.http.acceptance import Limits
from debug_relay.supervisor.http.connection import Deadlines
from tests.kit.raw_http import (
    BOUND,
    RawServer,
    closed,
    code_of,
    get,
    parsed,
    serve,
    until,
    within,
)

NOBODY = 65534
needs_peers = pytest.mark.skipif(not peer.available(), reason="peer uids are known on Linux only")


@pytest.fixture
async def relay() -> AsyncIterator[RawServer]:
    async with serve() as here:
        yield here


async def test_pipelined_requests_are_answered_in_order(relay: RawServer) -> None:
    sent = b"".join(get(f"/{n}") for n in range(99)) + get("/99", "Connection: close")
    received = await relay.exchange(sent)
    assert received.count(b"HTTP/1.1 200 OK") == 100
    assert relay.requests == [f"/{n}" for n in range(100)]


async def test_a_half_closed_client_gets_all_its_replies(relay: RawServer) -> None:
    received = await relay.exchange(get("/1") + get("/2") + get("/bytes/3000000"), shut=True)
    assert received.count(b"HTTP/1.1 200 OK") == 3
    assert received.endswith(b"x" * 3_000_000)
    assert b"Connection: close" in received


@needs_peers
async def test_a_half_closed_client_may_wait_for_its_reply(relay: RawServer) -> None:
    reader, writer = await relay.connect()
    writer.write(get("/wait"))
    await within(relay.waiting.wait())
    writer.write_eof()
    relay.go_on.set()
    async with asyncio.timeout(BOUND):
        assert b"200 OK" in await reader.read()
    assert not relay.cancelled.is_set()
    await closed(writer)


async def test_a_client_that_leaves_ends_its_wait(relay: RawServer) -> None:
    _, writer = await relay.connect()
    writer.write(get("/wait"))
    await within(relay.waiting.wait())
    await closed(writer)
    await within(relay.cancelled.wait())
    await until(lambda: relay.listener.open_connections == 0)


@needs_peers
async def test_a_half_closed_client_that_leaves_ends_its_wait() -> None:
    async with serve(deadlines=Deadlines(look=0.02)) as relay:
        _, writer = await relay.connect()
        writer.write(get("/wait"))
        await within(relay.waiting.wait())
        writer.write_eof()
        await until(lambda: any(c._half_closed for c in relay.listener._acceptor.present))
        assert not relay.cancelled.is_set()
        await closed(writer)
        await within(relay.cancelled.wait())


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GARBAGE\r\n\r\n",
        b"\0" * 100 + b"\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nBad Name: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n folded: b\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: a\r\n" * 200 + b"\r\n",
    ],
    ids=lambda sent: ascii(sent[:24]),
)
async def test_what_is_no_http_is_answered_in_the_envelope(sent: bytes) -> None:
    async with serve(deadlines=Deadlines(linger=0.05)) as relay:
        received = await relay.exchange(sent)
        assert code_of(received) == "INVALID_REQUEST"
        assert parsed(received)[1]["Connection"] == "close"
        assert relay.requests == []
        assert relay.listener.counts.malformed == 1


async def test_garbage_behind_a_request_is_answered_after_it() -> None:
    async with serve(deadlines=Deadlines(linger=0.05)) as relay:
        reader, writer = await relay.connect()
        writer.write(get("/first"))
        assert b"/first" in await reader.readuntil(b"}")
        writer.write(b"GARBAGE\r\n\r\n")
        assert code_of(await reader.read()) == "INVALID_REQUEST"
        await closed(writer)


@pytest.mark.parametrize("path", ["/fail", "/late", "/none"])
async def test_what_the_handler_lets_through(
    relay: RawServer, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    received = await relay.exchange(get(path, "Connection: close"))
    assert parsed(received)[0] == 500
    assert code_of(received) == "INTERNAL_ERROR"
    assert b"secret" not in received
    (record,) = caplog.records
    assert record.exc_info
    error_id = json.loads(parsed(received)[2])["error"]["details"]["error_id"]
    assert record.fields["error_id"] == error_id  # type: ignore[attr-defined]


async def test_the_librarys_own_refusals_come_in_the_envelope(relay: RawServer) -> None:
    received = await relay.exchange(get("/http", "Connection: close"))
    assert (parsed(received)[0], code_of(received)) == (400, "INVALID_REQUEST")


async def test_slow_headers() -> None:
    async with serve(deadlines=Deadlines(head=0.1)) as relay:
        assert await relay.exchange(b"") == b""
        assert code_of(await relay.exchange(b"GET / HTTP/1.1\r\nHost")) == "REQUEST_TIMEOUT"
        assert relay.listener.counts.slow_head == 2


async def test_headers_that_trickle() -> None:
    async with serve(deadlines=Deadlines(head=0.2)) as relay:
        reader, writer = await relay.connect()
        received = asyncio.create_task(reader.read())
        for at, _ in enumerate(iter(received.done, True)):
            writer.write(b"GET / HTTP/1.1\r\n" if at == 0 else b"X: 1\r\n")
            await asyncio.wait({received}, timeout=0.03)
            assert at < 100
        assert code_of(await received) == "REQUEST_TIMEOUT"
        await closed(writer)


async def test_who_sends_on_does_not_lose_the_refusal() -> None:
    """On what comes for a closed connection the kernel resets it, with all that is unread."""
    async with (
        serve(deadlines=Deadlines(head=0.1, linger=0.5)) as relay,
        asyncio.timeout(BOUND),
    ):
        reader, writer = await relay.connect()
        writer.write(b"GET / HTTP/1.1\r\n")
        refusal = await reader.readuntil(b"}")
        for _ in range(5):
            writer.write(b"X: 1\r\n")
            await writer.drain()
            await asyncio.sleep(0.01)  # a reset would have come back by then
        assert code_of(refusal + await reader.read()) == "REQUEST_TIMEOUT"
        await until(lambda: not relay.listener.open_connections)  # though the client stays
        assert relay.listener.counts.slow_head == 1


async def test_slow_headers_on_a_used_connection() -> None:
    async with serve(deadlines=Deadlines(head=0.1)) as relay:
        reader, writer = await relay.connect()
        writer.write(get())
        await reader.readuntil(b"}")
        writer.write(b"GET ")
        assert code_of(await reader.read()) == "REQUEST_TIMEOUT"
        await closed(writer)


async def test_an_idle_connection_outlives_the_header_deadline_only() -> None:
    async with serve(deadlines=Deadlines(head=0.1, idle=0.4)) as relay:
        reader, writer = await relay.connect()
        writer.write(get())
        await reader.readuntil(b"}")
        begun = asyncio.get_running_loop().time()
        assert await reader.read() == b""
        assert 0.3 < asyncio.get_running_loop().time() - begun < BOUND
        await closed(writer)


@needs_peers
async def test_send_and_close_at_once_is_refused(relay: RawServer) -> None:
    # No await: the client is gone before the relay's loop gets to accept it.
    with socket.create_connection(("127.0.0.1", relay.port)) as client:
        client.sendall(get())
    await until(lambda: relay.listener.counts.refused_peer == 1)
    assert relay.requests == []


@needs_peers
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a second user")
async def test_another_user_is_refused(relay: RawServer, caplog: pytest.LogCaptureFixture) -> None:
    program = (
        "import os, socket\n"
        f"os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "for _ in range(3):\n"
        "    s = socket.socket()\n"
        f"    s.connect(('127.0.0.1', {relay.port}))\n"
        "    try:\n"
        "        s.sendall(b'GET / HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\n\\r\\n')\n"
        "        assert s.recv(1) == b''\n"
        "    except (ConnectionResetError, BrokenPipeError):\n"
        "        pass\n"
    )
    command = [sys.executable, "-ISc", program]
    done = await asyncio.to_thread(subprocess.run, command, timeout=BOUND, check=False)
    assert done.returncode == 0
    assert relay.requests == []
    assert relay.listener.counts.refused_peer == 3
    (record,) = caplog.records
    assert record.getMessage() == "connection.refused"
    assert record.fields["uid"] == NOBODY  # type: ignore[attr-defined]


class Elsewhere(Guard):
    """The kernel names the user of no connection, as of those from another machine."""

    def admit(self, sock: AnySocket) -> PeerCheck:
        return PeerCheck(UNKNOWN_UID)


async def test_one_address_elsewhere_leaves_room_for_others() -> None:
    limits = Limits(connections_per_address=3, connections_per_uid=5)
    guard = Elsewhere(own_uid=os.geteuid())
    async with serve(limits=limits, guard=guard) as relay:

        async def answered(address: str) -> bool:
            """Whether a further connection from this address is served; it stays open."""
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", relay.port, local_addr=(address, 0)
            )
            relay.clients.append(writer)
            writer.write(get())
            return (await reader.read(12)).startswith(b"HTTP/1.1 200")

        assert [await answered("127.0.0.2") for _ in range(4)] == [True, True, True, False]
        assert [await answered("127.0.0.3") for _ in range(3)] == [True, True, False]
        assert relay.listener.counts.refused_limit == 2


@pytest.mark.parametrize("limits", [Limits(connections=3), Limits(connections_per_uid=3)])
async def test_the_connection_cap(limits: Limits) -> None:
    async with serve(limits=limits) as relay:
        kept = [await relay.connect() for _ in range(3)]
        await until(lambda: relay.listener.open_connections == 3)
        assert await relay.exchange(get()) == b""
        assert relay.listener.counts.refused_limit == 1
        for _, writer in kept:
            await closed(writer)
        await until(lambda: relay.listener.open_connections == 0)
        assert b"200 OK" in await relay.exchange(get("/", "Connection: close"))
