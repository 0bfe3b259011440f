"""A session as the supervisor has it: a mirror of its worker, and the way to it.

Nothing of a session lives here but copies. What can be answered from the mirror is; the rest is
forwarded as bytes, and the worker's answer comes back as bytes.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec

from debug_relay.protocol import state
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.sessions import Blueprint, Retired, SessionState, idle_limit
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.refusals import deleted_meanwhile, refusal_of
from debug_relay.protocol.state import Event, State
from debug_relay.protocol.wire.envelope import encode_json, timestamp_of
from debug_relay.protocol.wire.frames import Caller, NewsHead, ReplyHead, RequestHead
from debug_relay.supervisor.log import Log
from debug_relay.supervisor.output.pages import EventPages, OutputPages
from debug_relay.supervisor.sessions.background_tasks import BackgroundTasks
from debug_relay.supervisor.sessions.restore import failed, how_its_worker_ended
from debug_relay.supervisor.sessions.worker_link import Link, LinkLost, unanswered
from debug_relay.supervisor.workers.child_process import Child

_R = TypeVar("_R")
_log: Final = Log(__name__)
_MARGIN: Final = 2.0  # the worker keeps its deadline; one this much later counts as unresponsive
_HEARTBEAT: Final = 2.0
_SILENT: Final = 5.0
_SILENT_BEATS: Final = 3  # after so many nobody waits any more
_KNOWN_SILENT: Final = 2.0  # no need to wait long for one that is known not to answer
_TOUCH_EVERY: Final = 0.5
_ENDING: Final = 1.0
_HALF: Final = 0.5


class Owner(Protocol):
    """What a session needs of the registry."""

    background: BackgroundTasks

    async def awaken(self, session: Session) -> None: ...

    def worker_gone(self, session: Session) -> None: ...


class Session:
    """One session."""

    def __init__(self, id: str, folder: Path, owner: Owner) -> None:
        self.id = id
        self.folder = folder
        self.child: Child | None = None
        self.output = OutputPages(folder / "output.ring")
        self.events = EventPages(folder / "events.ring", folder / "outputs.ring")
        self.events_end = 0
        self.deleting = False
        self.left_by_relay = False  # which stops: the session may be the next one's
        self.unresponsive = False
        self.has_retired = False  # its worker, in order
        self.drawn: Blueprint | None = None  # by a worker that has retired
        self.runtime_seconds = 0.0
        self._asked = time.monotonic()
        self._owner = owner
        self._link: Link | None = None
        self._mirror: SessionState | None = None
        self._mirrored = time.monotonic()
        self._waiters: set[asyncio.Future[None]] = set()
        self._touched = time.monotonic()
        self._told_touch = 0.0
        self._watching: asyncio.Task[None] | None = None
        self._joining = asyncio.Lock()

    # -- the mirror

    @property
    def state(self) -> SessionState:
        assert self._mirror is not None
        return self._mirror

    def present(self) -> SessionState:
        """The state as it is shown now: expiry and warning run on by themselves."""
        shown = msgspec.structs.replace(self.state, worker_unresponsive=self.unresponsive)
        if shown.status is State.PAUSED:
            shown.held_seconds = round(shown.held_seconds + time.monotonic() - self._mirrored, 3)
        if self.child is None:
            shown.lease = None  # it went with the worker
        if shown.status not in state.COUNTED or self.child is None:
            shown.expires_at = None
            return shown
        shown.expires_at = None
        idle = idle_limit(shown.status, shown.config)
        if idle:
            left = idle - (time.monotonic() - self._touched)
            shown.expires_at = timestamp_of(time.time() + left)
            if left < idle * _HALF:
                shown.warning = f"Session will expire in {max(left, 0):.0f} seconds"
        return shown

    @property
    def sleeps(self) -> bool:
        """It came back, or its worker has retired: it has none until it needs one."""
        return self.child is None and self.state.status is not State.FAILED

    @property
    def is_asked(self) -> bool:
        return self._link is not None and self._link.is_asked

    def quiet_for(self) -> float:
        """Since its worker was asked for anything, or told of a change."""
        return time.monotonic() - max(self._asked, self._mirrored)

    def retire(self, answer: Retired) -> None:
        """Its worker goes, and leaves this here: secrets of the launch are in no file."""
        self.drawn = answer.blueprint
        self.runtime_seconds = answer.runtime_seconds
        self.has_retired = True

    def note_end(self) -> None:
        """Its worker has ended: at once, not when its watch looks."""
        if self.child is not None and self.child.ended:
            self._lost()

    def take_record(self, record: SessionState, events_end: int = 0) -> None:
        """What is known of a session whose worker is gone."""
        self._mirror = record
        self.events_end = max(self.events.last_seq(), events_end)

    def _news(self, news: NewsHead) -> None:
        self.events_end = news.events_end
        if news.state is not None:
            self._mirror = msgspec.json.decode(news.state, type=SessionState)
            self._mirrored = time.monotonic()
        self._wake()

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def begin_deletion(self) -> None:
        """Its id is given up: whoever waits for it is told so now, not when its worker is gone."""
        self.deleting = True
        if self._link is not None and not self.unresponsive:
            self._link.give_up()
        self._wake()

    def require_there(self) -> None:
        """Refuses to go on with, or to wait for, what is given up."""
        if self.deleting:
            raise self._given_up()

    def _given_up(self) -> RelayError:
        if not self.left_by_relay:
            return deleted_meanwhile(self.id)
        return RelayError(
            Code.SHUTTING_DOWN,
            "The relay is stopping",
            f"When one is up again, GET /api/v1/sessions/{self.id}/status tells how it went on.",
            session_id=self.id,
        )

    async def news_after(self, seq: int, timeout: float) -> bool:
        """Whether an event after `seq` came in time; ends early when none can come any more, so
        who asks again in a loop must look whether the session is still there."""
        deadline = time.monotonic() + timeout
        while self.events_end <= seq:
            left = deadline - time.monotonic()
            if left <= 0 or self.deleting or (self.child is None and not self.sleeps):
                return False
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                await asyncio.wait([waiter], timeout=min(left, self._touch_within()))
            finally:
                self._waiters.discard(waiter)
            self.touch()  # whoever waits for news uses the session
        return True

    def _touch_within(self) -> float:
        """Often enough that who waits for news never sees the session near its expiry, nor near
        the end of the time that its program may be held."""
        config = self.state.config
        bounds = config.timeout_minutes * 60, config.pause_budget
        return min([_HEARTBEAT, *(bound / 4 for bound in bounds if bound)])

    # -- the worker

    async def connect(self, child: Child, timeout: float) -> None:
        """Reach the worker and learn its state; raises OSError, LinkLost or TimeoutError.

        From now on the worker is watched, also when it could not be reached: it may be stopped.
        """
        self.child = child
        self._watching = asyncio.create_task(self._watch(child), name=f"watch {self.id}")
        await self._join(child, timeout)

    async def _join(self, child: Child, timeout: float) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout), self._joining:
            if self._link is not None and not self._link.lost:
                return  # the heartbeat and who connects may both have found none
            _, link = await loop.create_unix_connection(
                lambda: Link(self._news, self._link_lost, child.pid),
                str(self.folder / "worker.sock"),
            )
            try:
                hello = await link.hello
                if hello.session_id != self.id:
                    raise LinkLost(f"the worker has the session {hello.session_id}")
                self._link = link
                await link.ping(timeout)
            except BaseException:
                link.close()
                raise

    async def _watch(self, child: Child) -> None:
        """Heartbeat: a stopped worker looks alive to everything else."""
        heard, beats = time.monotonic(), 0
        while not await child.wait(_HEARTBEAT):
            try:
                if self._link is None or self._link.lost:
                    await self._join(child, _SILENT)
                else:
                    await self._link.ping(_SILENT)
                self._set_unresponsive(False)
                heard, beats = time.monotonic(), 0
            except (RelayError, TimeoutError):
                self._set_unresponsive(True)
                beats += 1
                if beats >= _SILENT_BEATS and self._link is not None:
                    self._link.tell_silence(time.monotonic() - heard)
            except (LinkLost, OSError):
                continue  # it may be ending: its pidfd tells
        self._lost()

    def _set_unresponsive(self, unresponsive: bool) -> None:
        if self.unresponsive != unresponsive:
            self.unresponsive = unresponsive
            _log.warning("worker.responsive", session_id=self.id, responsive=not unresponsive)

    def _link_lost(self) -> None:
        if self.child is not None and self.child.ended:
            self._lost()

    def _lost(self) -> None:
        """The worker is gone: what it left can still be read."""
        if self.child is None:
            return
        exit_status = self.child.exit_status
        self.child.close()
        self.child = None
        self.unresponsive = False  # who is gone is not silent
        if self._link is not None:
            self._link.close()
        if self._mirror is not None:
            self.events_end = max(self.events_end, self.events.last_seq())
            after = state.step(self._mirror.status, Event.WORKER_LOST)
            if after is State.FAILED and self._mirror.status is not State.FAILED:
                self.fail(self._mirror, exit_status)
        self._wake()
        self._owner.worker_gone(self)

    def fail(self, before: SessionState, exit_status: int | None) -> None:
        """Its worker has died before our eyes: the event that it could not write says so."""
        shown = self._mirror = failed(before, exit_status)
        body = {
            "status": shown.status,
            "previous_status": shown.previous_status,
            "end_reason": shown.end_reason,
            "worker_signal": shown.worker_signal,
            "worker_exit_code": shown.worker_exit_code,
            "error": how_its_worker_ended(shown),
        }
        seq = self.events_end + 1
        if self.events.append_last(seq, "session", body):
            self.events_end = seq

    def idle_for(self) -> float:
        return time.monotonic() - self._touched

    def touch(self) -> None:
        """Somebody uses the session; the worker's clock is told twice a second at most."""
        now = time.monotonic()
        self._touched = now
        if self._link is not None and now - self._told_touch >= _TOUCH_EVERY:
            self._told_touch = now
            self._link.touch()

    async def forward(
        self, head: RequestHead, payload: bytes, patience: float | None = None
    ) -> tuple[ReplyHead, bytes]:
        """The worker's answer to one request, and the only way to ask it for one.

        It has the deadline in the head, and is waited for a little longer, or as `patience` says.
        What callers ask for gives a session without a worker a new one; what the relay asks for
        itself does not.
        """
        timeout = head.deadline + _MARGIN if patience is None else patience
        if head.operation not in OPERATIONS:
            return await self._forward(head, payload, timeout)
        if self.sleeps:
            # It has to wake before anything is begun that would go on without its caller.
            woken = self._forward_awake(head, payload, timeout)
            return await self._owner.background.carry_out(woken)
        return await self._forward_awake(head, payload, timeout)

    async def ask(
        self,
        operation: str,
        params: msgspec.Struct,
        kind: type[_R],
        seconds: float,
        patience: float | None = None,
    ) -> _R:
        """What the relay itself asks of the worker, by a name that is not in the table."""
        relay = Caller("relay", os.getuid(), ())
        head = RequestHead(operation, secrets.token_hex(8), relay, seconds)
        reply, payload = await self.forward(head, encode_json(params), patience)
        if not reply.ok:
            raise refusal_of(payload)
        return msgspec.json.decode(payload, type=kind)

    async def _forward_awake(
        self, head: RequestHead, payload: bytes, timeout: float
    ) -> tuple[ReplyHead, bytes]:
        await self._owner.awaken(self)
        return await self._forward(head, payload, timeout)

    async def _forward(
        self, head: RequestHead, payload: bytes, timeout: float
    ) -> tuple[ReplyHead, bytes]:
        if self.child is None:
            self.require_there()
            raise self.crashed(head.operation)
        self._touched = self._asked = time.monotonic()
        if self.unresponsive:
            timeout = min(timeout, _KNOWN_SILENT)
        try:
            link = await self._reached(self.child, head.operation)
            frame = await link.request(head, payload, timeout)
        except (LinkLost, OSError):
            self.require_there()
            # The stream ends a moment before the process: who is told finds the state to match.
            if self.child is not None and not await self.child.wait(_ENDING):
                raise unanswered(head.operation, _ENDING) from None
            self._lost()
            raise self.crashed(head.operation) from None
        assert isinstance(frame.head, ReplyHead)
        return frame.head, frame.payload

    async def _reached(self, child: Child, operation: str) -> Link:
        """The link; made anew where there is none while the worker lives."""
        if self._link is None or self._link.lost:
            try:
                await self._join(child, _KNOWN_SILENT)
            except TimeoutError:
                raise unanswered(operation, _KNOWN_SILENT) from None
        assert self._link is not None
        return self._link

    def crashed(self, operation: str) -> RelayError:
        """Nobody is there any more to do `operation`."""
        base = f"/api/v1/sessions/{self.id}"
        if self._mirror is not None and self._mirror.status is State.TERMINATED:
            return RelayError(
                Code.INVALID_SESSION_STATE,
                f"Cannot {operation}: the program ended a while ago, and its worker has retired",
                f"GET {base}/output and GET {base} still answer. Create a new session to go on.",
                session_id=self.id,
                current_state=self._mirror.status.value,
            )
        shown = self._mirror
        return RelayError(
            Code.SESSION_CRASHED,
            f"Cannot {operation}: the session's worker process "
            + (how_its_worker_ended(shown) if shown else "is gone"),
            f"GET {base}/output still answers. DELETE {base} and create a new session.",
            session_id=self.id,
            status=shown.status.value if shown else None,
            worker_signal=shown.worker_signal if shown else None,
            worker_exit_code=shown.worker_exit_code if shown else None,
        )

    async def part(self) -> None:
        """Have nothing to do with the worker any more."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if self._link is not None:
            self._link.close()
        if self.child is not None:
            self.child.close()

    async def close(self) -> None:
        """Leave the worker alone: it goes on for the next supervisor."""
        self.deleting = True
        self._wake()
        await self.part()
