"""The stream to one worker: requests and answers, changes of its state, heartbeats.

This module knows frames, not sessions. Answers are matched by number, and of a frame only the head
is decoded.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.version import VERSION, WIRE
from debug_relay.protocol.wire import frames
from debug_relay.protocol.wire.frames import Frame, Hello, Kind, NewsHead, ReplyHead, RequestHead
from debug_relay.supervisor.log import Log

_log: Final = Log(__name__)
# Frames that wait in memory for a worker that does not read.
_MOST_UNREAD_BYTES: Final = 32 * 1024 * 1024


class LinkLost(Exception):
    """The worker has closed its end of the stream."""


class _Waiting(Struct):
    """A request that waits for its answer."""

    answer: asyncio.Future[Frame]
    due: float  # monotonic: until then the call itself may last
    what: str


class Link(asyncio.Protocol):
    def __init__(
        self, on_news: Callable[[NewsHead], None], on_lost: Callable[[], None], pid: int
    ) -> None:
        self._on_news = on_news
        self._on_lost = on_lost
        self._pid = pid
        self._decoder = frames.Decoder()
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, _Waiting] = {}
        self._next_id = 1
        self.hello: asyncio.Future[Hello] = asyncio.get_running_loop().create_future()
        self.lost = False

    # -- the wire

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send(frames.encode(Kind.HELLO, 0, Hello(WIRE, VERSION, self._pid)))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            _fail(one.answer)
        _fail(self.hello)
        self._on_lost()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._decoder.feed(data):
                self._take(frame)
        except frames.FrameError as error:
            _log.error("worker.stream_broken", error=str(error))
            if self._transport is not None:
                self._transport.abort()

    def _take(self, frame: Frame) -> None:
        if isinstance(frame.head, Hello):
            if not self.hello.done():
                self.hello.set_result(frame.head)
        elif isinstance(frame.head, NewsHead):
            self._on_news(frame.head)
        elif isinstance(frame.head, ReplyHead):
            # We take the state first: a caller must not see the answer with an older state.
            self._on_news(frame.head.news)
            waiting = self._waiting.pop(frame.id, None)
            if waiting is not None and not waiting.answer.done():
                waiting.answer.set_result(frame)

    def _send(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    # -- requests

    async def request(
        self, head: RequestHead, payload: bytes, timeout: float, lasts: float
    ) -> Frame:
        """The worker's answer. A caller that leaves cancels only its waiting. The call itself
        may last `lasts` seconds of `timeout`.
        """
        return await self._ask(Kind.REQUEST, head, payload, timeout, head.operation, lasts)

    async def ping(self, timeout: float) -> None:
        await self._ask(Kind.PING, None, b"", timeout, "ping", timeout)

    def cancel_all(self) -> None:
        """Fails all waiting requests. The worker continues those that it has begun."""
        for id, waiting in self._waiting.items():
            if not waiting.answer.done():
                self._send(frames.encode(Kind.CANCEL, id))
                _fail(waiting.answer)

    def fail_silent(self, seconds: float, *, all: bool) -> None:
        """Fails the requests to a silent worker that have waited longer than they may
        last, or all.
        """
        now = time.monotonic()
        for id, waiting in self._waiting.items():
            if not waiting.answer.done() and (all or waiting.due <= now):
                self._send(frames.encode(Kind.CANCEL, id))
                text = f"The session's worker has answered nothing for {seconds:.0f} s"
                waiting.answer.set_exception(_silent(text, waiting.what))

    @property
    def _unread(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    @property
    def has_requests(self) -> bool:
        """Whether a request waits for its answer."""
        return bool(self._waiting)

    def touch(self) -> None:
        self._send(frames.encode(Kind.TOUCH, 0))

    async def _ask(
        self,
        kind: Kind,
        head: RequestHead | None,
        payload: bytes,
        timeout: float,
        what: str,
        lasts: float,
    ) -> Frame:
        if self.lost:
            raise LinkLost("the worker has ended")
        if self._unread > _MOST_UNREAD_BYTES:
            raise _silent(
                f"The session's worker takes nothing: {self._unread} bytes wait for it", what
            )
        id = self._next_id
        self._next_id = self._next_id % 0xFFFF_FFFF + 1
        answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._waiting[id] = _Waiting(answer, time.monotonic() + lasts, what)
        self._send(frames.encode(kind, id, head, payload))
        try:
            async with asyncio.timeout(timeout):
                return await answer
        except asyncio.CancelledError:
            self._send(frames.encode(Kind.CANCEL, id))
            raise
        except TimeoutError:
            self._send(frames.encode(Kind.CANCEL, id))
            raise unanswered(what, timeout) from None
        finally:
            self._waiting.pop(id, None)


def unanswered(what: str, seconds: float) -> RelayError:
    return _silent(
        f"The session's worker did not answer {what} within {seconds:g} s", what, timeout=seconds
    )


def _silent(message: str, what: str, **details: float) -> RelayError:
    return RelayError(
        Code.WORKER_UNRESPONSIVE,
        message,
        f"{call_of('session-status')} still answers; {call_of('delete-session')}?force=true "
        "ends it if this lasts.",
        operation=what,
        **details,
    )


def _fail(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_exception(LinkLost("the worker closed its stream"))
        future.exception()  # marks it as retrieved, because its caller may have left
