"""A ring that one process writes while pages of it are read here."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from debug_relay.protocol.models.output_events import EventPage, OutputPage

RACE_SECONDS = 20.0
Page = TypeVar("Page", OutputPage, EventPage)


def racing(script: str, *arguments: object) -> subprocess.Popen[bytes]:
    writer = subprocess.Popen(
        [sys.executable, "-P", "-c", script, *map(str, arguments)], stdout=subprocess.PIPE
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"ready\n"
    return writer


def read_while_written(
    writer: subprocess.Popen[bytes], read: Callable[[str | None], Page]
) -> Iterator[Page]:
    """Every page until the writer is done and all is read; bounded by the clock."""
    deadline = time.monotonic() + RACE_SECONDS
    cursor = None
    try:
        while time.monotonic() < deadline:
            # Asked before the page: what it does not hold was written by then.
            done = writer.poll() is not None
            page = read(cursor)
            cursor = page.next_cursor
            yield page
            if done and not page.has_more:
                assert writer.returncode == 0
                return
        pytest.fail("reading did not come to an end")
    finally:
        writer.kill()
        writer.communicate()
