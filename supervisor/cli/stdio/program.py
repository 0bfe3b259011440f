"""The program's state, as the two threads of the front know it, and the waits for a stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, Literal

State = Literal["new", "ready", "running", "paused", "ended"]

# A command that needs a stopped program waits for its stop until this long after it was resumed:
# an IDE, or a script, may send it right behind the step.
_SETTLE_SECONDS: Final = 5.0
# The event of a program's end follows the reply to the call that ended it within this time.
_END_SECONDS: Final = 5.0
_REASONS: Final[dict[State, str]] = {
    "new": "not initialized",
    "ready": "program not started",
    "running": "program is running",
    "ended": "program has ended",
}


class CommandFailed(Exception):
    """The command cannot be executed; its text is what the IDE is shown."""


class ProgramState:
    """Changed by the thread of the commands (a resume) and by that of the events (all else)."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._state: State = "new"
        self._resumed_at = 0.0
        self._hurried = False
        self._announce = False
        self.terminating = False  # The IDE's command ends it, and sends `terminated` itself.

    @property
    def now(self) -> State:
        with self._changed:
            return self._state

    def becomes(self, state: State, send: Callable[[], None] = lambda: None) -> None:
        """`send` sends the event of the change: no command acts on the new state before."""
        with self._changed:
            send()
            self._state = state
            self._changed.notify_all()

    def no_stop_is_sent(self) -> AbstractContextManager[bool]:
        """While a breakpoint is set: the IDE learns its id before it hears of a stop there."""
        return self._changed

    def resumes(self, announce: bool = False) -> None:
        """The program is about to run by a command of the IDE's; `announce`: it wants `started`."""
        with self._changed:
            self._state = "running"
            self._announce = announce
            self._resumed_at = time.monotonic()

    def has_resumed(self) -> None:
        """The relay has answered: a start takes longer than a step, and both count from here."""
        with self._changed:
            self._resumed_at = time.monotonic()

    def take_announcement(self) -> bool:
        """Whether the resume that has just happened is to be announced by `started`."""
        with self._changed:
            announce, self._announce = self._announce, False
            return announce

    def hurry(self) -> None:
        """No more events come: nothing waits for a stop any more."""
        with self._changed:
            self._hurried = True
            self._changed.notify_all()

    def wait_for_end(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._state == "ended", _END_SECONDS)

    def settle(self) -> State:
        """Waits, for a bounded time, until the program does not run; returns its state."""
        with self._changed:
            until = self._resumed_at + _SETTLE_SECONDS
            self._changed.wait_for(
                lambda: self._state != "running" or self._hurried,
                max(until - time.monotonic(), 0),
            )
            return self._state

    def require_paused(self, what: str) -> None:
        state = self.settle()
        if state != "paused":
            raise CommandFailed(f"Cannot {what}: {_REASONS[state]}")

    def require(self, what: str, *states: State) -> None:
        state = self.now
        if state not in states:
            raise CommandFailed(f"Cannot {what}: {_REASONS.get(state, state)}")
