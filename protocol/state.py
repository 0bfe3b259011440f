"""The states of a session: one table and one pure function.

All transitions are here. The worker is the only writer; the supervisor keeps a mirror and adds only
`WORKER_LOST` when the worker process is gone. The state alone says what a session is doing: no
boolean repeats it.

step(State.PAUSED, Event.RESUMED) is State.RUNNING

An event that a state does not accept is a bug of the relay (`IllegalTransition`), never the
caller's: the operations table says which calls are allowed in which state.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class State(StrEnum):
    CREATED = "created"
    LAUNCHING = "launching"
    RUNNING = "running"
    PAUSED = "paused"
    TERMINATED = "terminated"
    FAILED = "failed"


class Event(StrEnum):
    STARTING = "starting"  # a launch or attach was accepted
    REFUSED = "refused"  # the launch or attach failed; the session is as before
    READY = "ready"  # the debugger is configured and the program runs
    STOPPED = "stopped"
    RESUMED = "resumed"
    EXITED = "exited"  # the program has ended, by itself or because we ended it
    DETACHED = "detached"  # the program keeps running without us
    WORKER_LOST = "worker_lost"


class IllegalTransition(Exception):
    def __init__(self, state: State, event: Event) -> None:
        super().__init__(f"a session that is {state.value} cannot take the event {event.value}")
        self.state = state
        self.event = event


_S, _E = State, Event

TRANSITIONS: Final[Mapping[State, Mapping[Event, State]]] = {
    _S.CREATED: {_E.STARTING: _S.LAUNCHING, _E.EXITED: _S.TERMINATED, _E.WORKER_LOST: _S.FAILED},
    _S.LAUNCHING: {
        _E.REFUSED: _S.CREATED,
        _E.READY: _S.RUNNING,
        _E.EXITED: _S.TERMINATED,
        _E.WORKER_LOST: _S.FAILED,
    },
    _S.RUNNING: {
        _E.STOPPED: _S.PAUSED,
        _E.EXITED: _S.TERMINATED,
        _E.DETACHED: _S.CREATED,
        _E.WORKER_LOST: _S.FAILED,
    },
    _S.PAUSED: {
        _E.STOPPED: _S.PAUSED,  # another thread stops, or the same one after a step
        _E.RESUMED: _S.RUNNING,
        _E.EXITED: _S.TERMINATED,
        _E.DETACHED: _S.CREATED,
        _E.WORKER_LOST: _S.FAILED,
    },
    # A worker that ends after its program has ended loses nothing.
    _S.TERMINATED: {_E.STARTING: _S.LAUNCHING, _E.WORKER_LOST: _S.TERMINATED},
    _S.FAILED: {_E.WORKER_LOST: _S.FAILED},
}

# States whose session counts against the limit while it has a worker.
COUNTED: Final = frozenset({_S.CREATED, _S.LAUNCHING, _S.RUNNING, _S.PAUSED})
LIVE: Final = frozenset({_S.RUNNING, _S.PAUSED})
STARTED: Final = LIVE | {_S.LAUNCHING}
ENDED: Final = frozenset({_S.TERMINATED, _S.FAILED})
ANY: Final = frozenset(State)


def step(state: State, event: Event) -> State:
    """The state after `event`."""
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        raise IllegalTransition(state, event) from None


def mermaid() -> str:
    """The table as a diagram for the documentation."""
    lines = ["stateDiagram-v2", "    [*] --> created"]
    for state, row in TRANSITIONS.items():
        lines += [f"    {state} --> {after}: {event}" for event, after in row.items()]
    return "\n".join(lines)
