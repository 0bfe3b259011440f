"""The processes that the worker starts for itself: interpreters for one question, and gdb.

They are no programs of the session. A sweep of its programs spares them, and their starter alone
collects them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_running: Final[dict[int, bool]] = {}  # pid → whether the process may outlive the worker
_starting = 0


@contextmanager
def starting() -> Iterator[None]:
    """Mark the time in which a process exists whose pid the worker does not know yet."""
    global _starting
    _starting += 1
    try:
        yield
    finally:
        _starting -= 1


def is_starting() -> bool:
    """Whether one of the descendants may be a process of the worker's own that is not listed."""
    return _starting > 0


def add(pid: int, outlives: bool = False) -> None:
    _running[pid] = outlives


def remove(pid: int) -> None:
    _running.pop(pid, None)


def running() -> frozenset[int]:
    return frozenset(_running)


def outliving() -> frozenset[int]:
    """The processes that even the worker's end spares."""
    return frozenset(pid for pid, outlives in _running.items() if outlives)
