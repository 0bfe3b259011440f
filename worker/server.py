"""The worker process: listens for supervisors, serves requests, ends when it should.

Supervisors come and go; losing one ends nothing. What ends a worker: `end-session`, an idle
session, or nobody to serve for `orphan_timeout`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import struct
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from debug_relay.protocol import frames
from debug_relay.protocol.breakpoints import SetBreakpoints
from debug_relay.protocol.envelope import encode_json
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.frames import Frame, Hello, Kind, NewsHead, ReplyHead, RequestHead
from debug_relay.protocol.operations import (
    DRAW_BLUEPRINT,
    END_SESSION,
    JUDGE_BREAKPOINTS,
    OPERATIONS,
)
from debug_relay.protocol.refusals import Problems
from debug_relay.protocol.sessions import EndReason, EndSession, SessionDeleted, WorkerParams
from debug_relay.protocol.state import COUNTED, ENDED, LIVE, State
from debug_relay.protocol.version import VERSION, WIRE, WIRE_ACCEPTED
from debug_relay.worker import blueprints, held, injection, run, sweep, wording
from debug_relay.worker.call import Call
from debug_relay.worker.disk import write_atomically
from debug_relay.worker.handlers import HANDLERS, check_table
from debug_relay.worker.session import Session

log = logging.getLogger("debug_relay.worker")

_CREDENTIALS: Final = struct.Struct("3i")
_TICK: Final = 1.0
_GRACE: Final = 2.0
_RETIRE_AFTER: Final = 300.0
_END_IS_NEAR: Final = 0.5
_LAST_ANSWERS: Final = 0.05
_DECODERS: Final = {name: msgspec.json.Decoder(OPERATIONS[name].params).decode for name in HANDLERS}


class Worker:
    """One session and those who ask about it."""

    def __init__(self, params: WorkerParams) -> None:
        check_table()
        self.params = params
        self.links: set[Link] = set()
        self.ended = asyncio.Event()
        self._pushing: asyncio.Handle | None = None
        self.session = Session(params, self._news)
        self._alone_since = time.monotonic()
        self._warned = False
        self._socket = Path(params.session_dir) / "worker.sock"
        self._ending: asyncio.Task[SessionDeleted] | None = None

    # -- life

    async def serve(self, ready: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        before = os.umask(0o177)
        try:
            server = await loop.create_unix_server(lambda: Link(self), str(self._socket))
        finally:
            os.umask(before)
        await self.session.find_interpreter()
        await self._write_identity()
        await blueprints.take_over(self.session)
        self.session.record.save()
        await self.session.record.settled()
        ready()
        watch = asyncio.create_task(self._watch(), name="clock")
        try:
            await self.ended.wait()
            await self._answer_all()
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            server.close()
            for link in list(self.links):
                link.close()
            self._socket.unlink(missing_ok=True)

    async def _answer_all(self) -> None:
        """Whoever waits, also for the end itself, is told before the streams close."""
        answering = [task for link in self.links for task in link.answering]
        if answering:
            await asyncio.wait(answering, timeout=_LAST_ANSWERS)

    async def _write_identity(self) -> None:
        """Who this worker is: a pid alone is nobody."""
        identity = {
            "session_id": self.session.id,
            "pid": os.getpid(),
            "start_ticks": start_ticks(),
            "boot_id": boot_id(),
            "wire": WIRE,
            "version": VERSION,
        }
        path = Path(self.params.session_dir) / "identity.json"
        await self.session.disk.run(partial(write_atomically, path, encode_json(identity)))

    async def _watch(self) -> None:
        """Idle, orphaned: counted by the monotonic clock, so no clock change ends a session."""
        while True:
            await asyncio.sleep(_TICK)
            if any(link.busy for link in self.links):
                self.session.idle.touch()
            self._collect()
            self._warn()
            if held.is_too_long(self.session):
                await self._let_run()
            reason = self._overdue()
            if reason is not None:
                log.info("worker.ending", extra={"fields": {"reason": reason}})
                await self.end(None, reason)

    def _collect(self) -> None:
        """Orphans of the program's are given to this worker; ended, they are its to collect."""
        target = self.session.target
        if target is not None and not target.attached:
            sweep.collect_adopted(target.pid)

    async def _let_run(self) -> None:
        try:
            await held.run_on(self.session)
        except RelayError as error:
            # It ended meanwhile, or holds its interpreter: the next look tells.
            log.warning("program.held", extra={"fields": {"error": error.message}})

    def _overdue(self) -> EndReason | None:
        session, now = self.session, time.monotonic()
        orphan = self.params.orphan_timeout
        if not self.links and orphan and now - self._alone_since > orphan:
            return "shutdown"
        if session.state is State.TERMINATED and session.idle.idle_for() > _RETIRE_AFTER:
            # What it printed and how it ended can be read without us.
            return "terminated"
        limit = self._idle_limit()
        if limit and session.state in COUNTED and session.idle.idle_for() > limit:
            return "timeout"
        return None

    def _idle_limit(self) -> float:
        """Seconds of idleness that end the session; 0 is never."""
        session = self.session
        limit = session.idle.idle_timeout
        if session.state is State.RUNNING and limit:
            # A launched program that runs puts expiry off, up to max_lifetime.
            longest = session.params.config.max_lifetime
            return max(limit, longest) if longest else 0.0
        return limit

    def _warn(self) -> None:
        """Once, half-way to expiry."""
        session, limit = self.session, self._idle_limit()
        idle = session.idle.idle_for()
        if not limit or session.state not in COUNTED or idle < limit / 2:
            self._warned = False
        elif not self._warned:
            self._warned = True
            warning = f"Session will expire in {limit - idle:.0f} seconds"
            body = {"status": session.state, "warning": warning}
            session.journal("session", {**body, "expires_at": session.idle.expires_at()})

    async def end(self, terminate: bool | None, reason: EndReason) -> SessionDeleted:
        """End the session, once; whoever asks again gets the same answer."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(terminate, reason), name="ending")
        return await asyncio.shield(self._ending)

    async def _end(self, terminate: bool | None, reason: EndReason) -> SessionDeleted:
        session = self.session
        if session.state in COUNTED:
            if reason == "shutdown":
                # It comes back with the next relay, even if it does not end in time.
                session.previous_status = session.state
            session.end_reason = reason
            session.record.save()
        # Nobody's server dies because an agent tidied up: what was attached to is let go.
        if session.target is not None and session.target.attached and not terminate:
            if session.state in LIVE:
                session.end_reason = "timeout" if reason == "timeout" else "detached"
                await session.target.detach()
        else:
            await run.end_program(session, _GRACE)
        if session.state in COUNTED:
            session.program_ended(None, None, reason)
        await session.end_children()
        if session.target is not None:
            await session.target.release()
        answer = SessionDeleted(
            session_id=session.id,
            final_status=session.state,
            exit_code=session.exit_code,
            runtime_seconds=round(session.runtime_seconds, 3),
        )
        session.record.save()
        await session.record.settled()
        self.ended.set()
        return answer

    # -- supervisors

    def joined(self, link: Link) -> None:
        self.links.add(link)

    def left(self, link: Link) -> None:
        self.links.discard(link)
        self._alone_since = time.monotonic()

    def _news(self) -> None:
        """Something changed: tell all supervisors in one go, after this turn of the loop."""
        if self._pushing is None:
            self._pushing = asyncio.get_running_loop().call_soon(self._push)

    def _push(self) -> None:
        self._pushing = None
        for link in self.links:
            link.push()


class Link(asyncio.Protocol):
    """One supervisor."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._decoder = frames.Decoder()
        self._transport: asyncio.Transport | None = None
        self._told = 0  # the version of the public state that this supervisor has
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
        for _, abandoned in self._running.values():
            abandoned.set()

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
                self._running[frame.id][1].set()
        elif frame.kind is Kind.TOUCH:
            self._worker.session.idle.touch()
        elif frame.kind is Kind.PING:
            self._send(frames.encode(Kind.REPLY, frame.id, ReplyHead(self._position(), 200)))

    def _greet(self, hello: Any) -> None:
        worker = self._worker
        session = worker.session
        answer = Hello(WIRE, VERSION, os.getpid(), session.id, start_ticks())
        self._send(frames.encode(Kind.HELLO, 0, answer))
        if not isinstance(hello, Hello) or hello.wire not in WIRE_ACCEPTED:
            self.close()
            return
        self._greeted = True
        worker.joined(self)
        self.push()

    # -- news

    def _position(self) -> NewsHead:
        session = self._worker.session
        news = NewsHead(session.events.end, session.output.end)
        if self._told != session.version:
            self._told = session.version
            news.state = session.encoded()
        return news

    def push(self) -> None:
        if self._greeted:
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
                body, content_type = await wording.written(session, head.format, answer)
            reply = ReplyHead(self._position(), self._status(head.operation), content_type)
        except RelayError as error:
            body, content_type = wording.refused(head.format, error)
            reply = ReplyHead(self._position(), error.status, content_type, ok=False)
        except TimeoutError:
            late = RelayError(
                Code.DEBUGPY_TIMEOUT,
                f"{head.operation} took longer than {head.deadline:g} s",
                operation=head.operation,
            )
            body, content_type = wording.refused(head.format, late)
            reply = ReplyHead(self._position(), late.status, content_type, ok=False)
        except Exception as error:
            body, content_type = wording.refused(head.format, self._mistake(head, error))
            reply = ReplyHead(self._position(), 500, content_type, ok=False)
        self._send(frames.encode(Kind.REPLY, id, reply, body))

    def _status(self, operation: str) -> int:
        return OPERATIONS[operation].status if operation in OPERATIONS else 200

    async def _answer(
        self, head: RequestHead, payload: bytes, abandoned: asyncio.Event
    ) -> msgspec.Struct:
        if head.operation == END_SESSION:
            wanted = msgspec.json.decode(payload, type=EndSession)
            return await self._worker.end(wanted.terminate_debuggee, wanted.reason)
        if head.operation == DRAW_BLUEPRINT:
            return blueprints.draw(self._worker.session)
        if head.operation == JUDGE_BREAKPOINTS:
            batch = msgspec.json.decode(payload, type=SetBreakpoints)
            return Problems(await self._worker.session.breakpoints.problems(batch))
        handler = HANDLERS.get(head.operation)
        if handler is None:
            raise RelayError(
                Code.NOT_IMPLEMENTED, f"This worker ({VERSION}) has no {head.operation}"
            )
        params = _DECODERS[head.operation](payload)
        session = self._worker.session
        before = session.state, session.stop_id
        try:
            name = head.caller.name
            with (
                session.actors.acting(name, head.if_stop),
                session.lease.kept(head.operation, name),
            ):
                session.heed_stop(OPERATIONS[head.operation].states)
                result = await handler(Call(session, head, abandoned), params)
            # What the caller is told has happened is on disk, if the disk takes it.
            await session.record.settled()
            return result
        except RelayError as error:
            moved = before != (session.state, session.stop_id)
            looking = before[0] is State.PAUSED and not OPERATIONS[head.operation].drives
            if error.code is Code.DEBUGPY_ERROR and looking and moved:
                # The connection is lost a moment before the kernel tells of the end.
                if not session.hub.servers:
                    await session.until(lambda: session.state in ENDED, _END_IS_NEAR, abandoned)
                raise _moved_on(head.operation, session) from error
            raise

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
            log_file=str(Path(self._worker.params.session_dir) / "worker.log"),
        )


def _moved_on(operation: str, session: Session) -> RelayError:
    """The program ended, or another caller let it run, while this one looked at it."""
    if session.state in ENDED:
        how = f"by {session.signal}" if session.signal else f"with exit code {session.exit_code}"
        return RelayError(
            Code.INVALID_SESSION_STATE,
            f"The program has ended during {operation}, {how}",
            f"GET /api/v1/sessions/{session.id}/output shows what it has printed; "
            f"POST /api/v1/sessions/{session.id}/restart runs it again.",
            current_state=session.state.value,
            required_state="paused",
            exit_code=session.exit_code,
            signal=session.signal,
        )
    return RelayError(
        Code.INVALID_SESSION_STATE,
        f"The program has run on during {operation}",
        "GET …/status, and ask again at the present stop.",
        current_state=session.state.value,
        required_state="paused",
        stop_id=session.stop_id,
    )


def start_ticks() -> int:
    """When this process was born, by the kernel: with the pid it names just one process."""
    with open("/proc/self/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


def boot_id() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


async def main(params: WorkerParams, ready: Callable[[], None]) -> None:
    worker = Worker(params)
    try:
        await worker.serve(ready)
    finally:
        await worker.session.close()
        target = worker.session.target
        if target is None or not target.keeps_children:
            # gdb at work is left to end by itself: to signal it would kill the program it is in.
            sweep.end_descendants(time.monotonic() + 5.0, injection.under_way())
