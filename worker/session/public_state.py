"""The public state of the session: all that callers see of it."""

from __future__ import annotations

import msgspec

from debug_relay.protocol.models.sessions import DebuggerAddress, SessionState
from debug_relay.protocol.secrets import masked_environment
from debug_relay.protocol.wire.envelope import encode_json
from debug_relay.worker.breakpoints.session_breakpoints import Breakpoints
from debug_relay.worker.debugger.debugging import Debugging
from debug_relay.worker.debugger.input_requests import InputRequests
from debug_relay.worker.joining.listener import JoinListener
from debug_relay.worker.limits.watch import LimitWatch
from debug_relay.worker.session.idle_clock import IdleClock
from debug_relay.worker.session.lease import Lease
from debug_relay.worker.session.pause_budget import HeldTime
from debug_relay.worker.session.record import Record
from debug_relay.worker.state.core import Core


class PublicState:
    def __init__(
        self,
        core: Core,
        debugging: Debugging,
        input_requests: InputRequests,
        breakpoints: Breakpoints,
        limits: LimitWatch,
        lease: Lease,
        joining: JoinListener,
        idle: IdleClock,
        held: HeldTime,
        record: Record,
    ) -> None:
        self._settings = core.settings
        self._lifecycle = core.lifecycle
        self._log = core.log
        self._publication = core.publication
        self._hub = debugging.hub
        self._stops = debugging.stops
        self._debuggee = debugging.debuggee
        self._input = input_requests
        self._breakpoints = breakpoints
        self._limits = limits
        self._lease = lease
        self._joining = joining
        self._idle = idle
        self._held = held
        self._record = record
        self._encoded: tuple[int, bytes] = (0, b"")

    def encoded(self) -> bytes:
        """The state for supervisors as JSON, encoded once for each version. It alone has the token
        of the join port: the supervisor shows it to callers who may drive the session.
        """
        version = self._publication.version
        if self._encoded[0] != version:
            state = self.state()
            if state.debugger is not None:
                state.debugger.token = self._joining.token
            self._encoded = (version, encode_json(state))
        return self._encoded[1]

    def state(self) -> SessionState:
        settings, lifecycle, debuggee = self._settings, self._lifecycle, self._debuggee
        config, stop, waiting = settings.config, self._stops.current, self._input.waiting
        return SessionState(
            session_id=settings.id,
            name=settings.name,
            status=lifecycle.state,
            stop_reason=stop.reason if stop else None,
            stop_id=self._stops.stop_id,
            created_at=settings.params.created_at,
            expires_at=self._idle.expires_at(lifecycle.state),
            config=msgspec.structs.replace(
                config,
                python_path=settings.interpreter,
                labels=masked_environment(config.labels),
            ),
            program=debuggee.program,
            child_pids=[server.pid for server in self._hub.servers if server.is_child],
            current_location=stop.location if stop else None,
            stopped_thread_id=stop.thread_id if stop else None,
            stopped_threads=self._stops.stopped_threads() if stop else [],
            breakpoint_count=len(self._breakpoints),
            exception=stop.exception if stop else None,
            exit_code=lifecycle.exit_code,
            signal=lifecycle.signal,
            end_reason=lifecycle.end_reason,
            passed_limit=self._limits.passed,
            held_seconds=self._held.seconds() or 0,
            breakpoints_suspended=self._breakpoints.suspended,
            created_by=settings.params.created_by,
            restored=settings.params.restored,
            previous_status=lifecycle.previous_status,
            missing_env=debuggee.missing_env,
            missing_fields=debuggee.missing_fields,
            waiting_for_input=waiting is not None,
            prompt=waiting.prompt if waiting else None,
            warning=(waiting and waiting.warning) or self._limits.warning or debuggee.notice,
            disk_trouble=self._disk_trouble(),
            lease=self._lease.shown(),
            debugger=self._debugger(),
        )

    def _debugger(self) -> DebuggerAddress | None:
        program = self._debuggee.program
        return DebuggerAddress(
            adapter=program.adapter if program is not None else "debugpy",
            uri=self._joining.uri,
            token=None,
            clients=list(self._joining.clients),
        )

    def _disk_trouble(self) -> str | None:
        """Names what could not be written to disk; the session continues without it."""
        lost = self._log.lost
        parts = [f"{lost} entries of output and events"] if lost else []
        parts += [] if self._record.is_kept else ["the record that outlives the worker"]
        return f"the disk did not take {' and '.join(parts)}" if parts else None
