"""The listening sockets: their paths, and what is left behind when they stop."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kit.raw_http import BOUND, RawServer, closed, get, parsed, serve, until, within


@pytest.fixture
async def relay() -> AsyncIterator[RawServer]:
    async with serve() as here:
        yield here


async def over_unix(path: Path, sent: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(sent)
    received = await reader.read()
    await closed(writer)
    return received


async def test_unix(relay: RawServer, tmp_path: Path) -> None:
    path = tmp_path / "relay.sock"
    await relay.listener.start_unix(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    told = json.loads(parsed(await over_unix(path, get("/", "Connection: close")))[2])
    assert (told["uid"], told["unix"]) == (os.geteuid(), True)
    with pytest.raises(OSError, match="another relay listens there"):
        await relay.listener.start_unix(path)
    await relay.listener.stop(0.1)
    assert not path.exists()


async def test_a_stale_socket_is_replaced_and_a_file_is_not(
    relay: RawServer, tmp_path: Path
) -> None:
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
    async with serve() as relay:
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
    async with serve() as relay:  # what is opened once and kept: netlink, the resolver's thread
        await relay.exchange(get("/", "Connection: close"))
    before = len(os.listdir("/proc/self/fd"))
    for at in range(3):
        async with serve() as relay:
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
