"""Who may connect to the listener for debug servers, over real sockets."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress

import pytest

from debug_relay.protocol.system import peers as peer
from debug_relay.worker.debugger import admission
from debug_relay.worker.debugger.admission import MOST_WAITING, Admission
from tests.kit.intruder import NOBODY

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a second user")
Knock = Callable[..., Awaitable["Visitor"]]


class Visitor:
    def __init__(self, client: socket.socket, asking: asyncio.Task[bool]) -> None:
        self.client = client
        self.asking = asking


@asynccontextmanager
async def door(uids: Callable[[], Iterable[int]] = list) -> AsyncIterator[tuple[Admission, Knock]]:
    loop = asyncio.get_running_loop()
    here = Admission(uids)
    here.begin()
    came: list[Visitor] = []
    with socket.create_server(("127.0.0.1", 0), backlog=200) as listener:

        async def knock(said: bytes = b"", uid: int | None = None, leaves: bool = False) -> Visitor:
            os.seteuid(os.getuid() if uid is None else uid)
            try:
                client = socket.socket()
            finally:
                os.seteuid(os.getuid())
            client.connect(listener.getsockname())
            client.sendall(said)
            if leaves:
                client.close()
            accepted, _ = listener.accept()
            accepted.setblocking(False)

            async def ask() -> bool:
                with accepted:
                    return await here.admits(accepted)

            came.append(Visitor(client, loop.create_task(ask())))
            await asyncio.sleep(0)
            return came[-1]

        try:
            yield here, knock
        finally:
            for one in came:
                one.asking.cancel()
                one.client.close()
            await asyncio.gather(*(one.asking for one in came), return_exceptions=True)
            here.close()


async def test_the_token_may_come_in_pieces() -> None:
    async with door() as (here, knock):
        visitor = await knock()
        for letter in here.token:
            assert not visitor.asking.done()
            visitor.client.sendall(letter.encode())
            await asyncio.sleep(0.001)
        assert await visitor.asking


async def test_nothing_behind_the_token_is_read() -> None:
    async with door() as (here, knock):
        assert await (await knock(here.token.encode() + b"Content-Length: 2")).asking


@pytest.mark.parametrize("said", [b"x" * 64, b"Content-Length: 31000000\r\n\r\n" + b"x" * 40])
async def test_a_wrong_token_is_refused_at_once(said: bytes) -> None:
    async with door() as (_, knock):
        assert not await (await knock(said)).asking


async def test_who_leaves_in_the_middle_is_refused() -> None:
    async with door() as (here, knock):
        visitor = await knock(here.token[:30].encode())
        visitor.client.close()
        assert not await visitor.asking


async def test_who_says_too_little_is_refused_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "CHILD_WAITS_SECONDS", 0.1)
    async with door() as (here, knock):
        for said in (b"", here.token[:63].encode()):
            assert not await (await knock(said)).asking


async def test_those_who_wait_longest_make_room() -> None:
    async with door() as (here, knock):
        silent = [await knock(b"x") for _ in range(MOST_WAITING)]
        known = await knock()  # it sends its token a moment later than it connects
        with suppress(asyncio.CancelledError):
            await silent[0].asking
        assert silent[0].asking.cancelled()
        assert not any(one.asking.done() for one in silent[1:])
        silent += [await knock(b"x") for _ in range(MOST_WAITING - 1)]
        known.client.sendall(here.token.encode())
        assert await known.asking
        assert sum(not one.asking.done() for one in silent) == MOST_WAITING - 1


async def test_where_the_kernel_tells_nothing_the_token_decides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def ask(*_: object) -> bytes:
        raise OSError("Protocol not supported")

    monkeypatch.setattr(type(peer._diagnosis), "_ask", ask)
    async with door() as (here, knock):
        assert await (await knock(here.token.encode())).asking
        assert not await (await knock(b"x" * 64)).asking


async def test_who_has_closed_is_refused_although_the_token_is_there() -> None:
    async with door() as (here, knock):
        visitor = await knock(here.token.encode(), leaves=True)
        assert not await visitor.asking


@needs_root
async def test_another_user_is_refused_with_the_token_too() -> None:
    async with door() as (here, knock):
        assert not await (await knock(here.token.encode(), NOBODY)).asking


@needs_root
async def test_another_user_whom_the_program_runs_as_is_asked_for_the_token() -> None:
    async with door(lambda: [NOBODY]) as (here, knock):
        assert await (await knock(here.token.encode(), NOBODY)).asking
        assert not await (await knock(b"x" * 64, NOBODY)).asking


@needs_root
async def test_many_strangers_cost_few_looks_at_the_program() -> None:
    looks: list[int] = []

    def uids() -> list[int]:
        looks.append(1)
        return [NOBODY] if len(looks) > 1 else []  # it changes its user after the beginning

    async with door(uids) as (here, knock):
        said = here.token.encode()
        strangers = [await knock(said, uid) for uid in [NOBODY - 1] * 30 + [NOBODY]]
        # They take no place of those who may come.
        assert await (await knock(said)).asking
        answers = [await one.asking for one in strangers]
        assert answers == [False] * 30 + [True]
        assert len(looks) < 10  # two, unless the machine is so busy that they come slowly
