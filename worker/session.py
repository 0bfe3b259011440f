"""The session: its state, its stops, and who waits for them.

The one writer of the state machine. Events of debug servers come in through a queue and are worked
off in order; what they mean for the session is decided here. How to talk to debug servers is
`dap_client`'s business, how programs are born and die is the target's.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from debug_relay.protocol import dap, state
from debug_relay.protocol.envelope import encode_json, timestamp_of
from debug_relay.protocol.errors import RelayError
from debug_relay.protocol.output import Category, EventType
from debug_relay.protocol.refusals import wrong_state
from debug_relay.protocol.sessions import (
    EndReason,
    Program,
    SessionState,
    WorkerParams,
)
from debug_relay.protocol.state import Event, State
from debug_relay.worker.breakpoints import Breakpoints
from debug_relay.worker.connection import DebugServer
from debug_relay.worker.dap_client import Hub
from debug_relay.worker.debug_events import EVENTS
from debug_relay.worker.interpreters import InterpreterBook
from debug_relay.worker.journal import EventLog, OutputEvents, OutputLog
from debug_relay.worker.record import Record
from debug_relay.worker.stop import Stop
from debug_relay.worker.target import Target

log = logging.getLogger("debug_relay.worker")


_TAIL_BYTES: Final = 4096


class Session:
    def __init__(self, params: WorkerParams, announce: Callable[[], None]) -> None:
        self.params = params
        self.id = params.session_id
        self.name = params.name
        self.state = State.CREATED
        self.hub = Hub(params.request_timeout)
        self.interpreters = InterpreterBook()
        self.breakpoints = Breakpoints(self)
        self.exception_filters: list[str] = ["uncaught"]
        self.target: Target | None = None
        self.program: Program | None = None
        self.stop: Stop | None = None
        self.stop_id = 0
        self.exit_code: int | None = None
        self.signal: str | None = None
        self.end_reason: EndReason | None = None
        # Calls that change the run are taken one after the other.
        self.driving = asyncio.Lock()
        self.version = 1  # of the public state
        self.tail = b""  # the last that was printed, for words about a failed launch
        self.idle = IdleClock(params)
        self._announce = announce
        self._encoded: tuple[int, bytes] = (0, b"")
        self._waiters: set[asyncio.Future[None]] = set()
        self._queue: asyncio.Queue[tuple[DebugServer, dap.Message]] = asyncio.Queue()
        self._consumer = asyncio.create_task(self._consume(), name="debug events")
        self._launched_at: float | None = None
        self.runtime_seconds = 0.0
        folder = Path(params.session_dir)
        loop = asyncio.get_running_loop()
        self.events = EventLog(
            folder / "events.ring", folder / "outputs.ring", params.events_max, announce=announce
        )
        self.output = OutputLog(folder / "output.ring", params.output_max_bytes)
        self.output_events = OutputEvents(self.events, loop.call_later, loop.time)
        self.record = Record(self)

    # -- the state

    def advance(self, event: Event) -> None:
        """The only place where the state changes."""
        before, self.state = self.state, state.step(self.state, event)
        log.info(
            "session.state",
            extra={"fields": {"before": before.value, "event": event.value, "after": self.state}},
        )
        if event is Event.STARTING:
            self._launched_at = time.monotonic()
        if self.state in state.ENDED and self._launched_at is not None:
            self.runtime_seconds = time.monotonic() - self._launched_at
        if before is not self.state and self.state is not State.PAUSED:
            self.journal("session", {"status": self.state, "previous_status": before})
        self.changed()

    def changed(self) -> None:
        """Something public is new: tell those who wait, and the supervisors."""
        self.version += 1
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._announce()

    def public(self) -> SessionState:
        stop = self.stop
        return SessionState(
            session_id=self.id,
            name=self.name,
            status=self.state,
            stop_reason=stop.reason if stop else None,
            stop_id=self.stop_id,
            created_at=self.params.created_at,
            expires_at=self.idle.expires_at(),
            config=self.params.config,
            program=self.program,
            current_location=stop.location if stop else None,
            stopped_thread_id=stop.thread_id if stop else None,
            stopped_threads=self.hub.thread_ids() if stop else [],
            breakpoint_count=len(self.breakpoints),
            exception=stop.exception if stop else None,
            exit_code=self.exit_code,
            signal=self.signal,
            end_reason=self.end_reason,
            created_by=self.params.created_by,
        )

    def encoded(self) -> bytes:
        """The public state as JSON, encoded once a version."""
        if self._encoded[0] != self.version:
            self._encoded = (self.version, encode_json(self.public()))
        return self._encoded[1]

    def journal(self, type: EventType, body: Mapping[str, Any]) -> None:
        if type != "output":
            # What was printed before this happened is told before it.
            self.output_events.flush()
        self.events.append(type, body)

    def require(self, operation: str, states: frozenset[State]) -> None:
        """409 unless the session is in one of these states; the worker owns the truth."""
        if self.state not in states:
            raise wrong_state(operation, self.state, states, self.id)

    # -- waiting

    async def until(
        self, condition: Callable[[], bool], timeout: float, abandoned: asyncio.Event
    ) -> bool:
        """Whether the condition came true in time; gives up at once when nobody waits any more."""
        deadline = time.monotonic() + timeout
        given_up = asyncio.ensure_future(abandoned.wait())
        try:
            while not condition():
                left = deadline - time.monotonic()
                if left <= 0 or abandoned.is_set():
                    return False
                news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiters.add(news)
                try:
                    await asyncio.wait(
                        (news, given_up), timeout=left, return_when=asyncio.FIRST_COMPLETED
                    )
                finally:
                    self._waiters.discard(news)
            return True
        finally:
            given_up.cancel()

    async def until_stopped(self, after: int, timeout: float, abandoned: asyncio.Event) -> bool:
        """Whether the program stopped again, or ended, in time."""

        def at_rest() -> bool:
            return self.state not in (State.RUNNING, State.LAUNCHING) and (
                self.stop_id > after or self.state is not State.PAUSED
            )

        return await self.until(at_rest, timeout, abandoned)

    # -- output

    def take_output(
        self, category: Category, data: bytes, origin: dict[str, Any] | None = None
    ) -> None:
        self.tail = (self.tail + data)[-_TAIL_BYTES:]
        self.output.write(category, data, origin)
        self.output_events.add(category, data)

    def say(self, text: str) -> None:
        """A line of the relay's own in the session's output."""
        self.take_output("console", (text.rstrip("\n") + "\n").encode())

    # -- what debug servers tell

    def on_debug_event(self, server: DebugServer, message: dap.Message) -> None:
        if message.event == "relayAnswer":
            # Whoever works off the queue may be waiting for just this.
            self.hub.probe_answered(msgspec.json.decode(bytes(message.body)))
        elif message.event == "relayHits":
            # The last ones come with the program's end: the queue would find the server lost.
            self.breakpoints.counted(msgspec.json.decode(bytes(message.body)))
        elif self.target is not None and self.target.on_event(server, message):
            return
        else:
            self._queue.put_nowait((server, message))

    async def _consume(self) -> None:
        while True:
            server, message = await self._queue.get()
            handle = EVENTS.get(message.event)
            if handle is None or server.lost:
                continue
            try:
                await handle(self, server, bytes(message.body))
            except RelayError as error:
                # The program ended meanwhile, or the debugger did: its own event follows.
                log.warning(
                    "debug.event_failed",
                    extra={"fields": {"event": message.event, "error": error.message}},
                )
            except msgspec.MsgspecError as error:
                log.error(
                    "debug.event_strange",
                    extra={"fields": {"event": message.event, "error": str(error)}},
                )

    def resumed(self, thread_id: int | None) -> None:
        """The program runs again: what was read at the stop is of the past."""
        if self.stop is None:
            return
        self.hub.forget_stop()
        self.stop = None
        self.advance(Event.RESUMED)
        self.journal(
            "continued", {"thread_id": thread_id, "all_threads_continued": thread_id is None}
        )

    # -- the end of the program

    def program_ended(self, code: int | None, signal: str | None, reason: EndReason) -> None:
        """The kernel has said so, or the target is gone."""
        if self.state in state.ENDED:
            return
        self.output.flush("stdout")
        self.output.flush("stderr")
        self.output_events.flush(final=True)
        self.exit_code, self.signal = code, signal
        self.end_reason = self.end_reason or reason
        self.stop = None
        self.hub.close()
        body: dict[str, Any] = {
            "exit_code": code,
            "signal": signal,
            "end_reason": self.end_reason,
            "restart": False,
        }
        if code:
            body["error"] = f"Process exited with code {code}" + (f" ({signal})" if signal else "")
        # The event first: whoever sees the state finds it already.
        self.journal("terminated", body)
        self.advance(Event.EXITED)
        self.record.save()

    def let_go(self) -> None:
        """The attached program runs on without us; the session is as it was before."""
        self.target = self.program = self.stop = None
        self.hub.forget_stop()
        self.advance(Event.DETACHED)
        self.record.save()

    def server_lost(self, server: DebugServer, why: str) -> None:
        """The debugger's connection is gone; whether the program is, the kernel tells."""
        self.hub.forget(server)
        if self.state is State.PAUSED and not self.hub.servers:
            self.resumed(None)
        self.changed()

    async def close(self) -> None:
        """Give everything back; the program must have ended or been let go."""
        self._consumer.cancel()
        await asyncio.gather(self._consumer, return_exceptions=True)
        self.hub.close()
        self.output_events.flush(final=True)
        self.output_events.close()
        self.output.close()
        self.events.close()


class IdleClock:
    """When nobody has used the session for too long. Monotonic; wall time only for display."""

    def __init__(self, params: WorkerParams) -> None:
        self.idle_timeout = params.idle_timeout
        self._touched = time.monotonic()

    def touch(self) -> None:
        self._touched = time.monotonic()

    def idle_for(self) -> float:
        return time.monotonic() - self._touched

    def expires_at(self) -> str | None:
        if not self.idle_timeout:
            return None
        return timestamp_of(time.time() + self.idle_timeout - self.idle_for())
