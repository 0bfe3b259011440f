"""The effects of a transition of the session's state, in the order in which they run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from debug_relay.protocol.state import Event, State
from debug_relay.worker.breakpoints.log_points import LogPoints
from debug_relay.worker.breakpoints.run_to_line import RunToLine
from debug_relay.worker.debugger.debugging import Debugging
from debug_relay.worker.inspection.stop_reports import StopReports
from debug_relay.worker.limits.watch import LimitWatch
from debug_relay.worker.session.pause_budget import HeldTime
from debug_relay.worker.session.record import Record
from debug_relay.worker.state.core import Core
from debug_relay.worker.state.lifecycle import Effect, Transition


class Effects:
    def __init__(
        self,
        core: Core,
        debugging: Debugging,
        log_points: LogPoints,
        goal: RunToLine,
        reports: StopReports,
        limits: LimitWatch,
        held: HeldTime,
        record: Record,
    ) -> None:
        self._lifecycle = core.lifecycle
        self._log = core.log
        self._publication = core.publication
        self._hub = debugging.hub
        self._stops = debugging.stops
        self._debuggee = debugging.debuggee
        self._log_points = log_points
        self._goal = goal
        self._reports = reports
        self._limits = limits
        self._held = held
        self._record = record

    def in_order(self) -> Sequence[Effect]:
        return (
            self._count_held_time,
            self._finish_output,
            self._forget_program,
            self._forget_stop,
            self._forget_earlier_output,
            self._close_connections,
            # The program's end is journaled before the session's state: a reader that sees the
            # state finds its reason.
            self._journal_end,
            self._journal_state,
            self._tell_target,
            self._watch_limits,
            self._save,
            self._publish,
        )

    def _count_held_time(self, transition: Transition) -> None:
        self._held.follow(transition.after)

    def _finish_output(self, transition: Transition) -> None:
        """No more output follows: write the output that was held back."""
        if transition.event is Event.EXITED:
            self._log_points.process_ended()
            self._log.program_ended()

    def _forget_program(self, transition: Transition) -> None:
        """Forget a program that never started or was detached from. One that has ended is shown."""
        if transition.event in (Event.REFUSED, Event.DETACHED):
            self._debuggee.clear()

    def _forget_stop(self, transition: Transition) -> None:
        if transition.event in (Event.EXITED, Event.DETACHED):
            self._stops.clear()
            self._goal.forget()
        if transition.event is Event.DETACHED:
            self._hub.forget_stops()

    def _forget_earlier_output(self, transition: Transition) -> None:
        """The output of an earlier run does not belong to the first stop of this run."""
        if transition.event is Event.STARTING:
            self._reports.printed_anew()

    def _close_connections(self, transition: Transition) -> None:
        if transition.event is Event.EXITED:
            self._hub.close()

    def _journal_end(self, transition: Transition) -> None:
        if transition.event is not Event.EXITED:
            return
        lifecycle = self._lifecycle
        code, signal = lifecycle.exit_code, lifecycle.signal
        body: dict[str, Any] = {
            "exit_code": code,
            "signal": signal,
            "end_reason": lifecycle.end_reason,
            "restart": lifecycle.restarting,
            "swept": msgspec.to_builtins(transition.swept),
        }
        if lifecycle.end_reason == "limit":
            body["limit"] = msgspec.to_builtins(self._limits.passed)
        if code:
            body["error"] = f"Process exited with code {code}" + (f" ({signal})" if signal else "")
        self._log.journal("terminated", body)

    def _journal_state(self, transition: Transition) -> None:
        """Journal the new state; a pause has its own `stopped` event, with the place."""
        before, after = transition.before, transition.after
        if before is not after and after is not State.PAUSED:
            self._log.journal("session", {"status": after, "previous_status": before})

    def _tell_target(self, transition: Transition) -> None:
        if self._debuggee.target is not None:
            self._debuggee.target.state_changed()

    def _watch_limits(self, transition: Transition) -> None:
        self._limits.follow(transition.event)

    def _save(self, transition: Transition) -> None:
        """Save at once only what ends a run: a step must not wait for the disk."""
        if transition.event in (Event.EXITED, Event.DETACHED):
            self._record.save()
        else:
            self._record.save_later()

    def _publish(self, transition: Transition) -> None:
        if transition.event is Event.RESUMED:
            self._publication.changed_for_a_moment()
        else:
            self._publication.changed()
