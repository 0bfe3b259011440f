"""Takes the events of debug servers, and has them applied to the session by `dap_events` and
`probe_events`.

One task handles them one by one, in the order of their arrival. Three kinds do not wait in its
queue: the probe's answers, the rows of a trace, and events about the start of the program.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from debug_relay.protocol.errors import RelayError
from debug_relay.protocol.wire import dap, probe_events
from debug_relay.worker.breakpoints.log_points import LogPoints
from debug_relay.worker.breakpoints.session_breakpoints import Breakpoints
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.debugging import Debugging
from debug_relay.worker.state.publication import Publication
from debug_relay.worker.tracing.trace import Traces

log = logging.getLogger("debug_relay.worker")

# A process may send these events just before it ends: they are handled after its end as well.
_LASTING: Final = frozenset({"relaySubprocess", "relayError", "relayLog"})
# The body of each event that is handled here; the probe's are in `probe_events.EVENTS`.
_BODIES: Final[Mapping[str, Any]] = {
    "stopped": dap.StoppedBody,
    "continued": dap.ContinuedBody,
    "thread": dap.ThreadBody,
    "module": dap.ModuleBody,
    "output": dap.OutputBody,
    **probe_events.EVENTS,
}
_DECODE: Final = {name: msgspec.json.Decoder(kind).decode for name, kind in _BODIES.items()}
Handler = Callable[[DebugServer, Any], Awaitable[None]]


class DebugEvents:
    """The one queue of the events of all debug servers, and the task that handles them."""

    def __init__(
        self,
        publication: Publication,
        debugging: Debugging,
        breakpoints: Breakpoints,
        log_points: LogPoints,
        traces: Traces,
        handlers: Mapping[str, Handler],
    ) -> None:
        """`handlers` apply the events that wait in the queue, by their names."""
        self._publication = publication
        self._hub = debugging.hub
        self._probes = debugging.probes
        self._stops = debugging.stops
        self._debuggee = debugging.debuggee
        self._breakpoints = breakpoints
        self._log_points = log_points
        self._traces = traces
        self._handlers = handlers
        self._queue: asyncio.Queue[tuple[DebugServer, dap.Message]] = asyncio.Queue()
        self._working = asyncio.create_task(self._work(), name="debug events")

    # -- what debug servers report

    def take(self, server: DebugServer, message: dap.Message) -> None:
        """Queue an event, or handle it at once if it is of a kind that must not wait."""
        target = self._debuggee.target
        if message.event == "relayAnswer":
            # The event that is handled now may wait for this answer.
            self._probes.answered(server, bytes(message.body))
        elif message.event == "relayTrace":
            # The rows must be there before the stop that they explain; the last rows arrive with
            # the program's end.
            self._traces.take(server, _DECODE[message.event](bytes(message.body)))
        elif target is not None and target.on_event(server, message):
            return  # the event was about the program's start
        else:
            self._queue.put_nowait((server, message))

    def server_lost(self, server: DebugServer, why: str) -> None:
        """The connection has ended. The kernel reports by pidfd whether the program has, too."""
        had_stopped = self._stops.has_stopped_threads(server)
        self._hub.forget(server)
        self._probes.server_gone(server)
        self._log_points.process_ended(server)
        self._breakpoints.server_gone(server)
        self._stops.server_lost(server, had_stopped)
        self._publication.changed()

    async def _work(self) -> None:
        while True:
            server, message = await self._queue.get()
            handle = self._handlers.get(message.event)
            if handle is None or (server.lost and message.event not in _LASTING):
                continue
            try:
                await handle(server, _DECODE[message.event](bytes(message.body)))
            except RelayError as error:
                # The program or its debug server ended meanwhile, which has an event of its own.
                log.warning(
                    "debug.event_failed",
                    extra={"fields": {"event": message.event, "error": error.message}},
                )
            except Exception:
                # A defect of the worker or of pydevd must not stop the events that follow.
                log.exception("debug.event_mistaken", extra={"fields": {"event": message.event}})

    async def close(self) -> None:
        self._working.cancel()
        await asyncio.gather(self._working, return_exceptions=True)
