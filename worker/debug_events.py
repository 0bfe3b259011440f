"""What the events of debug servers mean for the session.

Worked off one after the other, in the order in which they came. What must not wait in that queue
(answers of the probe, the target's own starting) never gets here.
"""

from __future__ import annotations

import builtins
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from debug_relay.protocol import dap
from debug_relay.protocol.errors import RelayError
from debug_relay.protocol.fields import Location
from debug_relay.protocol.sessions import ExceptionInfo, StopReason
from debug_relay.protocol.state import Event, State
from debug_relay.worker.connection import DebugServer
from debug_relay.worker.stop import Stop

if TYPE_CHECKING:
    from debug_relay.worker.session import Session

log = logging.getLogger("debug_relay.worker")

_REASONS: Final[Mapping[str, StopReason]] = {
    "breakpoint": "breakpoint",
    "function breakpoint": "breakpoint",
    "data breakpoint": "breakpoint",
    "exception": "exception",
    "pause": "pause",
    "entry": "entry",
}


async def _stopped(session: Session, server: DebugServer, body: bytes) -> None:
    event = msgspec.json.decode(body, type=dap.StoppedBody)
    if session.state not in (State.RUNNING, State.PAUSED, State.LAUNCHING):
        return
    if event.thread_id is None:
        return
    thread_id = session.hub.thread_id(server, event.thread_id)
    session.hub.forget_stop()
    location = await _place_of(session, thread_id)
    reason = _REASONS.get(event.reason, "step")
    exception = None
    if reason == "exception":
        exception = await _exception(session, server, event.thread_id)
    if session.target is not None:
        session.target.flush_output()
    if session.state is State.LAUNCHING:
        session.advance(Event.READY)
    session.stop_id += 1
    hits = session.breakpoints.at(location) if location and reason == "breakpoint" else []
    session.stop = Stop(thread_id, reason, location, exception, hits)
    session.advance(Event.STOPPED)
    session.journal("stopped", _stopped_event(session, event, session.stop))


async def _place_of(session: Session, thread_id: int) -> Location | None:
    """Where it stands; a stop is told even if the debugger cannot say where."""
    try:
        window = await session.hub.stack(thread_id, 0, 1)
    except RelayError as error:
        if not session.hub.servers:
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
        "preserve_focus_hint": event.preserve_focus_hint,
        "text": None,
        "all_threads_stopped": event.all_threads_stopped,
        "hit_breakpoint_ids": stop.hit_breakpoints,
        "stop_id": session.stop_id,
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
                "full_type_name": _full_name(stop.exception.type),
                "message": stop.exception.message,
                "stack_trace": stop.exception.traceback,
            },
        }
    return body


def _full_name(name: str) -> str:
    return f"builtins.{name}" if hasattr(builtins, name) else name


async def _exception(session: Session, server: DebugServer, dap_thread: int) -> ExceptionInfo:
    info = await server.request(
        "exceptionInfo",
        {"threadId": dap_thread},
        dap.ExceptionInfo,
        session.params.request_timeout,
    )
    details = info.details or dap.ExceptionDetails()
    name = details.type_name or info.exception_id.split(" ")[0]
    return ExceptionInfo(
        type=name,
        message=details.message if details.message is not None else info.description or "",
        traceback=details.stack_trace,
    )


async def _continued(session: Session, server: DebugServer, body: bytes) -> None:
    # Ours were told when they were sent; this is somebody else's.
    if (
        session.state is State.PAUSED
        and session.stop is not None
        and _foreign(session, server, body)
    ):
        session.resumed(None)


def _foreign(session: Session, server: DebugServer, body: bytes) -> bool:
    """Whether the thread that stopped was sent on."""
    event = msgspec.json.decode(body, type=dap.ContinuedBody)
    if session.stop is None or event.thread_id is None:
        return True
    return session.hub.thread_id(server, event.thread_id) == session.stop.thread_id


async def _thread(session: Session, server: DebugServer, body: bytes) -> None:
    event = msgspec.json.decode(body, type=dap.ThreadBody)
    if event.reason == "exited":
        known = session.hub.thread_id(server, event.thread_id)
        if session.stop is not None and session.stop.thread_id == known:
            # pydevd looks for dead threads while one is just beginning (3.8): it stands there.
            return
        thread_id = session.hub.thread_ended(server, event.thread_id)
    else:
        thread_id = session.hub.thread_id(server, event.thread_id)
    if thread_id is not None:
        session.journal("thread", {"reason": event.reason, "thread_id": thread_id})


async def _module(session: Session, server: DebugServer, body: bytes) -> None:
    event = msgspec.json.decode(body, type=dap.ModuleBody)
    session.hub.module_loaded(event.module)
    session.journal(
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


async def _debugger_output(session: Session, server: DebugServer, body: bytes) -> None:
    event = msgspec.json.decode(body, type=dap.OutputBody)
    if event.output and event.category != "telemetry":
        session.take_output("console", event.output.encode("utf-8", "backslashreplace"))


async def _subprocess(session: Session, server: DebugServer, body: bytes) -> None:
    child = msgspec.json.decode(body)
    session.journal("subprocess", {"pid": child["pid"], "command": child["command"]})


async def _log_point(session: Session, server: DebugServer, body: bytes) -> None:
    row = msgspec.json.decode(body)
    text = row["text"]
    if row["skipped"]:
        text = f"({row['skipped']} lines of this log point were skipped)\n{text}"
    origin = {"source": row["path"], "line": row["line"]}
    session.take_output("console", (text + "\n").encode("utf-8", "backslashreplace"), origin)


async def _breakpoint_error(session: Session, server: DebugServer, body: bytes) -> None:
    event = msgspec.json.decode(body)
    session.breakpoints.failed(event["id"], event["error"])


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
    "relaySubprocess": _subprocess,
    "relayError": _breakpoint_error,
    "relayLog": _log_point,
}
