"""The session: its state, its stops, and who waits for them.

The one writer of the state machine. Events of debug servers come in through a queue and are worked
off in order; what they mean for the session is decided here. How to talk to debug servers is
`dap_client`'s business, how programs are born and die is the target's.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from debug_relay.protocol import dap, state
from debug_relay.protocol.envelope import encode_json, timestamp_of
from debug_relay.protocol.errors import RelayError
from debug_relay.protocol.fields import Location
from debug_relay.protocol.output import Category, EventType
from debug_relay.protocol.refusals import wrong_state
from debug_relay.protocol.sessions import (
    EndReason,
    ExceptionInfo,
    Program,
    SessionState,
    StopReason,
    WorkerParams,
)
from debug_relay.protocol.state import Event, State
from debug_relay.worker.breakpoints import Breakpoints
from debug_relay.worker.connection import DebugServer
from debug_relay.worker.dap_client import Hub
from debug_relay.worker.interpreters import InterpreterBook
from debug_relay.worker.journal import EventLog, OutputEvents, OutputLog
from debug_relay.worker.record import Record
from debug_relay.worker.target import Target

log = logging.getLogger("debug_relay.worker")

_REASONS: Final[Mapping[str, StopReason]] = {
    "breakpoint": "breakpoint",
    "function breakpoint": "breakpoint",
    "data breakpoint": "breakpoint",
    "exception": "exception",
    "pause": "pause",
    "entry": "entry",
}


_TAIL_BYTES: Final = 4096


class Stop(Struct):
    """Where and why the program stands."""

    thread_id: int
    reason: StopReason
    location: Location | None
    exception: ExceptionInfo | None
    hit_breakpoints: list[str]


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
        elif self.target is not None and self.target.on_event(server, message):
            return
        else:
            self._queue.put_nowait((server, message))

    async def _consume(self) -> None:
        while True:
            server, message = await self._queue.get()
            handle = _EVENTS.get(message.event)
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

    async def _stopped(self, server: DebugServer, body: bytes) -> None:
        event = msgspec.json.decode(body, type=dap.StoppedBody)
        if self.state not in (State.RUNNING, State.PAUSED, State.LAUNCHING):
            return
        if event.thread_id is None:
            return
        thread_id = self.hub.thread_id(server, event.thread_id)
        self.hub.forget_stop()
        location = await self._place_of(thread_id)
        reason = _REASONS.get(event.reason, "step")
        exception = None
        if reason == "exception":
            exception = await self._exception(server, event.thread_id)
        if self.target is not None:
            self.target.flush_output()
        if self.state is State.LAUNCHING:
            self.advance(Event.READY)
        self.stop_id += 1
        hits = self.breakpoints.at(location) if location and reason == "breakpoint" else []
        self.stop = Stop(thread_id, reason, location, exception, hits)
        self.advance(Event.STOPPED)
        self.journal("stopped", self._stopped_event(event, self.stop))

    async def _place_of(self, thread_id: int) -> Location | None:
        """Where it stands; a stop is told even if the debugger cannot say where."""
        try:
            window = await self.hub.stack(thread_id, 0, 1)
        except RelayError as error:
            if not self.hub.servers:
                raise
            log.warning("stop.without_place", extra={"fields": {"error": error.message}})
            return None
        return _location(window.frames[0]) if window.frames else None

    def _stopped_event(self, event: dap.StoppedBody, stop: Stop) -> dict[str, Any]:
        description = f"Paused on {stop.reason}"
        body: dict[str, Any] = {
            "reason": event.reason,
            "description": description,
            "thread_id": stop.thread_id,
            "preserve_focus_hint": event.preserve_focus_hint,
            "text": None,
            "all_threads_stopped": event.all_threads_stopped,
            "hit_breakpoint_ids": stop.hit_breakpoints,
            "stop_id": self.stop_id,
            "current_location": stop.location,
        }
        if stop.exception is not None:
            short = stop.exception.type.rpartition(".")[2]
            body["text"] = f"{short}: {stop.exception.message}"
            body["exception_info"] = {
                "exception_id": short,
                "description": stop.exception.message,
                "break_mode": "always",
                "details": {
                    "type_name": short,
                    "full_type_name": stop.exception.type,
                    "message": stop.exception.message,
                    "stack_trace": stop.exception.traceback,
                },
            }
        return body

    async def _exception(self, server: DebugServer, dap_thread: int) -> ExceptionInfo:
        info = await server.request(
            "exceptionInfo",
            {"threadId": dap_thread},
            dap.ExceptionInfo,
            self.params.request_timeout,
        )
        details = info.details or dap.ExceptionDetails()
        name = details.type_name or info.exception_id.split(" ")[0]
        return ExceptionInfo(
            type=name,
            message=details.message if details.message is not None else info.description or "",
            traceback=details.stack_trace,
        )

    async def _continued(self, server: DebugServer, body: bytes) -> None:
        # Ours were told when they were sent; this is somebody else's.
        if self.state is State.PAUSED and self.stop is not None and self._foreign(server, body):
            self.resumed(None)

    def _foreign(self, server: DebugServer, body: bytes) -> bool:
        event = msgspec.json.decode(body, type=dap.ContinuedBody)
        return event.thread_id is None or (
            self.hub.thread_id(server, event.thread_id) == self.stop.thread_id  # type: ignore[union-attr]
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

    async def _thread(self, server: DebugServer, body: bytes) -> None:
        event = msgspec.json.decode(body, type=dap.ThreadBody)
        if event.reason == "exited":
            thread_id = self.hub.thread_ended(server, event.thread_id)
        else:
            thread_id = self.hub.thread_id(server, event.thread_id)
        if thread_id is not None:
            self.journal("thread", {"reason": event.reason, "thread_id": thread_id})

    async def _module(self, server: DebugServer, body: bytes) -> None:
        event = msgspec.json.decode(body, type=dap.ModuleBody)
        self.hub.module_loaded(event.module)
        self.journal(
            "module",
            {
                "reason": event.reason,
                "module": {
                    "id": event.module.id,
                    "name": event.module.name,
                    "path": event.module.path,
                    "is_optimized": False,
                    "is_user_code": "site-packages" not in (event.module.path or ""),
                    "version": None,
                },
            },
        )

    async def _debugger_output(self, server: DebugServer, body: bytes) -> None:
        event = msgspec.json.decode(body, type=dap.OutputBody)
        if event.output and event.category != "telemetry":
            self.take_output("console", event.output.encode("utf-8", "backslashreplace"))

    async def _subprocess(self, server: DebugServer, body: bytes) -> None:
        child = msgspec.json.decode(body)
        self.journal("subprocess", {"pid": child["pid"], "command": child["command"]})

    async def _log_point(self, server: DebugServer, body: bytes) -> None:
        row = msgspec.json.decode(body)
        text = row["text"]
        if row["skipped"]:
            text = f"({row['skipped']} lines of this log point were skipped)\n{text}"
        origin = {"source": row["path"], "line": row["line"]}
        self.take_output("console", (text + "\n").encode("utf-8", "backslashreplace"), origin)

    async def _breakpoint_error(self, server: DebugServer, body: bytes) -> None:
        event = msgspec.json.decode(body)
        self.breakpoints.failed(event["id"], event["error"])

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


_Handler = Callable[[Session, DebugServer, bytes], Awaitable[None]]
_EVENTS: Final[Mapping[str, _Handler]] = {
    "stopped": Session._stopped,
    "continued": Session._continued,
    "thread": Session._thread,
    "module": Session._module,
    "output": Session._debugger_output,
    "relaySubprocess": Session._subprocess,
    "relayError": Session._breakpoint_error,
    "relayLog": Session._log_point,
}


def _location(frame: dap.StackFrame) -> Location:
    path = frame.source.path if frame.source and frame.source.path else "<unknown>"
    return Location(path=path, line=frame.line, column=frame.column, function=frame.name)
