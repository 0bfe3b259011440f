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


@pytest.mark.parametrize(
    "code",
    [pytest.param(code, marks=[pytest.mark.slow] if code in SLOW else []) for code in STORIES],
)
def test_what_it_suggests_helps(scene: Scene, code: Code) -> None:
    story = STORIES[code](scene)
    error = next(story).refused(code, ERRORS[code].status)
    with pytest.raises(StopIteration):
        story.send(error)


def test_no_code_is_left_out() -> None:
    assert set(STORIES) == set(Code)
