"""An attached program is never left frozen: how long it is held, and what ends that.

When it is paused and nobody has called for `pause_budget` seconds, its breakpoints are suspended
and it runs on. The next breakpoint that is set or changed arms them again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from debug_relay.protocol.state import State
from debug_relay.worker.debugger import run_control as run

if TYPE_CHECKING:
    from debug_relay.worker.session.session import Session


class Held:
    """For how long in all the session's programs have stood still."""

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


def is_too_long(session: Session) -> bool:
    budget = session.params.config.pause_budget
    return (
        session.state is State.PAUSED
        and session.target is not None
        and session.target.attached
        and bool(budget)
        and session.idle.idle_for() > budget
    )


async def run_on(session: Session) -> None:
    """Nobody looks at it any more: its owner waits for it."""
    async with session.driving, session.asking.nobody_evaluates():
        if not is_too_long(session) or session.stop is None:
            return
        await session.breakpoints.suspend(True)
        body = {
            "status": session.state,
            "breakpoints_suspended": True,
            "held_seconds": session.held.seconds(),
            "warning": "Nobody called for "
            f"{session.params.config.pause_budget:g} s: the attached program runs on, and its "
            "breakpoints are suspended until one is set or changed",
        }
        session.journal("session", body)
        run.go_on(session)
