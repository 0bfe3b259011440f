"""The life of the session: its state, and how its program ended.

This module is the only writer of both. `protocol.state` is the state machine itself. An ordered
list of effects (`session.transition_effects`) follows each transition.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct

from debug_relay.protocol import state
from debug_relay.protocol.models.sessions import EndReason
from debug_relay.protocol.models.worker_messages import WorkerParams
from debug_relay.protocol.state import Event, State
from debug_relay.worker.system.descendants import Ended

log = logging.getLogger("debug_relay.worker")


class Transition(Struct, frozen=True):
    before: State
    event: Event
    after: State
    swept: Sequence[Ended] = ()  # the processes that were ended together with the program


Effect = Callable[[Transition], None]


class Lifecycle:
    def __init__(self, params: WorkerParams) -> None:
        ended = params.ended
        self.state = State.CREATED if ended is None else ended.status
        self.exit_code = None if ended is None else ended.exit_code
        self.signal = None if ended is None else ended.signal
        self.end_reason: EndReason | None = None if ended is None else ended.end_reason
        # The state before the relay stopped or the machine rebooted.
        self.previous_status = params.previous_status
        self.restarting = False  # the program ends because another run of it will follow
        self.runtime_seconds = params.runtime_seconds
        self._started_at: float | None = None
        self._effects: Sequence[Effect] = ()

    def followed_by(self, effects: Sequence[Effect]) -> None:
        """Set the effects of each transition. They need all other parts, so they are set last."""
        self._effects = effects

    # -- transitions

    def starting(self) -> None:
        self._started_at = time.monotonic()
        self._apply(Event.STARTING)

    def refused(self) -> None:
        """The start has failed."""
        self._apply(Event.REFUSED)

    def running(self) -> None:
        """The program runs. Either the end of its start or its first stop may report this first."""
        if self.state is State.LAUNCHING:
            self._apply(Event.READY)

    def stopped(self) -> None:
        self._apply(Event.STOPPED)

    def resumed(self) -> None:
        self._apply(Event.RESUMED)

    def detached(self) -> None:
        """The worker has detached; the session is as it was before the attach."""
        if self.state in state.LIVE:  # otherwise the session was ended while we detached
            self._apply(Event.DETACHED)

    def ended(
        self,
        code: int | None,
        signal: str | None,
        reason: EndReason,
        swept: Sequence[Ended] = (),
    ) -> None:
        """The kernel has reported the program's end, or the connection to a target has ended."""
        if self.state in state.ENDED:
            return
        self.exit_code, self.signal = code, signal
        self.end_reason = self.end_reason or reason
        if self._started_at is not None:
            self.runtime_seconds = time.monotonic() - self._started_at
        self._apply(Event.EXITED, swept)

    def _apply(self, event: Event, swept: Sequence[Ended] = ()) -> None:
        """The only place where the state changes."""
        before, self.state = self.state, state.step(self.state, event)
        log.debug(
            "session.state",
            extra={"fields": {"before": before, "event": event, "after": self.state}},
        )
        transition = Transition(before, event, self.state, swept)
        for effect in self._effects:
            effect(transition)

    # -- the coming end

    def end_for(self, reason: EndReason) -> None:
        """Note the reason for which the program will be ended."""
        self.end_reason = reason

    def will_be_restored(self) -> None:
        """Note the present state: the relay stops, and the next one restores the session."""
        self.previous_status = self.state

    @contextmanager
    def restart(self) -> Iterator[None]:
        """Mark the program's end in this block as part of a restart."""
        self.restarting = True
        try:
            yield
        finally:
            self.restarting = False

    def forget_end(self) -> None:
        """Forget how the program ended: another run follows."""
        self.exit_code = self.signal = self.end_reason = None
