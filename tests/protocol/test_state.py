"""Every state with every event, and walks that keep to what the rest of the product relies on."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from debug_relay.protocol.state import (
    ANY,
    COUNTED,
    ENDED,
    LIVE,
    TRANSITIONS,
    Event,
    IllegalTransition,
    State,
    mermaid,
    step,
)
from tests.kit.cases import in_one_test

EVERY = list(itertools.product(State, Event))

# Written out a second time, on purpose: a changed table must be meant.
LEGAL = {
    ("created", "starting"): "launching",
    ("created", "exited"): "terminated",
    ("created", "worker_lost"): "failed",
    ("launching", "refused"): "created",
    ("launching", "ready"): "running",
    ("launching", "exited"): "terminated",
    ("launching", "worker_lost"): "failed",
    ("running", "stopped"): "paused",
    ("running", "exited"): "terminated",
    ("running", "detached"): "created",
    ("running", "worker_lost"): "failed",
    ("paused", "stopped"): "paused",
    ("paused", "resumed"): "running",
    ("paused", "exited"): "terminated",
    ("paused", "detached"): "created",
    ("paused", "worker_lost"): "failed",
    ("terminated", "starting"): "launching",
    ("terminated", "worker_lost"): "terminated",
    ("failed", "worker_lost"): "failed",
}


@in_one_test(EVERY)
def test_every_state_with_every_event(state: State, event: Event):
    after = LEGAL.get((state.value, event.value))
    if after is not None:
        assert step(state, event) is State(after)
        return
    with pytest.raises(IllegalTransition) as caught:
        step(state, event)
    assert (caught.value.state, caught.value.event) == (state, event)
    assert state.value in str(caught.value)
    assert event.value in str(caught.value)


def test_every_state_has_a_row_and_can_be_reached():
    assert set(TRANSITIONS) == set(State) == ANY
    reached = {State.CREATED}
    while more := {s for r in reached for s in TRANSITIONS[r].values()} - reached:
        reached |= more
    assert reached == ANY


def test_the_groups_of_states_fit_together():
    assert ANY == COUNTED | ENDED
    assert not COUNTED & ENDED
    assert LIVE < COUNTED


@given(events=st.lists(st.sampled_from(Event), max_size=60))
def test_any_walk(events: list[Event]):
    """An event that does not fit changes nothing; a lost worker ends every session for good."""
    state = State.CREATED
    lost = False
    for event in events:
        before = state
        try:
            state = step(state, event)
        except IllegalTransition:
            assert event not in TRANSITIONS[before]
            continue
        assert state is step(before, event), "the same question has the same answer"
        lost = lost or event is Event.WORKER_LOST
        if event is Event.WORKER_LOST:
            assert state in ENDED
        if state is State.PAUSED:
            assert event is Event.STOPPED
            assert before in LIVE
        if before is State.FAILED:
            assert state is State.FAILED
    for state in State:
        assert Event.WORKER_LOST in TRANSITIONS[state], "a worker can die at any time"


def test_the_diagram_shows_every_transition():
    lines = mermaid().splitlines()
    assert lines[0] == "stateDiagram-v2"
    assert "    [*] --> created" in lines
    for (state, event), after in LEGAL.items():
        assert f"    {state} --> {after}: {event}" in lines
    assert len(lines) == 2 + len(LEGAL)
