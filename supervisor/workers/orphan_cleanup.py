"""What a dead worker leaves: ended by the mark in its environment, and by descent.

A mark alone is no proof that a process is ours to end: a debugged test may have started the user's
tmux. So nothing that has a terminal is ended by its mark, unless it descends from us.

Trackers of multiprocessing come last: they unlink their program's shared memory once it is gone.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Collection
from contextlib import suppress
from typing import Final

from debug_relay.protocol.system import procfs
from debug_relay.protocol.version import MARK

_PR_SET_CHILD_SUBREAPER: Final = 36
_CLEANUP_SECONDS: Final = 5.0  # What a dead worker has left is ended within this time.
_EXEC_SECONDS: Final = 0.5  # A process in the midst of exec has this long to show its environment.
# multiprocessing's tracker has this long to clean up and end by itself.
_TRACKER_SECONDS: Final = 0.5


def become_subreaper() -> None:
    """Orphans of dead workers become our children, where they are seen."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_marked(session_id: str) -> list[int]:
    """End every process that carries the session's mark; the pids of those ended."""
    wanted = f"{MARK}={session_id}".encode()
    ended: set[int] = set()
    began = now = time.monotonic()
    patience = began + _TRACKER_SECONDS
    while now < began + _CLEANUP_SECONDS:
        others = (pid for pid in procfs.pids() if pid != os.getpid())
        found = [pid for pid in others if carries(pid, wanted)]
        if not found:
            break
        if now < patience:
            trackers = [pid for pid in found if procfs.is_tracker(procfs.command(pid))]
            # On a busy machine it waits for a processor: only the time that it sleeps counts.
            if any(_is_busy(pid) for pid in trackers):
                patience = min(now + _TRACKER_SECONDS, began + _CLEANUP_SECONDS / 2)
            found = [pid for pid in found if pid not in trackers]
        ended.update(pid for pid in found if _kill(pid, wanted))
        time.sleep(0.02)  # until the kernel has taken them away; runs in a thread of its own
        now = time.monotonic()
    return sorted(ended)


def reap_orphans(watched: Collection[int]) -> None:
    """Collect the dead that became our children when their worker died; at each child's end.

    They are of another process session than we; what the relay itself starts and waits for is not.
    How one of `watched` ended is told to who watches it.
    """
    for pid in procfs.children(os.getpid()):
        stat = procfs.stat(pid) if pid not in watched else None
        if stat is None or stat.parent != os.getpid() or stat.session == os.getsid(0):
            continue
        if stat.state == "Z":
            with suppress(ChildProcessError):  # somebody was quicker
                os.waitpid(pid, os.WNOHANG)


def carries(pid: int, mark: bytes) -> bool:
    """Whether it carries that mark in its environment, and may be ended for it."""
    return mark in _environment(pid) and _may_be_ended(pid)


def _environment(pid: int) -> list[bytes]:
    """Of one in the midst of exec too, which for microseconds (more on a busy box) shows none."""
    deadline = time.monotonic() + _EXEC_SECONDS
    may_be_loading = True
    while True:
        environment = procfs.environment(pid)
        if environment is None:
            return []  # gone, or another user's
        if environment or not may_be_loading or time.monotonic() >= deadline:
            return environment
        stat = procfs.stat(pid)
        # If it is loading no more, it may have been when its environment was read.
        may_be_loading = stat is not None and stat.is_loading
        if may_be_loading:
            time.sleep(0.001)


def _is_busy(pid: int) -> bool:
    stat = procfs.stat(pid)
    return stat is not None and stat.state in "RD"


def _may_be_ended(pid: int) -> bool:
    stat = procfs.stat(pid)
    if stat is None or stat.state == "Z":
        return False
    return not stat.terminal or stat.parent == os.getpid()


def _kill(pid: int, mark: bytes) -> bool:
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        # With the handle in hand the pid cannot change owner any more: look again, then kill.
        if not carries(pid, mark):
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True
