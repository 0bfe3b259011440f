"""The worker's end of one supervisor's connection: requests in, replies and state frames out."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
import traceback
from collections.abc import Iterator
from typing import Any, Final, Protocol

import msgspec

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models import inspection
from debug_relay.protocol.models.breakpoints import SetBreakpoints
from debug_relay.protocol.models.fields import Empty
from debug_relay.protocol.models.sessions import EndReason, SessionDeleted
from debug_relay.protocol.models.worker_messages import EndSession, Retire, Retired
from debug_relay.protocol.operations import (
    END_SESSION,
    GET_BLUEPRINT,
    OPERATIONS,
    RETIRE,
    SAVE_STOP_REPORTS,
    VERIFY_BREAKPOINTS,
)
from debug_relay.protocol.refusals import Problems
from debug_relay.protocol.rendering import text
from debug_relay.protocol.rendering.results import render
from debug_relay.protocol.rendering.stop import excerpt_lines
from debug_relay.protocol.system.procfs import start_ticks
from debug_relay.protocol.version import VERSION, WIRE, WIRE_ACCEPTED
from debug_relay.protocol.wire import frames
from debug_relay.protocol.wire.envelope import encode_json, error_body
from debug_relay.protocol.wire.frames import (
    Caller,
    Frame,
    Hello,
    Kind,
    NewsHead,
    ReplyHead,
    RequestHead,
)
from debug_relay.worker.operations.call import Call
from debug_relay.worker.operations.handlers import HANDLERS
from debug_relay.worker.operations.perform import perform
from debug_relay.worker.session.session import Session
from debug_relay.worker.source.excerpts import excerpt

log = logging.getLogger("debug_relay.worker")

_CREDENTIALS: Final = struct.Struct("3i")
_JSON: Final = "application/json"
_LINES_AROUND: Final = 2  # Lines of source on each side of a frame's line in text replies.
_DECODERS: Final = {name: msgspec.json.Decoder(OPERATIONS[name].params).decode for name in HANDLERS}


class Worker(Protocol):
    """The worker as a supervisor's connection sees it."""

    session: Session

    def joined(self, link: SupervisorLink) -> None: ...

    def left(self, link: SupervisorLink) -> None: ...

    async def retire(self, pipes_taken: bool) -> Retired: ...

    async def end(
        self, terminate: bool | None, reason: EndReason, caller: Caller | None
    ) -> SessionDeleted: ...


class SupervisorLink(asyncio.Protocol):
    """The connection of one supervisor."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._decoder = frames.Decoder()
        self._transport: asyncio.Transport | None = None
        self._sent = (0, 0, 0)  # the last of `_now` that this supervisor has
        self._greeted = False
        self._running: dict[int, tuple[asyncio.Task[None], asyncio.Event]] = {}

    # -- the wire

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("socket")
        raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, uid, _ = _CREDENTIALS.unpack(raw)
        if uid not in (os.getuid(), 0):
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._worker.left(self)
        for _, call in self._running.values():
            self._worker.session.publication.abandon(call)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    @property
    def busy(self) -> bool:
        """Whether a request is being served."""
        return bool(self._running)

    @property
    def answering(self) -> list[asyncio.Task[None]]:
        return [task for task, _ in self._running.values()]

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._decoder.feed(data):
                self._take(frame)
        except frames.FrameError as error:
            log.error("link.broken", extra={"fields": {"error": str(error)}})
            if self._transport is not None:
                self._transport.abort()

    def _send(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _take(self, frame: Frame) -> None:
        if frame.kind is Kind.HELLO:
            self._greet(frame.head)
        elif not self._greeted:
            raise frames.FrameError(f"{frame.kind.name} before HELLO")
        elif frame.kind is Kind.REQUEST and isinstance(frame.head, RequestHead):
            self._start(frame.id, frame.head, frame.payload)
        elif frame.kind is Kind.CANCEL:
            if frame.id in self._running:
                self._worker.session.publication.abandon(self._running[frame.id][1])
        elif frame.kind is Kind.TOUCH:
            self._worker.session.idle.touch()
        elif frame.kind is Kind.PING:
            self._send(frames.encode(Kind.REPLY, frame.id, ReplyHead(self._position(), 200)))

    def _greet(self, hello: Any) -> None:
        worker = self._worker
        session = worker.session
        answer = Hello(
            WIRE, VERSION, os.getpid(), session.settings.id, start_ticks(os.getpid()) or 0
        )
        self._send(frames.encode(Kind.HELLO, 0, answer))
        if not isinstance(hello, Hello) or hello.wire not in WIRE_ACCEPTED:
            self.close()
            return
        self._greeted = True
        worker.joined(self)
        self.push()

    # -- positions and the public state

    def _now(self) -> tuple[int, int, int]:
        """The version of the public state, and the ends of events and output."""
        session = self._worker.session
        return session.publication.version, session.log.events.end, session.log.output.end

    def _position(self) -> NewsHead:
        before, self._sent = self._sent, self._now()
        version, events_end, output_end = self._sent
        news = NewsHead(events_end, output_end)
        if version != before[0]:
            news.state = self._worker.session.public_state.encoded()
        return news

    def push(self) -> None:
        """Send what is new; a reply may have brought it already."""
        if self._greeted and self._sent != self._now():
            self._send(frames.encode(Kind.NEWS, 0, self._position()))

    # -- requests

    def _start(self, id: int, head: RequestHead, payload: bytes) -> None:
        abandoned = asyncio.Event()
        self._worker.session.idle.touch()
        task = asyncio.create_task(self._serve(id, head, payload, abandoned), name=head.operation)
        self._running[id] = (task, abandoned)
        task.add_done_callback(lambda _: self._running.pop(id, None))

    async def _serve(
        self, id: int, head: RequestHead, payload: bytes, abandoned: asyncio.Event
    ) -> None:
        try:
            async with asyncio.timeout(head.deadline):
                answer = await self._answer(head, payload, abandoned)
                session = self._worker.session
                body, content_type = await _written(session, head.format, answer)
            reply = ReplyHead(self._position(), self._status(head.operation), content_type)
        except RelayError as error:
            body, content_type = _refused(
                head.format, error.for_session(self._worker.session.settings.id)
            )
            reply = ReplyHead(self._position(), error.status, content_type, ok=False)
        except TimeoutError:
            late = RelayError(
                Code.DEBUGPY_TIMEOUT,
                f"{head.operation} took longer than {head.deadline:g} s",
                operation=head.operation,
            )
            body, content_type = _refused(head.format, late)
            reply = ReplyHead(self._position(), late.status, content_type, ok=False)
        except Exception as error:
            body, content_type = _refused(head.format, self._mistake(head, error))
            reply = ReplyHead(self._position(), 500, content_type, ok=False)
        self._send(frames.encode(Kind.REPLY, id, reply, body))

    def _status(self, operation: str) -> int:
        return OPERATIONS[operation].status if operation in OPERATIONS else 200

    async def _answer(
        self, head: RequestHead, payload: bytes, abandoned: asyncio.Event
    ) -> msgspec.Struct:
        if head.operation == END_SESSION:
            wanted = msgspec.json.decode(payload, type=EndSession)
            # An end for another reason, such as a shutdown, is nobody's.
            caller = head.caller if wanted.reason == "terminated" else None
            return await self._worker.end(wanted.terminate_debuggee, wanted.reason, caller)
        if head.operation == SAVE_STOP_REPORTS:
            await self._worker.session.reports.written()
            return Empty()
        if head.operation == RETIRE:
            retire = msgspec.json.decode(payload, type=Retire)
            return await self._worker.retire(retire.pipes_taken)
        if head.operation == GET_BLUEPRINT:
            return self._worker.session.blueprints.draw()
        if head.operation == VERIFY_BREAKPOINTS:
            batch = msgspec.json.decode(payload, type=SetBreakpoints)
            return Problems(await self._worker.session.breakpoints.problems(batch))
        decode = _DECODERS.get(head.operation)
        if decode is None:
            raise _of_another_version(f"which has no {head.operation}")
        try:
            params = decode(payload)
        except msgspec.ValidationError as error:
            # The supervisor has checked the parameters by its own version's models.
            raise _of_another_version(f"whose {head.operation} differs: {error}") from None
        return await perform(Call(self._worker.session, head, abandoned), params)

    def _mistake(self, head: RequestHead, error: Exception) -> RelayError:
        error_id = os.urandom(6).hex()
        log.error(
            "request.failed",
            extra={
                "fields": {
                    "error_id": error_id,
                    "operation": head.operation,
                    "request_id": head.request_id,
                    "traceback": traceback.format_exc(),
                }
            },
        )
        return RelayError(
            Code.INTERNAL_ERROR,
            f"{head.operation} failed inside the relay: {type(error).__name__}",
            error_id=error_id,
            exception=type(error).__name__,
            operation=head.operation,
            log_file=str(self._worker.session.settings.folder / "worker.log"),
        )


def _of_another_version(what: str) -> RelayError:
    return RelayError(
        Code.INVALID_SESSION_STATE,
        f"The worker of this session is of version {VERSION}, {what}",
        "Leave out what is new, or create a new session with POST /api/v1/sessions: its worker is "
        "of the relay's version.",
    )


# -- replies as bytes


async def _written(session: Session, format: str, answer: Any) -> tuple[bytes, str]:
    """The reply's body in the requested format, and its content type."""
    if format not in text.CONTENT_TYPES:
        return encode_json(answer), _JSON
    lines = list(render(answer))
    if isinstance(answer, inspection.Stack) and answer.frames:
        lines += await _top(session, answer.frames[0])
    return text.encode_lines(lines, format), text.CONTENT_TYPES[format]


def _refused(format: str, error: RelayError) -> tuple[bytes, str]:
    if format in text.CONTENT_TYPES:
        return text.encode_lines(text.render_error(error), format), text.CONTENT_TYPES[format]
    return error_body(error), _JSON


async def _top(session: Session, frame: inspection.Frame) -> Iterator[text.Line]:
    """The lines around the top frame's place, which a stack shows as text."""
    lines = await session.sources.lines(frame.source.path)
    shown = excerpt(frame.source.path, lines, frame.line, _LINES_AROUND) if lines else None
    return excerpt_lines(shown.lines) if shown is not None else iter(())
