"""Ends the processes that a dead worker has left.

The mark in a process's environment says which session it belongs to. A mark alone does not prove
that we may end the process: a debugged test may have started the user's tmux. So a process with a
terminal is ended only if it is also our child.

multiprocessing's resource trackers are ended last: they unlink the shared memory of their program
once it is gone.
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
_CLEANUP_SECONDS: Final = 5.0  # The processes of a dead worker are ended within this time.
_EXEC_SECONDS: Final = 0.5  # A process in the midst of exec has this long to show its environment.
# multiprocessing's tracker has this long to clean up and end by itself.
_TRACKER_SECONDS: Final = 0.5


def become_subreaper() -> None:
    """Makes the kernel give us the orphans of dead workers as children, so that we see them."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_marked(session_id: str) -> list[int]:
    """Ends every process that carries the session's mark; returns the pids of those ended."""
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
            # On a busy machine a tracker waits for a processor. That time does not count.
            if any(_is_busy(pid) for pid in trackers):
                patience = min(now + _TRACKER_SECONDS, began + _CLEANUP_SECONDS / 2)
            found = [pid for pid in found if pid not in trackers]
        ended.update(pid for pid in found if _kill(pid, wanted))
        time.sleep(0.02)  # in a thread of its own, until the kernel has removed them
        now = time.monotonic()
    return sorted(ended)


def reap_orphans(watched: Collection[int]) -> None:
    """Reaps the orphans that became our children when their worker died. Called at each SIGCHLD.

    Orphans are in another process session than we; processes that the relay itself starts and waits
    for are not. Those in `watched` are left to their `Child`, which needs the exit status.
    """
    for pid in procfs.children(os.getpid()):
        stat = procfs.stat(pid) if pid not in watched else None
        if stat is None or stat.parent != os.getpid() or stat.session == os.getsid(0):
            continue
        if stat.state == "Z":
            with suppress(ChildProcessError):  # another call has reaped it
                os.waitpid(pid, os.WNOHANG)


def carries(pid: int, mark: bytes) -> bool:
    """Whether the process carries that mark in its environment, and may be ended for it."""
    return mark in _environment(pid) and _may_be_ended(pid)


def _environment(pid: int) -> list[bytes]:
    """The process's environment. During an exec the kernel shows none for some microseconds, on a
    busy machine longer; then we look again.
    """
    deadline = time.monotonic() + _EXEC_SECONDS
    may_be_loading = True
    while True:
        environment = procfs.environment(pid)
        if environment is None:
            return []  # gone, or another user's
        if environment or not may_be_loading or time.monotonic() >= deadline:
            return environment
        stat = procfs.stat(pid)
        # Even if the process is not loading now, it may have been when we read its environment.
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
        # While we hold the pidfd the pid cannot pass to another process: look again, then kill.
        if not carries(pid, mark):
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True
