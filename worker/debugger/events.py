"""What the events of debug servers mean for the session.

Worked off one after the other, in the order in which they came. What must not wait in that queue
(answers of the probe, the target's own starting) never gets here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.errors import RelayError
from debug_relay.protocol.models.fields import Location
from debug_relay.protocol.models.sessions import StopReason
from debug_relay.protocol.secrets import shown_command
from debug_relay.protocol.state import Event, State
from debug_relay.protocol.wire import dap
from debug_relay.worker.breakpoints.functions import FoundFunction
from debug_relay.worker.debugger import run_to_line as run_to
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.stop import Stop
from debug_relay.worker.inspection import exceptions as exception_report

if TYPE_CHECKING:
    from debug_relay.worker.session.session import Session

log = logging.getLogger("debug_relay.worker")

_REASONS: Final[Mapping[str, StopReason]] = {
    "breakpoint": "breakpoint",
    "function breakpoint": "breakpoint",
    "data breakpoint": "breakpoint",
    "exception": "exception",
    "pause": "pause",
    "entry": "entry",
}

# Said by pydevd, up to 3.11. The probe traces the thread again (`rearming`), and tells that itself.
_UNTRUE: Final = "Debugging will be disabled for this thread ("
_ALIVE: Final = frozenset({State.RUNNING, State.PAUSED, State.LAUNCHING})


async def _stopped(session: Session, server: DebugServer, body: bytes) -> None:
    event = msgspec.json.decode(body, type=dap.StoppedBody)
    if session.state not in _ALIVE:
        return
    if event.thread_id is None:
        return
    sent_on = server.sent_on
    thread_id = session.hub.thread_id(server, event.thread_id)
    session.hub.forget_stop(thread_id)
    location = _told_place(session, event)
    if location is None:
        location = await _place_of(session, thread_id)
    reason = _REASONS.get(event.reason, "step")
    if reason == "breakpoint" and session.traces.stops_the_program:
        reason = "step"
    at_goal = await run_to.at_stop(session, server, event, thread_id)
    exception = None
    if reason == "exception":
        exception = await exception_report.at_stop(session, server, event)
        if exception.type == "SystemExit" and not server.has_probe:
            # Debugpy alone takes an exit with a code for a crash.
            server.post("continue", {"threadId": event.thread_id})
            return
    if session.target is not None:
        session.target.flush_output()
    hits = []
    if location and reason == "breakpoint":
        hits = await session.breakpoints.hit(location, _told_hits(server, event))
        if not server.has_probe:
            session.breakpoints.count(hits)
        if at_goal and not hits:
            reason = "step"
    lines = await session.reports.sources.lines(location.path) if location else None
    if session.state not in _ALIVE or server.lost:
        return  # it ended, or this process of it, while it was asked where it stands
    if server.sent_on != sent_on:
        return  # its thread was sent on with all the others, before anybody knew that it stands
    if session.state is State.LAUNCHING:
        session.advance(Event.READY)
    session.stop_id += 1
    session.stop = Stop(
        thread_id,
        reason,
        location,
        exception,
        hits,
        session.stop_id,
        server.pid or None,
        server.is_child,
    )
    session.standing.stopped(session.stop, event.all_threads_stopped)
    session.reports.begin(session.stop, session.stop_id, server, lines)
    session.advance(Event.STOPPED)
    if at_goal and not hits:
        event.reason = "run-to"
    session.journal("stopped", _stopped_event(session, event, session.stop))


def _told_hits(server: DebugServer, event: dap.StoppedBody) -> list[str] | None:
    """With the probe, pydevd's numbers of breakpoints are those of our ids."""
    if not server.has_probe or event.hit_breakpoint_ids is None:
        return None
    return [f"bp_{number}" for number in event.hit_breakpoint_ids]


def _told_place(session: Session, event: dap.StoppedBody) -> Location | None:
    if event.relay_place is None:
        return None
    name, path, line, module = event.relay_place
    if module is not None and session.hub.module_of(path) is None:
        _tell_module(session, dap.Module(id=0, name=module, path=path))
    return Location(path=path, line=line, column=1, function=name)


async def _place_of(session: Session, thread_id: int) -> Location | None:
    """Where it stands; a stop is told even if the debugger cannot say where."""
    try:
        window = await session.hub.stack(thread_id, 0, 1)
    except RelayError as error:
        if session.hub.process_of(thread_id) is None:
            raise
        log.warning("stop.without_place", extra={"fields": {"error": error.message}})
        return None
    return _location(window.frames[0]) if window.frames else None


def _stopped_event(session: Session, event: dap.StoppedBody, stop: Stop) -> dict[str, Any]:
    description = f"Paused on {stop.reason}"
    body: dict[str, Any] = {
        "reason": event.reason,
        "description": description,
        "thread_id": stop.thread_id,
        "pid": stop.pid,
        "preserve_focus_hint": event.preserve_focus_hint,
        "text": None,
        "all_threads_stopped": event.all_threads_stopped,
        "hit_breakpoint_ids": stop.hit_breakpoints,
        "stop_id": session.stop_id,
        "current_location": stop.location,
    }
    if stop.exception is not None:
        short, message = stop.exception.type.rpartition(".")[2], stop.exception.message
        body["text"] = f"{short}: {message}" if message else short
        body["exception_info"] = {
            "exception_id": short,
            "description": message,
            "break_mode": stop.exception.break_mode,
            "details": {
                "type_name": short,
                "full_type_name": stop.exception.full_type_name,
                "message": message,
                "stack_trace": stop.exception.traceback,
            },
        }
    return body


async def _continued(session: Session, server: DebugServer, body: bytes) -> None:
    # Ours were told when they were sent; this is somebody else's.
    if (
        session.state is State.PAUSED
        and session.stop is not None
        and _foreign(session, server, body)
    ):
        session.resumed(server, _gone_on(session, server, body))


def _foreign(session: Session, server: DebugServer, body: bytes) -> bool:
    """Whether the thread that stopped was sent on."""
    event = msgspec.json.decode(body, type=dap.ContinuedBody)
    if session.stop is None or event.thread_id is None:
        return True
    thread_id = session.hub.thread_id(server, event.thread_id)
    if not event.all_threads_continued:
        return session.standing.of(thread_id) is not None
    return thread_id == session.stop.thread_id or session.standing.of(thread_id) is not None


def _gone_on(session: Session, server: DebugServer, body: bytes) -> int | None:
    """Which thread was sent on alone; None for all of them."""
    event = msgspec.json.decode(body, type=dap.ContinuedBody)
    if event.all_threads_continued or event.thread_id is None:
        return None
    return session.hub.thread_id(server, event.thread_id)


async def _thread(session: Session, server: DebugServer, body: bytes) -> None:
    event = msgspec.json.decode(body, type=dap.ThreadBody)
    if event.reason == "exited":
        known = session.hub.thread_id(server, event.thread_id)
        if session.standing.of(known) is not None:
            # pydevd looks for dead threads while one is just beginning (3.8): it stands there.
            return
        thread_id = session.thread_ended(server, event.thread_id)
    else:
        thread_id = session.hub.thread_id(server, event.thread_id)
        session.standing.born(thread_id)
    if thread_id is not None:
        session.journal(
            "thread", {"reason": event.reason, "thread_id": thread_id, "pid": server.pid or None}
        )


async def _module(session: Session, server: DebugServer, body: bytes) -> None:
    event = msgspec.json.decode(body, type=dap.ModuleBody)
    if session.hub.module_of(event.module.path) is None:
        _tell_module(session, event.module)


def _tell_module(session: Session, module: dap.Module) -> None:
    """When it is first met; whoever met it, the numbers are the session's own."""
    session.journal(
        "module",
        {
            "reason": "new",
            "module": {
                "id": session.hub.module_loaded(module),
                "name": module.name,
                "path": module.path,
                "is_optimized": False,
                "is_user_code": "site-packages" not in (module.path or ""),
                "version": None,
            },
        },
    )


async def _debugger_output(session: Session, server: DebugServer, body: bytes) -> None:
    event = msgspec.json.decode(body, type=dap.OutputBody)
    if server.has_probe and _UNTRUE in event.output:
        return
    if event.output and event.category != "telemetry":
        session.take_output("console", event.output.encode("utf-8", "backslashreplace"))


async def _stop_report(session: Session, server: DebugServer, body: bytes) -> None:
    session.reports.arrived(server, msgspec.json.decode(body))


async def _subprocess(session: Session, server: DebugServer, body: bytes) -> None:
    child = msgspec.json.decode(body)
    if "command" in child:
        child["command"] = shown_command(child["command"])
    session.journal("subprocess", {"reason": "started", "parent_pid": server.pid, **child})


async def _log_point(session: Session, server: DebugServer, body: bytes) -> None:
    session.log_points.arrived(server, body)


async def _breakpoint_error(session: Session, server: DebugServer, body: bytes) -> None:
    event = msgspec.json.decode(body)
    if event["id"] == "exceptions":
        session.exceptions.failed(event["error"])
    else:
        session.breakpoints.failed(event["id"], event["error"])


async def _hot_breakpoint(session: Session, server: DebugServer, body: bytes) -> None:
    session.breakpoints.slows(msgspec.json.decode(body)["id"])


async def _function_found(session: Session, server: DebugServer, body: bytes) -> None:
    event = msgspec.json.decode(body, type=_Function)
    session.breakpoints.appeared(event.id, event)


async def _greenlets(session: Session, server: DebugServer, body: bytes) -> None:
    session.say(
        "gevent has replaced this program's threads, and the debugger did not expect it: steps and "
        f"pauses may hang. {call_of('restart', session.id)} "
        '{"env": {"GEVENT_SUPPORT": "True"}}, or launch it so.'
    )


class _Function(FoundFunction):
    id: str


def _location(frame: dap.StackFrame) -> Location:
    path = frame.source.path if frame.source and frame.source.path else "<unknown>"
    return Location(path=path, line=frame.line, column=frame.column, function=frame.name)


Handler = Callable[["Session", DebugServer, bytes], Awaitable[None]]
EVENTS: Final[Mapping[str, Handler]] = {
    "stopped": _stopped,
    "continued": _continued,
    "thread": _thread,
    "module": _module,
    "output": _debugger_output,
    "relayStop": _stop_report,
    "relaySubprocess": _subprocess,
    "relayError": _breakpoint_error,
    "relayFunction": _function_found,
    "relayGreenlets": _greenlets,
    "relayHot": _hot_breakpoint,
    "relayLog": _log_point,
}
# What a process has told with its last breath is so all the same.
LASTING: Final = frozenset({"relaySubprocess", "relayError", "relayLog"})


class DebugEvents:
    """The events of all debug servers, in the order in which they came."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._queue: asyncio.Queue[tuple[DebugServer, dap.Message]] = asyncio.Queue()
        self._working = asyncio.create_task(self._work(), name="debug events")

    def take(self, server: DebugServer, message: dap.Message) -> None:
        session = self._session
        if message.event == "relayAnswer":
            # Whoever works off the queue may be waiting for just this.
            session.asking.answered(server, msgspec.json.decode(bytes(message.body)))
        elif message.event == "relayTrace":
            # Before the stop that it explains; the last come with the program's end.
            session.traces.told(server, msgspec.json.decode(bytes(message.body)))
        elif session.target is not None and session.target.on_event(server, message):
            return
        else:
            self._queue.put_nowait((server, message))

    async def _work(self) -> None:
        while True:
            server, message = await self._queue.get()
            handle = EVENTS.get(message.event)
            if handle is None or (server.lost and message.event not in LASTING):
                continue
            try:
                await handle(self._session, server, bytes(message.body))
            except RelayError as error:
                # The program ended meanwhile, or the debugger did: its own event follows.
                log.warning(
                    "debug.event_failed",
                    extra={"fields": {"event": message.event, "error": error.message}},
                )
            except Exception:
                # A mistake of ours or of the debugger's; the events that follow are heard.
                log.exception("debug.event_mistaken", extra={"fields": {"event": message.event}})

    async def close(self) -> None:
        self._working.cancel()
        await asyncio.gather(self._working, return_exceptions=True)
