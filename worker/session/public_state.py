"""What callers see of the session: its public state, as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from debug_relay.protocol.models.sessions import SessionState
from debug_relay.protocol.secrets import shown_environment
from debug_relay.protocol.wire.envelope import encode_json

if TYPE_CHECKING:
    from debug_relay.worker.session.session import Session


class Shown:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._encoded: tuple[int, bytes] = (0, b"")

    def encoded(self) -> bytes:
        """The public state as JSON, encoded once a version."""
        version = self._session.version
        if self._encoded[0] != version:
            self._encoded = (version, encode_json(self.state()))
        return self._encoded[1]

    def state(self) -> SessionState:
        session = self._session
        stop = session.stop
        config = session.params.config
        return SessionState(
            session_id=session.id,
            name=session.name,
            status=session.state,
            stop_reason=stop.reason if stop else None,
            stop_id=session.stop_id,
            created_at=session.params.created_at,
            expires_at=session.idle.expires_at(session.state),
            config=msgspec.structs.replace(
                config,
                python_path=session.interpreter,
                labels=shown_environment(config.labels),
            ),
            program=session.program,
            child_pids=[server.pid for server in session.hub.servers if server.is_child],
            current_location=stop.location if stop else None,
            stopped_thread_id=stop.thread_id if stop else None,
            stopped_threads=session.standing_threads() if stop else [],
            breakpoint_count=len(session.breakpoints),
            exception=stop.exception if stop else None,
            exit_code=session.exit_code,
            signal=session.signal,
            end_reason=session.end_reason,
            passed_limit=session.limits.passed,
            held_seconds=session.held.seconds(),
            breakpoints_suspended=session.breakpoints.suspended,
            created_by=session.params.created_by,
            restored=session.params.restored,
            previous_status=session.previous_status,
            missing_env=session.missing_env,
            missing_fields=session.missing_fields,
            waiting_for_input=session.waiting is not None,
            prompt=session.waiting.prompt if session.waiting else None,
            warning=(session.waiting and session.waiting.warning) or session.limits.warning,
            disk_trouble=session.disk_trouble(),
            lease=session.lease.shown(),
        )
