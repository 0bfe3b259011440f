"""The doors over real sockets: who is let in, what is answered, and what is left behind."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from debug_relay.protocol.errors import RelayError
from debug_relay.supervisor import peer
from debug_relay.supervisor.guard import Guard
from debug_relay.supervisor.listener import (
    Deadlines,
    Limits,
    Listener,
    Reply,
    error_reply,
    is_over_unix,
    read_body,
    request_uid,
)

NOBODY = 65534
BOUND = 10.0
needs_peers = pytest.mark.skipif(not peer.available(), reason="peer uids are known on Linux only")


class House:
    """A listener with a handler that does what the path says."""

    def __init__(self, **settings) -> None:
        self.guard = Guard(own_uid=settings.pop("own_uid", os.geteuid()))
        self.listener = Listener(self.handle, self.guard, **settings)
        self.port = 0
        self.clients: list[asyncio.StreamWriter] = []
        self.requests: list[str] = []
        self.waiting = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.go_on = asyncio.Event()
        self.body_seconds = BOUND

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(request.raw_path)
        request_id = request.headers.get("X-Request-ID", "made")
        try:
            body = await read_body(request, 1000, self.body_seconds)
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
async def house(**settings) -> AsyncIterator[House]:
    here = House(**settings)
    here.port = await here.listener.start_tcp("127.0.0.1", 0)
    try:
        yield here
    finally:
        await here.listener.stop(0.1)
        for writer in here.clients:
            await closed(writer)
        assert here.listener.open_connections == 0


@pytest.fixture
async def relay() -> AsyncIterator[House]:
    async with house() as here:
        yield here


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


async def test_a_reply(relay: House) -> None:
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
async def test_the_connection_header(relay: House, sent: bytes, connection: str | None) -> None:
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


async def test_head_has_the_length_and_no_body(relay: House) -> None:
    sent = get("/bytes/500", "Connection: close").replace(b"GET", b"HEAD", 1)
    _, fields, body = parsed(await relay.exchange(sent))
    assert (fields["Content-Length"], body) == ("500", b"")


@pytest.mark.parametrize("count", [0, 1, 64 * 1024, 64 * 1024 + 1, 3_000_000])
async def test_replies_of_any_size(relay: House, count: int) -> None:
    _, _, body = parsed(await relay.exchange(get(f"/bytes/{count}", "Connection: close")))
    assert body == b"x" * count


async def test_pipelined_requests_are_answered_in_order(relay: House) -> None:
    sent = b"".join(get(f"/{n}") for n in range(99)) + get("/99", "Connection: close")
    received = await relay.exchange(sent)
    assert received.count(b"HTTP/1.1 200 OK") == 100
    assert relay.requests == [f"/{n}" for n in range(100)]


async def test_a_half_closed_client_gets_all_its_replies(relay: House) -> None:
    received = await relay.exchange(get("/1") + get("/2") + get("/bytes/3000000"), shut=True)
    assert received.count(b"HTTP/1.1 200 OK") == 3
    assert received.endswith(b"x" * 3_000_000)
    assert b"Connection: close" in received


@needs_peers
async def test_a_half_closed_client_may_wait_for_its_reply(relay: House) -> None:
    reader, writer = await relay.connect()
    writer.write(get("/wait"))
    await within(relay.waiting.wait())
    writer.write_eof()
    relay.go_on.set()
    async with asyncio.timeout(BOUND):
        assert b"200 OK" in await reader.read()
    assert not relay.cancelled.is_set()
    await closed(writer)


async def test_a_client_that_leaves_ends_its_wait(relay: House) -> None:
    _, writer = await relay.connect()
    writer.write(get("/wait"))
    await within(relay.waiting.wait())
    await closed(writer)
    await within(relay.cancelled.wait())
    await until(lambda: relay.listener.open_connections == 0)


@needs_peers
async def test_a_half_closed_client_that_leaves_ends_its_wait() -> None:
    async with house(deadlines=Deadlines(look=0.02)) as relay:
        _, writer = await relay.connect()
        writer.write(get("/wait"))
        await within(relay.waiting.wait())
        writer.write_eof()
        await until(lambda: any(c._half_closed for c in relay.listener._door.present))
        assert not relay.cancelled.is_set()
        await closed(writer)
        await within(relay.cancelled.wait())


async def test_a_client_that_never_reads_is_dropped() -> None:
    async with house(deadlines=Deadlines(send=0.1)) as relay:
        with socket.create_connection(("127.0.0.1", relay.port)) as client:
            client.sendall(get("/bytes/30000000"))
            await until(lambda: relay.requests == ["/bytes/30000000"])
            await until(lambda: relay.listener.open_connections == 0)


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
    async with house(deadlines=Deadlines(linger=0.05)) as relay:
        received = await relay.exchange(sent)
        assert code_of(received) == "INVALID_REQUEST"
        assert parsed(received)[1]["Connection"] == "close"
        assert relay.requests == []
        assert relay.listener.counts.malformed == 1


async def test_garbage_behind_a_request_is_answered_after_it() -> None:
    async with house(deadlines=Deadlines(linger=0.05)) as relay:
        reader, writer = await relay.connect()
        writer.write(get("/first"))
        assert b"/first" in await reader.readuntil(b"}")
        writer.write(b"GARBAGE\r\n\r\n")
        assert code_of(await reader.read()) == "INVALID_REQUEST"
        await closed(writer)


@pytest.mark.parametrize("path", ["/fail", "/late", "/none"])
async def test_what_the_handler_lets_through(
    relay: House, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    received = await relay.exchange(get(path, "Connection: close"))
    assert parsed(received)[0] == 500
    assert code_of(received) == "INTERNAL_ERROR"
    assert b"secret" not in received
    (record,) = caplog.records
    assert record.exc_info
    error_id = json.loads(parsed(received)[2])["error"]["details"]["error_id"]
    assert record.fields["error_id"] == error_id  # type: ignore[attr-defined]


async def test_the_librarys_own_refusals_come_in_the_envelope(relay: House) -> None:
    received = await relay.exchange(get("/http", "Connection: close"))
    assert (parsed(received)[0], code_of(received)) == (400, "INVALID_REQUEST")


async def test_a_header_cannot_be_split(relay: House) -> None:
    assert b"Set-Cookie" not in await relay.exchange(get("/split"))


async def test_slow_headers() -> None:
    async with house(deadlines=Deadlines(head=0.1)) as relay:
        assert await relay.exchange(b"") == b""
        assert code_of(await relay.exchange(b"GET / HTTP/1.1\r\nHost")) == "REQUEST_TIMEOUT"
        assert relay.listener.counts.slow_head == 2


async def test_headers_that_trickle() -> None:
    async with house(deadlines=Deadlines(head=0.2)) as relay:
        reader, writer = await relay.connect()
        received = asyncio.create_task(reader.read())
        for at, _ in enumerate(iter(received.done, True)):
            writer.write(b"GET / HTTP/1.1\r\n" if at == 0 else b"X: 1\r\n")
            await asyncio.wait({received}, timeout=0.03)
            assert at < 100
        assert code_of(await received) == "REQUEST_TIMEOUT"
        await closed(writer)


async def test_slow_headers_on_a_used_connection() -> None:
    async with house(deadlines=Deadlines(head=0.1)) as relay:
        reader, writer = await relay.connect()
        writer.write(get())
        await reader.readuntil(b"}")
        writer.write(b"GET ")
        assert code_of(await reader.read()) == "REQUEST_TIMEOUT"
        await closed(writer)


async def test_an_idle_connection_outlives_the_header_deadline_only() -> None:
    async with house(deadlines=Deadlines(head=0.1, idle=0.4)) as relay:
        reader, writer = await relay.connect()
        writer.write(get())
        await reader.readuntil(b"}")
        begun = asyncio.get_running_loop().time()
        assert await reader.read() == b""
        assert 0.3 < asyncio.get_running_loop().time() - begun < BOUND
        await closed(writer)


def post(body: bytes, *headers: str) -> bytes:
    return get("/", *headers).replace(b"GET", b"POST", 1) + body


async def test_bodies(relay: House) -> None:
    whole = post(b"hello", "Content-Length: 5", "Connection: close")
    assert json.loads(parsed(await relay.exchange(whole))[2])["body"] == "hello"
    chunked = post(
        b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", "Transfer-Encoding: chunked", "Connection: close"
    )
    assert json.loads(parsed(await relay.exchange(chunked))[2])["body"] == "hello"


async def test_a_body_that_is_held_back_is_called_for(relay: House) -> None:
    reader, writer = await relay.connect()
    writer.write(post(b"", "Content-Length: 5", "Expect: 100-continue", "Connection: close"))
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"hello")
    assert json.loads(parsed(await reader.read())[2])["body"] == "hello"
    await closed(writer)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (post(b"", "Content-Length: 1001", "Expect: 100-continue"), "REQUEST_TOO_LARGE"),
        (post(b"x" * 5000, "Content-Length: 5000000"), "REQUEST_TOO_LARGE"),
        (
            post(b"fff\r\n" + b"x" * 4095 + b"\r\n", "Transfer-Encoding: chunked"),
            "REQUEST_TOO_LARGE",
        ),
        (post(b"half", "Content-Length: 10"), "REQUEST_TIMEOUT"),
        (post(b"zz\r\nbad", "Transfer-Encoding: chunked"), "INVALID_REQUEST"),
        (post(b"1\r\nbad\r\n", "Transfer-Encoding: chunked"), "INVALID_REQUEST"),
        (post(b"abc", "Content-Encoding: gzip", "Content-Length: 3"), "UNSUPPORTED_MEDIA_TYPE"),
    ],
    ids=["announced", "early", "chunked", "slow", "bad-chunk", "long-chunk", "gzip"],
)
async def test_bodies_that_are_refused(sent: bytes, code: str) -> None:
    async with house(deadlines=Deadlines(linger=0.05)) as relay:
        relay.body_seconds = 0.2
        received = await relay.exchange(sent)
        assert code_of(received) == code
        assert parsed(received)[1]["Connection"] == "close"


async def test_a_large_upload_still_sees_its_refusal(relay: House) -> None:
    body = b"x" * 20_000_000
    reader, writer = await relay.connect()
    writer.write(post(body, f"Content-Length: {len(body)}"))
    async with asyncio.timeout(BOUND):
        assert code_of(await reader.read()) == "REQUEST_TOO_LARGE"
    await closed(writer)


@needs_peers
async def test_send_and_close_at_once_is_refused(relay: House) -> None:
    # No await: the client is gone before the relay's loop gets to accept it.
    with socket.create_connection(("127.0.0.1", relay.port)) as client:
        client.sendall(get())
    await until(lambda: relay.listener.counts.refused_peer == 1)
    assert relay.requests == []


@needs_peers
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a second user")
async def test_another_user_is_refused(relay: House, caplog: pytest.LogCaptureFixture) -> None:
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


@pytest.mark.parametrize("limits", [Limits(connections=3), Limits(connections_per_uid=3)])
async def test_the_connection_cap(limits: Limits) -> None:
    async with house(limits=limits) as relay:
        kept = [await relay.connect() for _ in range(3)]
        await until(lambda: relay.listener.open_connections == 3)
        assert await relay.exchange(get()) == b""
        assert relay.listener.counts.refused_limit == 1
        for _, writer in kept:
            await closed(writer)
        await until(lambda: relay.listener.open_connections == 0)
        assert b"200 OK" in await relay.exchange(get("/", "Connection: close"))


async def over_unix(path: Path, sent: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(sent)
    received = await reader.read()
    await closed(writer)
    return received


async def test_unix(relay: House, tmp_path: Path) -> None:
    path = tmp_path / "relay.sock"
    await relay.listener.start_unix(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    told = json.loads(parsed(await over_unix(path, get("/", "Connection: close")))[2])
    assert (told["uid"], told["unix"]) == (os.geteuid(), True)
    with pytest.raises(OSError, match="another relay listens there"):
        await relay.listener.start_unix(path)
    await relay.listener.stop(0.1)
    assert not path.exists()


async def test_a_stale_socket_is_replaced_and_a_file_is_not(relay: House, tmp_path: Path) -> None:
    path = tmp_path / "relay.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(path))
    await relay.listener.start_unix(path)
    assert b"200 OK" in await over_unix(path, get("/", "Connection: close"))
    file = tmp_path / "file"
    file.write_text("precious")
    with pytest.raises(FileExistsError):
        await relay.listener.start_unix(file)
    assert file.read_text() == "precious"


async def test_stop_lets_a_reply_finish_and_ends_the_idle() -> None:
    async with house() as relay:
        idle_reader, idle_writer = await relay.connect()
        reader, writer = await relay.connect()
        writer.write(get("/wait"))
        await within(relay.waiting.wait())
        stopping = asyncio.create_task(relay.listener.stop(BOUND))
        assert await idle_reader.read() == b""
        assert not stopping.done()
        relay.go_on.set()
        assert b"200 OK" in await reader.read()
        await within(stopping)
        with pytest.raises(OSError):
            await relay.connect()
        await closed(writer)
        await closed(idle_writer)


async def test_nothing_is_left_after_stop(tmp_path: Path) -> None:
    async with house() as relay:  # what is opened once and kept: netlink, the resolver's thread
        await relay.exchange(get("/", "Connection: close"))
    before = len(os.listdir("/proc/self/fd"))
    for at in range(3):
        async with house() as relay:
            await relay.listener.start_unix(tmp_path / f"{at}.sock")
            clients = [await relay.connect() for _ in range(20)]
            for number, (_, writer) in enumerate(clients):
                writer.write(get("/wait") if number % 2 else b"GET / HT")
            await until(lambda: len(relay.requests) == 10)
            await relay.listener.stop(0.05)
            for _, writer in clients:
                await closed(writer)
    assert len(os.listdir("/proc/self/fd")) == before
    assert len(asyncio.all_tasks()) == 1
