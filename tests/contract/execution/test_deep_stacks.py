"""Stepping, resuming and crashing far down in a recursion costs what it costs further up."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.kit.client import Client, Session
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

Write = Callable[..., Source]

DEEP = """
    import sys, threading

    sys.setrecursionlimit(20000)
    threading.stack_size(512 * 1024 * 1024)

    def deep(n):
        if n == 0:
            x = 1  # @bottom
            y = 2
            return x + y
        return deep(n - 1)

    def run():
        deep(5000)
        raise ValueError("after it")  # @after

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
"""


def seconds_of_the_way_back(session: Session, program: Source, steps: bool) -> float:
    session.break_at(program, program["bottom"])
    assert session.launch(program, wait=20)["status"] == "paused"
    if steps:
        stepped = session.post("/step-over").ok()
        assert stepped["current_location"]["line"] == program["bottom"] + 1
    begun = time.monotonic()
    stop = session.resume(wait=60)
    assert (stop["stop_reason"], stop["current_location"]["line"]) == (
        "exception",
        program["after"],
    )
    return time.monotonic() - begun


def test_a_step_does_not_make_the_way_back_slow(relay: Client, source: Write, python: str) -> None:
    program = source(DEEP)
    took = []
    for steps in (False, True):
        with relay.session(python_path=python) as session:
            took.append(seconds_of_the_way_back(session, program, steps))
    # Were each frame to look through all below it, it would be thirty times as long and more.
    assert took[1] < 8 * took[0] + 1, took
