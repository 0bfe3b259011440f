"""The session: its state, its stops, and who waits for them.

The one writer of the state machine. Events of debug servers come in through a queue and are worked
off in order; what they mean for the session is decided here. How to talk to debug servers is
`dap_client`'s business, how programs are born and die is the target's.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from debug_relay.protocol import state
from debug_relay.protocol.errors import RelayError
from debug_relay.protocol.models.output_events import Category, EventType
from debug_relay.protocol.models.sessions import EndReason, Program, WorkerParams
from debug_relay.protocol.refusals import has_moved_on, stop_changed, wrong_state
from debug_relay.protocol.state import Event, State
from debug_relay.worker.breakpoints.exceptions import ExceptionPoints
from debug_relay.worker.breakpoints.log_points import LogPoints
from debug_relay.worker.breakpoints.manager import Breakpoints
from debug_relay.worker.breakpoints.project_breakpoints import SavedBreakpoints
from debug_relay.worker.debuggee.input_wait import Waiting
from debug_relay.worker.debuggee.target import Target
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.events import DebugEvents
from debug_relay.worker.debugger.hub import Hub
from debug_relay.worker.debugger.probe_client import Asking
from debug_relay.worker.debugger.run_to_line import Goal
from debug_relay.worker.debugger.stop import Stop
from debug_relay.worker.debugger.stopped_threads import Standing
from debug_relay.worker.inspection.stop_reports import Reports
from debug_relay.worker.inspection.watches import Watches
from debug_relay.worker.interpreter.cache import InterpreterBook
from debug_relay.worker.interpreter.resolve import choose
from debug_relay.worker.limits.watch import LimitWatch
from debug_relay.worker.session.callers import Actors
from debug_relay.worker.session.change_signal import News
from debug_relay.worker.session.idle_clock import IdleClock
from debug_relay.worker.session.lease import Lease
from debug_relay.worker.session.pause_budget import Held
from debug_relay.worker.session.public_state import Shown
from debug_relay.worker.session.record import Record
from debug_relay.worker.storage.disk import Disk
from debug_relay.worker.storage.journal import EventLog, OutputEvents, OutputLog
from debug_relay.worker.system.descendants import Ended
from debug_relay.worker.tracing.trace import Traces

log = logging.getLogger("debug_relay.worker")


_TAIL_BYTES: Final = 4096


class Session:
    def __init__(self, params: WorkerParams, announce: Callable[[], None]) -> None:
        self.params = params
        self.id = params.session_id
        self.name = params.name
        ended = params.ended
        self.state = State.CREATED if ended is None else ended.status
        self.hub = Hub(params.request_timeout)
        self.asking = Asking(self.hub)
        self.interpreters = InterpreterBook(Path(params.interpreters_dir))
        self.breakpoints = Breakpoints(self)
        self.exceptions = ExceptionPoints(self)
        self.target: Target | None = None
        self.program: Program | None = None
        # The fields of the last launch, for the next one, and what they lack.
        self.arguments: dict[str, Any] | None = None
        self.missing_env: list[str] = []
        self.missing_fields: list[str] = []
        self.waiting: Waiting | None = None  # for input
        self.questions = 0  # how often its programs have begun to
        self.restarting = False  # the program ends because another run of it is to follow
        self.stop: Stop | None = None  # of the threads that stand, the one that is looked at
        self.stop_id = params.stop_id
        self.standing = Standing(self.hub.process_of)
        self.actors = Actors()
        self.lease = Lease(self)
        self.limits = LimitWatch(self)
        self.printed_bytes = 0  # by its programs, all in all
        self.goal: Goal | None = None
        self.exit_code = None if ended is None else ended.exit_code
        self.signal = None if ended is None else ended.signal
        self.end_reason: EndReason | None = None if ended is None else ended.end_reason
        # Before the relay's stop or a reboot ended it.
        self.previous_status = params.previous_status
        self.reports = Reports(self)
        self.log_points = LogPoints(self)
        self.watches = Watches(self)
        self.traces = Traces(self)
        # Calls that change the run are taken one after the other.
        self.driving = asyncio.Lock()
        self.version = 1  # of the public state
        self.shown = Shown(self)
        self.news = News()
        self.tail = b""  # the last that was printed, for words about a failed launch
        self.idle = IdleClock(params)
        self.held = Held(0.0 if ended is None else ended.held_seconds)
        self._announce = announce
        self.interpreter = params.config.python_path
        self._lost = 0  # entries that the disk did not take, as told
        self.debug_events = DebugEvents(self)
        self._launched_at: float | None = None
        self.runtime_seconds = params.runtime_seconds
        folder = Path(params.session_dir)
        loop = asyncio.get_running_loop()
        self.events = EventLog(
            folder / "events.ring",
            folder / "outputs.ring",
            params.events_max,
            first_seq=params.first_seq,
            announce=announce,
        )
        self.output = OutputLog(folder / "output.ring", params.output_max_bytes)
        self.output_events = OutputEvents(self.events, loop.call_later, loop.time)
        self.disk = Disk()
        self.record = Record(self, self.disk)
        self.saved = SavedBreakpoints(self, self.disk)

    # -- the state

    def advance(self, event: Event) -> None:
        """The only place where the state changes."""
        before, self.state = self.state, state.step(self.state, event)
        log.debug(
            "session.state",
            extra={"fields": {"before": before.value, "event": event.value, "after": self.state}},
        )
        self.held.follow(self.state)
        if event is Event.STARTING:
            self._launched_at = time.monotonic()
            self.reports.printed_anew()
        if self.state in state.ENDED and self._launched_at is not None:
            self.runtime_seconds = time.monotonic() - self._launched_at
        if before is not self.state and self.state is not State.PAUSED:
            self.journal("session", {"status": self.state, "previous_status": before})
        if self.target is not None:
            self.target.state_changed()
        self.limits.follow(event)
        self.record.save_later()
        self.changed()

    def changed(self) -> None:
        """Something public is new: tell those who wait, and the supervisors."""
        self.version += 1
        self.news.tell()
        self._announce()

    def journal(self, type: EventType, body: Mapping[str, Any]) -> None:
        if type != "output":
            # What was printed before this happened is told before it.
            self.output_events.flush()
        caller = self.actors.of(type, body)
        self.events.append(type, body if caller is None else {**body, "caller": caller})
        self._note_losses()

    async def find_interpreter(self) -> None:
        """Which one the configuration means now: callers are shown that one."""
        config = self.params.config
        found: str | None
        try:
            choice = await asyncio.to_thread(
                choose,
                None if config.venv else config.python_path,
                config.venv,
                config.project_root,
                self.params.python_default,
            )
            found = choice.path
        except RelayError:
            found = config.python_path  # the launch will say what is wrong with it
        if config is self.params.config:  # else who has changed it looks as well
            self.interpreter = found
            self.changed()

    def disk_trouble(self) -> str | None:
        """What the disk did not take; the session goes on without."""
        lost = self.events.lost + self.output.lost
        parts = [f"{lost} entries of output and events"] if lost else []
        parts += [] if self.record.is_kept else ["the record that outlives the worker"]
        return f"the disk did not take {' and '.join(parts)}" if parts else None

    def _note_losses(self) -> None:
        lost = self.events.lost + self.output.lost
        if lost != self._lost:
            self._lost = lost
            self.changed()

    def require(self, operation: str, states: frozenset[State]) -> None:
        """409 unless the session is in one of these states; the worker owns the truth."""
        self.heed_stop(states)
        if self.state not in states:
            raise wrong_state(operation, self.state, states, self.id, self.program)
        # Here, where it is this call's turn: the lease may have gone to another meanwhile.
        self.lease.admit(operation, self.actors.present())
        self.actors.allowed(operation)

    def heed_stop(self, states: frozenset[State]) -> None:
        """409 if the present call knows another stop than the present one."""
        seen = self.actors.seen()
        reachable = self.state in states or self.state is State.RUNNING
        if seen is None or not reachable:
            return
        if has_moved_on(seen, self.state, self.stop_id, states):
            place = self.stop.location if self.stop else None
            raise stop_changed(seen, self.state, self.stop_id, place, self.id)

    # -- waiting

    async def until_stopped(
        self, after: int, timeout: float, abandoned: asyncio.Event, questions: int | None = None
    ) -> bool:
        """Whether the program stopped again, or ended, in time; who asks for input after so many
        questions is not waited for any longer."""

        def at_rest() -> bool:
            return self.state not in (State.RUNNING, State.LAUNCHING) and (
                self.stop_id > after or self.state is not State.PAUSED
            )

        def over() -> bool:
            return at_rest() or (questions is not None and self.asks_since(questions))

        await self.news.until(over, timeout, abandoned)
        return at_rest()

    # -- output

    def take_output(
        self, category: Category, data: bytes, origin: dict[str, Any] | None = None
    ) -> None:
        self.tail = (self.tail + data)[-_TAIL_BYTES:]
        if category != "console":
            self.printed_bytes += len(data)
        self.output.write(category, data, origin)
        self.output_events.add(category, data, origin.get("pid") if origin else None)
        self.reports.printed(category, data)
        self._note_losses()

    def asks_since(self, questions: int) -> bool:
        """Whether it has begun to wait for input since then, and goes on by nothing else: where
        there is another thread, that may stop as well."""
        return (
            self.waiting is not None
            and self.questions > questions
            and len(self.hub.thread_ids()) < 2
        )

    def wait_for_input(self, waiting: Waiting | None, anew: bool) -> None:
        """The program has begun to wait for input, or waits no longer."""
        if waiting is None and self.waiting is None:
            return
        self.waiting = waiting
        self.questions += waiting is not None and anew
        told = waiting if waiting is not None else Waiting(None)
        self.journal(
            "input",
            {
                "waiting_for_input": waiting is not None,
                "prompt": told.prompt,
                "warning": told.warning,
            },
        )
        self.changed()

    def say(self, text: str) -> None:
        """A line of the relay's own in the session's output."""
        self.take_output("console", (text.rstrip("\n") + "\n").encode())

    # -- what debug servers tell

    def resumed(self, server: DebugServer, thread_id: int | None = None) -> None:
        """All threads of a process run again, or this one: what was read there is of the past."""
        if self.stop is None:
            return
        if thread_id is None:
            self.hub.forget_stop(server)
            self.standing.process_goes_on(server)
        else:
            self.hub.forget_stop(thread_id)
            self.standing.go_on(thread_id)
        self._look_at_who_stands()
        self._tell_resumed(server, thread_id)

    def _tell_resumed(self, server: DebugServer, thread_id: int | None) -> None:
        self.journal(
            "continued",
            {
                "thread_id": thread_id,
                "all_threads_continued": thread_id is None,
                "pid": server.pid or None,
            },
        )

    def standing_threads(self) -> list[int]:
        return [thread_id for thread_id in self.hub.thread_ids() if thread_id in self.standing]

    def thread_ended(self, server: DebugServer, dap_id: int) -> int | None:
        """It was perhaps the last that stood."""
        thread_id = self.hub.thread_ended(server, dap_id)
        if thread_id is not None and self.stop is not None:
            self.standing.ended(thread_id)
            self._look_at_who_stands()
        return thread_id

    def _look_at_who_stands(self) -> None:
        assert self.stop is not None
        left = self.standing_threads()
        if not left:
            self.standing.clear()
            self.reports.over()
            self.stop = None
            self.advance(Event.RESUMED)
            return
        if self.stop.thread_id not in self.standing:
            self.stop = self.standing.latest() or self._halted(left[0])
            self.reports.turn_to(self.stop, self.hub.thread(self.stop.thread_id).server)
        self.changed()

    def _halted(self, thread_id: int) -> Stop:
        """One that only another's stop has halted: where, `run.look_around` finds out."""
        server = self.hub.thread(thread_id).server
        return Stop(
            thread_id, "pause", None, None, [], self.stop_id, server.pid or None, server.is_child
        )

    # -- the end of the program

    def program_ended(
        self,
        code: int | None,
        signal: str | None,
        reason: EndReason,
        swept: Sequence[Ended] = (),
    ) -> None:
        """The kernel has said so, or the target is gone. `swept` is what was ended with it."""
        if self.state in state.ENDED:
            return
        self.log_points.over()
        self.output.flush("stdout")
        self.output.flush("stderr")
        self.output_events.flush(final=True)
        self.exit_code, self.signal = code, signal
        self.end_reason = self.end_reason or reason
        self.reports.over()
        self.standing.clear()
        self.stop = self.goal = None
        self.hub.close()
        body: dict[str, Any] = {
            "exit_code": code,
            "signal": signal,
            "end_reason": self.end_reason,
            "restart": self.restarting,
            "swept": msgspec.to_builtins(swept),
        }
        if self.end_reason == "limit":
            body["limit"] = msgspec.to_builtins(self.limits.passed)
        if code:
            body["error"] = f"Process exited with code {code}" + (f" ({signal})" if signal else "")
        # The event first: whoever sees the state finds it already.
        self.journal("terminated", body)
        self.advance(Event.EXITED)
        self.record.save()

    async def end_children(self) -> None:
        """What an ended program has left running ends too."""
        swept = await self.target.end_children() if self.target is not None else []
        if swept:
            self.journal("process", {"reason": "swept", "swept": msgspec.to_builtins(swept)})

    def let_go(self) -> None:
        """The attached program runs on without us; the session is as it was before."""
        if self.state not in state.LIVE:
            return  # the session was ended while the program was being let go
        self.target = self.program = self.stop = self.goal = None
        self.standing.clear()
        self.reports.over()
        self.hub.forget_stops()
        self.advance(Event.DETACHED)
        self.record.save()

    def server_lost(self, server: DebugServer, why: str) -> None:
        """The debugger's connection is gone; whether the program is, the kernel tells."""
        stood = any(self.hub.process_of(id) is server for id in self.standing_threads())
        self.hub.forget(server)
        self.asking.server_gone(server)
        self.log_points.over(server)
        self.breakpoints.server_gone(server)
        self.standing.process_goes_on(server)
        if stood and self.stop is not None:
            self._look_at_who_stands()
            self._tell_resumed(server, None)
        self.changed()

    async def close(self) -> None:
        """Give everything back; the program must have ended or been let go."""
        self.lease.close()
        self.log_points.over()
        await self.limits.close()
        await self.debug_events.close()
        await self.traces.close()
        await self.breakpoints.close()
        await self.reports.close()
        self.hub.close()
        self.output_events.flush(final=True)
        self.output_events.close()
        self.output.close()
        self.events.close()
        await self.saved.close()
        await self.record.close()
        self.disk.close()
