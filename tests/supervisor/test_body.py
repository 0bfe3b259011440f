"""Bodies over real sockets: what is taken whole, and what is refused how."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from debug_relay.supervisor.http.connection import Deadlines
from tests.kit.raw_http import BOUND, RawServer, closed, code_of, parsed, post, serve


@pytest.fixture
async def relay() -> AsyncIterator[RawServer]:
    async with serve() as here:
        yield here


async def test_bodies(relay: RawServer) -> None:
    whole = post(b"hello", "Content-Length: 5", "Connection: close")
    assert json.loads(parsed(await relay.exchange(whole))[2])["body"] == "hello"
    chunked = post(
        b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", "Transfer-Encoding: chunked", "Connection: close"
    )
    assert json.loads(parsed(await relay.exchange(chunked))[2])["body"] == "hello"


async def test_a_body_that_is_held_back_is_called_for(relay: RawServer) -> None:
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
    async with serve(deadlines=Deadlines(linger=0.05)) as relay:
        relay.body_seconds = 0.2
        received = await relay.exchange(sent)
        assert code_of(received) == code
        assert parsed(received)[1]["Connection"] == "close"


async def test_a_large_upload_still_sees_its_refusal(relay: RawServer) -> None:
    body = b"x" * 20_000_000
    reader, writer = await relay.connect()
    writer.write(post(body, f"Content-Length: {len(body)}"))
    async with asyncio.timeout(BOUND):
        assert code_of(await reader.read()) == "REQUEST_TOO_LARGE"
    await closed(writer)
