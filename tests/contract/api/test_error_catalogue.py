"""Every error there is: how it comes about, and that what it suggests does help.

The stories are in `error_stories/`, by subject.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import tests.contract.api.error_stories.access
import tests.contract.api.error_stories.attaching
import tests.contract.api.error_stories.debugging
import tests.contract.api.error_stories.launching
import tests.contract.api.error_stories.relay_itself
import tests.contract.api.error_stories.requests
import tests.contract.api.error_stories.sessions  # noqa: F401
from debug_relay.protocol.errors import ERRORS, Code
from tests.contract.api.error_stories.scene import STORIES, Scene
from tests.kit.client import Client
from tests.kit.relay import Relay
from tests.kit.source import Source


@pytest.fixture
def scene(
    relay: Client,
    shared_relay: Relay,
    source: Callable[..., Source],
    own_relay: Callable[..., Relay],
    tmp_path: Path,
) -> Iterator[Scene]:
    with ExitStack() as ends:
        yield Scene(relay, shared_relay, source, own_relay, tmp_path, ends)


SLOW = {Code.WORKER_UNRESPONSIVE}


# Told one after the other of the same stopped program.
AT_A_STOP = {
    Code.MISSING_PARAMETER,
    Code.THREAD_NOT_FOUND,
    Code.FRAME_NOT_FOUND,
    Code.EVALUATE_ERROR,
    Code.DEBUGPY_TIMEOUT,
    Code.VARIABLE_NOT_FOUND,
}


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(code, marks=[pytest.mark.slow] if code in SLOW else [])
        for code in STORIES
        if code not in AT_A_STOP
    ],
)
def test_what_it_suggests_helps(scene: Scene, code: Code) -> None:
    tell(scene, code)


def test_what_it_suggests_at_a_stop_helps(scene: Scene) -> None:
    for code in STORIES:
        if code in AT_A_STOP:
            tell(scene, code)


def tell(scene: Scene, code: Code) -> None:
    story = STORIES[code](scene)
    error = next(story).refused(code, ERRORS[code].status)
    with pytest.raises(StopIteration):
        story.send(error)


def test_no_code_is_left_out() -> None:
    assert set(STORIES) == set(Code)
