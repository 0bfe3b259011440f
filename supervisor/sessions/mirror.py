"""The supervisor's side of a session: a mirror of the worker's public state, and the link to it.

The worker owns the session. Requests that the mirror can answer are answered here. All others are
forwarded as bytes, and the worker's answer is returned as bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import msgspec

from debug_relay.protocol import state
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.retired_session import HeldLease
from debug_relay.protocol.models.sessions import Blueprint, SessionState, idle_limit
from debug_relay.protocol.models.worker_messages import Retired
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.refusals import decode_error, deleted_meanwhile
from debug_relay.protocol.state import Event, State
from debug_relay.protocol.wire.envelope import encode_json, timestamp_of
from debug_relay.protocol.wire.frames import Caller, NewsHead, ReplyHead, RequestHead
from debug_relay.supervisor.log import Log
from debug_relay.supervisor.output.pages import EventPages, OutputPages
from debug_relay.supervisor.sessions import call_deadlines, held_lease
from debug_relay.supervisor.sessions.background_tasks import BackgroundTasks
from debug_relay.supervisor.sessions.kept_pipes import KeptPipes
from debug_relay.supervisor.sessions.restore import failed, how_its_worker_ended, without_worker
from debug_relay.supervisor.sessions.session_use import SessionUse
from debug_relay.supervisor.sessions.worker_connection import (
    HEARTBEAT_SECONDS,
    KNOWN_SILENT_SECONDS,
    WorkerConnection,
)
from debug_relay.supervisor.sessions.worker_link import LinkLost, unanswered
from debug_relay.supervisor.workers.child_process import Child

_R = TypeVar("_R")
_log: Final = Log(__name__)
_FRESH_SECONDS: Final = 0.1  # A worker has this long to send its state for a caller that reads it.
_ENDING_SECONDS: Final = 1.0  # A worker whose connection is lost has this long to be seen as ended.
_WARNING_SHARE: Final = 0.5  # The share of the idle timeout that is left when callers are warned.


class Owner(Protocol):
    """The part of the registry that a session needs."""

    background: BackgroundTasks

    async def wake(self, session: Session) -> None: ...

    def worker_gone(self, session: Session) -> None: ...


class Session:
    """One session, as the supervisor sees it."""

    def __init__(self, id: str, folder: Path, owner: Owner) -> None:
        self.id = id
        self.folder = folder
        self.worker = WorkerConnection(id, folder / "worker.sock", self._news, self._worker_ended)
        self.output = OutputPages(folder / "output.ring")
        self.events = EventPages(folder / "events.ring", folder / "outputs.ring")
        self.events_end = 0
        self.deleting = False
        self.left_by_relay = False  # the relay stops; the next one may adopt the session
        self.has_retired = False  # the worker ended because the session had
        self.blueprint: Blueprint | None = None  # of a worker that has retired
        self.lease: HeldLease | None = None  # of a retired worker; a living one has it itself
        self.runtime_seconds = 0.0
        self.kept_pipes = KeptPipes()
        self._last_request = time.monotonic()
        self._owner = owner
        self._mirror: SessionState | None = None
        self._mirrored = time.monotonic()
        self._waiters: set[asyncio.Future[None]] = set()
        self.listeners: set[Callable[[], None]] = set()  # called when there is more to read
        self.closed = False  # deleted, or left to the next relay
        self.use = SessionUse(id, self._report_use, self._touch_within)

    # -- the mirror

    @property
    def child(self) -> Child | None:
        """The worker's process, while it lives."""
        return self.worker.child

    @property
    def unresponsive(self) -> bool:
        return self.worker.unresponsive

    @property
    def state(self) -> SessionState:
        assert self._mirror is not None
        return self._mirror

    def present(self, with_token: bool = False) -> SessionState:
        """The public state at this moment; expiry and warning depend on the time. `with_token`: the
        caller may join the session.
        """
        shown = msgspec.structs.replace(self.state, worker_unresponsive=self.unresponsive)
        if self.child is None:
            shown.debugger = None  # the worker listened there
        elif shown.debugger is not None and not with_token:
            shown.debugger = msgspec.structs.replace(shown.debugger, token=None)
        if shown.status is State.PAUSED:
            shown.held_seconds = round(shown.held_seconds + time.monotonic() - self._mirrored, 3)
        if self.child is None and self.lease is None:
            shown.lease = None  # it has ended with the worker
        shown.expires_at = None
        if shown.status not in state.COUNTED or self.child is None:
            return shown
        idle = idle_limit(shown.status, shown.config)
        if idle:
            # The worker counts a joined IDE as use, as it counts calls.
            joined = shown.debugger is not None and shown.debugger.clients
            left = idle if joined else idle - self.use.idle_for()
            shown.expires_at = timestamp_of(time.time() + left)
            if left < idle * _WARNING_SHARE:
                shown.warning = f"Session will expire in {max(left, 0):.0f} seconds"
        return shown

    async def refresh(self) -> None:
        """Learn the state of this moment while a request may just have resumed the program.

        The worker reports a resume with the next change, or 10 ms later: most steps have stopped
        again by then. Only a caller that reads the state in between waits for the worker's answer.
        """
        link, shown = self.worker.link, self.state
        is_settled = shown.status is not State.PAUSED or not self.has_requests
        if link is None or self.unresponsive or is_settled:
            return
        # If it does not answer, the caller gets the state that is known.
        with contextlib.suppress(LinkLost, RelayError, TimeoutError):
            await link.ping(_FRESH_SECONDS)
        self.require_there()

    @property
    def sleeps(self) -> bool:
        """Whether the session has no worker, and the next call that needs one starts it."""
        return self.child is None and self.state.status is not State.FAILED

    @property
    def has_requests(self) -> bool:
        return self.worker.link is not None and self.worker.link.has_requests

    def unused_for(self) -> float:
        """Seconds since the last request to the worker, or the last change of its state."""
        return time.monotonic() - max(self._last_request, self._mirrored)

    def retire(self, answer: Retired) -> None:
        """Keeps what a retiring worker hands over: no file has the secrets of the launch."""
        self.blueprint = answer.blueprint
        self.runtime_seconds = answer.runtime_seconds
        self.has_retired = True

    def take_record(self, record: SessionState, events_end: int = 0) -> None:
        """Sets the last known state of a session whose worker has ended."""
        self._mirror = record
        self.events_end = max(self.events.last_seq(), events_end)

    def _news(self, news: NewsHead) -> None:
        self.events_end = news.events_end
        if news.state is not None:
            self._mirror = msgspec.json.decode(news.state, type=SessionState)
            self._mirrored = time.monotonic()
        self._notify_waiters()

    def _notify_waiters(self) -> None:
        for waiter in self._waiters:
            _wake(waiter)
        for listener in self.listeners:
            listener()

    def begin_deletion(self) -> None:
        """Refuses requests from now on. Waiting ones fail now, not at the worker's end."""
        self.deleting = True
        if self.worker.link is not None and not self.unresponsive:
            self.worker.link.cancel_all()
        self._notify_waiters()

    def end_streams(self) -> None:
        """Let streams read what is left, and end; the files may be removed afterwards."""
        self.closed = True
        self._notify_waiters()

    def require_there(self) -> None:
        """Refuses the request if the session is being deleted, or if the relay stops."""
        if self.deleting:
            raise self._gone()

    def _gone(self) -> RelayError:
        if not self.left_by_relay:
            return deleted_meanwhile(self.id)
        return RelayError(
            Code.SHUTTING_DOWN,
            "The relay is stopping",
            f"After its restart, GET /api/v1/sessions/{self.id}/status shows what happened.",
            session_id=self.id,
        )

    async def wait_for_events(self, seq: int, timeout: float) -> bool:
        """Whether an event after `seq` came in time. Returns early if no event can come any more: a
        loop around it must check that the session still exists.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        self.use.attend()
        try:
            while self.events_end <= seq:
                is_over = self.deleting or (self.child is None and not self.sleeps)
                if is_over or loop.time() >= deadline:
                    return False
                waiter: asyncio.Future[None] = loop.create_future()
                self._waiters.add(waiter)
                timer = loop.call_at(deadline, _wake, waiter)
                try:
                    await waiter
                finally:
                    timer.cancel()
                    self._waiters.discard(waiter)
            return True
        finally:
            self.use.leave()

    def _report_use(self) -> None:
        if self.worker.link is not None:
            self.worker.link.touch()

    def _touch_within(self) -> float:
        """The pause between two touches for a waiting caller: short enough that the session comes
        near neither its idle timeout nor the end of its pause budget.
        """
        config = self.state.config
        bounds = config.timeout_minutes * 60, config.pause_budget
        return min([HEARTBEAT_SECONDS, *(bound / 4 for bound in bounds if bound)])

    # -- the worker

    def _worker_ended(self, exit_status: int | None) -> None:
        """Its files can still be read."""
        if self._mirror is not None:
            self.events_end = max(self.events_end, self.events.last_seq())
            after = state.step(self._mirror.status, Event.WORKER_LOST)
            if after is State.FAILED and self._mirror.status is not State.FAILED:
                self.fail(self._mirror, exit_status)
        self._notify_waiters()
        self._owner.worker_gone(self)

    def fail(self, before: SessionState, exit_status: int | None) -> None:
        """Marks the session as failed, and writes the event that its worker could not write."""
        shown = self._mirror = failed(before, exit_status)
        body = {
            "status": shown.status,
            "previous_status": shown.previous_status,
            "end_reason": shown.end_reason,
            "worker_signal": shown.worker_signal,
            "worker_exit_code": shown.worker_exit_code,
            "error": how_its_worker_ended(shown),
        }
        self._append_event(body)

    def end_lapsed_lease(self) -> None:
        """Journal what the worker would have journaled, had it not retired before."""
        lease = self.lease
        if self.child is not None or lease is None or not held_lease.has_lapsed(lease):
            return
        self.lease = None
        try:
            held_lease.remove(self.folder)
        except OSError as error:
            _log.warning("lease.not_removed", session_id=self.id, error=str(error))
        self._append_event(
            {
                "status": self.state.status,
                "lease": None,
                "previous_holder": lease.holder,
                "message": "The lease has lapsed",
            }
        )
        self._notify_waiters()

    def _append_event(self, body: dict[str, Any]) -> None:
        """Append an event while no worker writes the ring."""
        seq = self.events_end + 1
        if self.events.append_last(seq, "session", body):
            self.events_end = seq

    async def forward(
        self,
        head: RequestHead,
        payload: bytes,
        patience: float | None = None,
        lasts: float = 0.0,
    ) -> tuple[ReplyHead, bytes]:
        """The worker's answer to one request; every request goes through here.

        The head has the worker's deadline. We wait a little longer, or as long as `patience` says.
        Once the worker is silent we wait no longer than `lasts`, which is how long the call itself
        may last. A caller's request starts a worker for a session that has none; a request of the
        relay itself does not.
        """
        timeout = call_deadlines.for_caller(head.deadline) if patience is None else patience
        if head.operation not in OPERATIONS:
            return await self._forward(head, payload, timeout, head.deadline)
        if self.sleeps:
            # We send the request even if the caller leaves while the worker starts: a worker that
            # lives already would do the request as well.
            woken = self._wake_and_forward(head, payload, timeout, lasts)
            return await self._owner.background.carry_out(woken)
        return await self._wake_and_forward(head, payload, timeout, lasts)

    async def ask(
        self,
        operation: str,
        params: msgspec.Struct,
        kind: type[_R],
        seconds: float,
        patience: float | None = None,
        caller: Caller | None = None,
    ) -> _R:
        """The worker's answer to a request of the relay itself, which is not in the table. `caller`
        is the caller that has caused it.
        """
        caller = caller or Caller("relay", os.getuid(), ())
        head = RequestHead(operation, secrets.token_hex(8), caller, seconds)
        reply, payload = await self.forward(head, encode_json(params), patience)
        if not reply.ok:
            raise decode_error(payload)
        return msgspec.json.decode(payload, type=kind)

    async def _wake_and_forward(
        self, head: RequestHead, payload: bytes, timeout: float, lasts: float
    ) -> tuple[ReplyHead, bytes]:
        await self._owner.wake(self)
        return await self._forward(head, payload, timeout, lasts)

    async def _forward(
        self, head: RequestHead, payload: bytes, timeout: float, lasts: float
    ) -> tuple[ReplyHead, bytes]:
        if self.child is None:
            self.require_there()
            raise self.crashed(head.operation)
        self.use.by_request()
        self._last_request = time.monotonic()
        if self.unresponsive:
            timeout = min(timeout, KNOWN_SILENT_SECONDS)
        try:
            link = await self.worker.reached(self.child, head.operation)
            frame = await link.request(head, payload, timeout, lasts)
        except (LinkLost, OSError):
            self.require_there()
            # The stream ends a moment before the process: we wait, so that state and refusal agree.
            if self.child is not None and not await self.child.wait(_ENDING_SECONDS):
                raise unanswered(head.operation, _ENDING_SECONDS) from None
            self.worker.lost()
            raise self.crashed(head.operation) from None
        assert isinstance(frame.head, ReplyHead)
        return frame.head, frame.payload

    def crashed(self, operation: str) -> RelayError:
        """The refusal of `operation` after the worker's end."""
        return without_worker(operation, self.id, self.folder, self._mirror)

    async def close(self) -> None:
        """Leaves the worker to the next supervisor."""
        self.deleting = True
        self.end_streams()
        self.kept_pipes.close()
        await self.worker.close()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def has_label(shown: SessionState, label: str | None) -> bool:
    """Whether the session has the label, `key=value`; without one every session fits."""
    if label is None:
        return True
    key, _, value = label.partition("=")
    return shown.config.labels.get(key) == value
