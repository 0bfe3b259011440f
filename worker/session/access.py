"""Decides whether a call may do what it asks for now: by state, stop, lease and caller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.refusals import (
    has_moved_on,
    not_for_native,
    stop_changed,
    wrong_state,
)
from debug_relay.protocol.state import State
from debug_relay.protocol.wire.frames import Caller
from debug_relay.worker.debugger.stops import Stops
from debug_relay.worker.debugger.target import Debuggee
from debug_relay.worker.session.callers import Callers
from debug_relay.worker.session.lease import Lease
from debug_relay.worker.state.lifecycle import Lifecycle
from debug_relay.worker.state.settings import Settings


class Access:
    def __init__(
        self,
        settings: Settings,
        lifecycle: Lifecycle,
        stops: Stops,
        debuggee: Debuggee,
        callers: Callers,
        lease: Lease,
    ) -> None:
        self._settings = settings
        self._lifecycle = lifecycle
        self._stops = stops
        self._debuggee = debuggee
        self._callers = callers
        self.lease = lease

    @contextmanager
    def calling(self, operation: str, caller: Caller, if_stop: int | None) -> Iterator[None]:
        """Run the body as this call; raise at once if the stop it means has passed."""
        with self._callers.acting(caller, if_stop), self.lease.kept(operation, caller):
            self._require_adapter(operation)
            self._require_same_stop(OPERATIONS[operation].states)
            yield

    def require(self, operation: str, states: frozenset[State] | None = None) -> None:
        """Raise 409 unless the session is in one of these states (by default the operation's).

        The worker checks although the supervisor has: only the worker knows the present state.
        """
        if states is None:
            states = OPERATIONS[operation].states
        self._require_same_stop(states)
        state = self._lifecycle.state
        if state not in states:
            raise wrong_state(operation, state, states, self._settings.id, self._debuggee.program)
        # The lease is checked again when the call's turn has come: another caller may hold it now.
        caller = self._callers.present()
        if caller is not None:
            self.lease.act(operation, caller)
        self._callers.allowed(operation)

    def _require_adapter(self, operation: str) -> None:
        program = self._debuggee.program
        if OPERATIONS[operation].python_only and program is not None and program.is_native:
            raise not_for_native(operation, program)

    def _require_same_stop(self, states: frozenset[State]) -> None:
        """Raise 409 if the call means another stop (`If-Stop`) than the present one."""
        seen, state, stop_id = self._callers.seen(), self._lifecycle.state, self._stops.stop_id
        if seen is None or not (state in states or state is State.RUNNING):
            return
        if has_moved_on(seen, state, stop_id, states):
            place = self._stops.current.location if self._stops.current else None
            raise stop_changed(seen, state, stop_id, place, self._settings.id)
