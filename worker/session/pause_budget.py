"""Keeps an attached program from staying paused for ever, and counts how long it was paused.

When it is paused and no caller has used the session for `pause_budget` seconds, the worker suspends
its breakpoints and resumes it. The next breakpoint that is set or changed ends the suspension.
"""

from __future__ import annotations

import time

from debug_relay.protocol.state import State
from debug_relay.worker.breakpoints.session_breakpoints import Breakpoints
from debug_relay.worker.debugger.probe_client import ProbeClient
from debug_relay.worker.debugger.run_control import RunControl
from debug_relay.worker.debugger.target import Debuggee
from debug_relay.worker.session.idle_clock import IdleClock
from debug_relay.worker.state.core import Core


class HeldTime:
    """Counts for how long in total the session's programs have been paused."""

    def __init__(self, before: float = 0.0) -> None:
        self._before = before
        self._since: float | None = None

    def follow(self, state: State) -> None:
        if state is State.PAUSED:
            self._since = self._since or time.monotonic()
        elif self._since is not None:
            self._before += time.monotonic() - self._since
            self._since = None

    def seconds(self) -> float:
        present = time.monotonic() - self._since if self._since is not None else 0.0
        return round(self._before + present, 3)


class PauseBudget:
    def __init__(
        self,
        core: Core,
        probes: ProbeClient,
        debuggee: Debuggee,
        run: RunControl,
        breakpoints: Breakpoints,
        idle: IdleClock,
        held: HeldTime,
    ) -> None:
        self._settings = core.settings
        self._lifecycle = core.lifecycle
        self._log = core.log
        self._probes = probes
        self._debuggee = debuggee
        self._run = run
        self._breakpoints = breakpoints
        self._idle = idle
        self._held = held

    def is_spent(self) -> bool:
        budget = self._settings.config.pause_budget
        return (
            self._lifecycle.state is State.PAUSED
            and self._debuggee.attached
            and bool(budget)
            and self._idle.idle_for() > budget
        )

    async def resume(self) -> None:
        """Resume a program that no caller looks at any more while its owner waits for it."""
        async with self._run.lock, self._probes.nobody_evaluates():
            if not self.is_spent():
                return
            await self._breakpoints.suspend(True)
            body = {
                "status": self._lifecycle.state,
                "breakpoints_suspended": True,
                "held_seconds": self._held.seconds(),
                "warning": "No caller used the session for "
                f"{self._settings.config.pause_budget:g} s: the attached program was resumed, and "
                "its breakpoints are suspended until one is set or changed",
            }
            self._log.journal("session", body)
            self._run.resume_all()
