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
from typing import Final, NamedTuple

from debug_relay.protocol.version import MARK

_PR_SET_CHILD_SUBREAPER: Final = 36
_SECONDS: Final = 5.0
_EXEC_SECONDS: Final = 0.5
_TRACKER_SECONDS: Final = 0.5
_TRACKER: Final = b"from multiprocessing.resource_tracker import main;"


def become_subreaper() -> None:
    """Orphans of dead workers become our children, where they are seen."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_marked(session_id: str) -> list[int]:
    """End every process that carries the session's mark; the pids of those ended."""
    wanted = f"{MARK}={session_id}".encode()
    ended: set[int] = set()
    began = now = time.monotonic()
    patience = began + _TRACKER_SECONDS
    while now < began + _SECONDS:
        found = [pid for pid in _pids() if carries(pid, wanted)]
        if not found:
            break
        if now < patience:
            trackers = [pid for pid in found if _is_tracker(pid)]
            # On a busy machine it waits for a processor: only the time that it sleeps counts.
            if any(_is_busy(pid) for pid in trackers):
                patience = min(now + _TRACKER_SECONDS, began + _SECONDS / 2)
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
    for pid in _children():
        if pid in watched:
            continue
        try:
            stat = _stat(pid)
            ours = stat.parent == os.getpid() and stat.session != os.getsid(0)
            if stat.state == b"Z" and ours:
                os.waitpid(pid, os.WNOHANG)
        except OSError:
            continue  # gone: somebody was quicker


def _children() -> list[int]:
    """By the kernel's own list, where it keeps one."""
    found: list[int] = []
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/children") as file:
                found += map(int, file.read().split())
        except FileNotFoundError:
            if os.path.exists(f"/proc/self/task/{thread}"):
                return _pids()
    return found


def _pids() -> list[int]:
    return [
        int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()
    ]


def carries(pid: int, mark: bytes) -> bool:
    """Whether it carries that mark in its environment, and may be ended for it."""
    try:
        return mark in _environment(pid).split(b"\0") and _may_be_ended(pid)
    except OSError:
        return False  # gone, or another user's


def _environment(pid: int) -> bytes:
    """Of one in the midst of exec too, which for microseconds (more on a busy box) shows none."""
    deadline = time.monotonic() + _EXEC_SECONDS
    may_be_loading = True
    while True:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read()
        if environment or not may_be_loading or time.monotonic() >= deadline:
            return environment
        may_be_loading = _stat(pid).is_loading  # if not, it may have been when it was read
        if may_be_loading:
            time.sleep(0.001)


def _is_tracker(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().split(b"\0")
    except OSError:
        return False  # gone
    return any(word.startswith(_TRACKER) for word in words)


def _is_busy(pid: int) -> bool:
    try:
        return _stat(pid).state in (b"R", b"D")
    except OSError:
        return False  # gone


def _may_be_ended(pid: int) -> bool:
    stat = _stat(pid)
    return stat.state != b"Z" and (not stat.terminal or stat.parent == os.getpid())


class _Stat(NamedTuple):
    state: bytes
    parent: int
    session: int
    terminal: int
    is_loading: bool


def _stat(pid: int) -> _Stat:
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    # The code's place is set last of all; the dead and the kernel's own have no memory either.
    is_loading = fields[20] != b"0" and fields[23] == b"0"
    return _Stat(fields[0], int(fields[1]), int(fields[3]), int(fields[4]), is_loading)


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
