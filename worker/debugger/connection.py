"""One DAP connection to one debug server: requests with deadlines, events in order.

This module knows the wire and nothing of sessions. The debug server writes header and body
separately on a socket without TCP_NODELAY; unless the kernel acknowledges each at once, it waits
40 ms for every message. So TCP_QUICKACK is set after *every* receive: the kernel resets it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.wire.dap import DapError, Decoder, Message, encode_request
from debug_relay.worker.debugger.engine import Engine
from debug_relay.worker.debugger.no_answer import is_stopped_by_signal, no_answer
from debug_relay.worker.debugger.plain_engine import PlainEngine

_T = TypeVar("_T")

# The debugger's own thread in a program answers a look within this time, unless C code keeps the
# interpreter or a signal has stopped the program.
LOOK_SECONDS: Final = 2.0
# debugpy never answers some requests (stepBack, restartFrame, cancel, …). Only listed requests are
# sent.
ALLOWED: Final = frozenset(
    {
        "attach", "completions", "configurationDone", "continue", "disconnect", "evaluate",
        "exceptionInfo", "goto", "gotoTargets", "initialize", "modules", "next", "pause",
        "pydevdAuthorize", "pydevdSystemInfo", "relay", "scopes", "setBreakpoints",
        "setDebuggerProperty", "setExceptionBreakpoints", "setFunctionBreakpoints", "setVariable",
        "source", "stackTrace", "stepIn", "stepInTargets", "stepOut", "threads", "variables",
    }
)  # fmt: skip


class ServerLost(Exception):
    """The connection ended before the answer came."""


class DebugServer(asyncio.Protocol):
    """The debug server inside one process."""

    def __init__(
        self,
        on_event: Callable[[DebugServer, Message], None],
        on_lost: Callable[[DebugServer, str], None],
    ) -> None:
        self._on_event = on_event
        self._on_lost = on_lost
        self._decoder = Decoder()
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._seq = 0
        self.lost = False
        self.pid = 0
        self.is_child = False  # it is in a child of the program, which may end at any time
        self.engine: Engine = PlainEngine(self)  # until its probe has answered
        # Later changes of breakpoints and settings are sent to it. Before, it is in its handshake
        # and would refuse them; the handshake sends all of them.
        self.takes_changes = False
        self.resumes = 0  # how often we have resumed all its threads
        # One question at a time is put to its stopped threads, and no thread is resumed meanwhile.
        self.evaluating = asyncio.Lock()
        self.changing = asyncio.Lock()  # changes are sent to it one after another
        self.initialized = asyncio.Event()  # it takes breakpoints now
        self.has_greeted = False  # it has sent a DAP message
        self.why_lost = ""
        self.has_said_end = False  # it has reported that it ends

    # -- the wire

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._socket = transport.get_extra_info("socket")
        if self._socket is not None:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._acknowledge_at_once()

    def _acknowledge_at_once(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):  # the peer may be gone: the next read reports it
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def data_received(self, data: bytes) -> None:
        self._acknowledge_at_once()
        try:
            for message in self._decoder.feed(data):
                self._dispatch(message)
        except DapError as error:
            self.close(f"the debug server sent data that is not DAP: {error}")

    def _dispatch(self, message: Message) -> None:
        self.has_greeted = True
        if message.type == "response":
            future = self._waiting.pop(message.request_seq, None)
            if future is not None and not future.done():
                future.set_result(message)
        elif message.type == "event":
            if message.event == "initialized":
                self.initialized.set()
            elif message.event == "terminated":
                self.has_said_end = True
            self._on_event(self, message)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended(str(exc) if exc else "the debug server closed the connection")

    def close(self, why: str = "closed by the relay") -> None:
        if self._transport is not None:
            self._transport.abort()
        self._ended(why)

    def _ended(self, why: str) -> None:
        if self.lost:
            return
        self.lost = True
        self.why_lost = why
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(ServerLost(why))
                future.exception()  # marks it as read: perhaps no task waits for it any more
        self._on_lost(self, why)

    @property
    def local_pid(self) -> int | None:
        """None without the probe: the program may be on another machine, with pids of its own."""
        return self.pid if self.pid and self.engine.can.answer_requests else None

    # -- asking

    def post(self, command: str, arguments: Any = None) -> asyncio.Future[Message]:
        """Send a request. The future is its answer; a caller may ignore it."""
        if command not in ALLOWED:
            raise ValueError(f"this command is not sent to debugpy: {command}")
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        if self._transport is None or self.lost:
            future.set_exception(ServerLost("the debug server has disconnected"))
            future.exception()
            return future
        self._seq += 1
        self._waiting[self._seq] = future
        self._transport.write(encode_request(self._seq, command, arguments))
        return future

    async def request(self, command: str, arguments: Any, kind: type[_T], timeout: float) -> _T:
        """Send a request and wait; returns the answer's body as `kind`.

        A program that a signal has stopped gets `LOOK_SECONDS` only: it cannot answer.
        """
        future = self.post(command, arguments)
        waited = min(timeout, LOOK_SECONDS)
        await asyncio.wait([future], timeout=waited)
        pid = self.local_pid
        if not future.done() and not (pid and is_stopped_by_signal(pid)):
            await asyncio.wait([future], timeout=timeout - waited)
            waited = timeout
        if not future.done():
            raise no_answer(command, waited, pid)
        try:
            message = future.result()
        except ServerLost as error:
            raise RelayError(
                Code.DEBUGPY_ERROR,
                f"The connection to the debugger ended during {command}: {error}",
                f"{call_of('session-status')} shows whether the program has ended.",
                command=command,
            ) from None
        if not message.success:
            last = (message.message or "").strip().rpartition("\n")[2]  # a traceback's last line
            raise RelayError(
                Code.DEBUGPY_ERROR,
                f"The debugger refused {command}: {last}",
                command=command,
                debugger_message=message.message,
            )
        return _body(message, kind)


def _body(message: Message, kind: type[_T]) -> _T:
    raw = bytes(message.body)
    try:
        return msgspec.json.decode(b"{}" if raw in (b"", b"null") else raw, type=kind)
    except msgspec.MsgspecError as error:
        raise RelayError(
            Code.DEBUGPY_ERROR,
            f"The debugger answered {message.command} with an unexpected message: {error}",
            command=message.command,
        ) from None
