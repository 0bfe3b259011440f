"""What a dead worker leaves: ended by the mark in its environment, and by descent.

A mark alone is no proof that a process is ours to end: a debugged test may have started the user's
tmux. So nothing that has a terminal is ended by its mark, unless it descends from us.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from typing import Final

from debug_relay.protocol.version import MARK

_PR_SET_CHILD_SUBREAPER: Final = 36
_SECONDS: Final = 5.0


def become_subreaper() -> None:
    """Orphans of dead workers become our children, where they are seen."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_marked(session_id: str) -> list[int]:
    """End every process that carries the session's mark; the pids of those ended."""
    wanted = f"{MARK}={session_id}".encode()
    ended: set[int] = set()
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        found = [pid for pid in _pids() if _carries(pid, wanted)]
        for pid in found:
            if _kill(pid, wanted):
                ended.add(pid)
        if not found or not ended.issuperset(found):
            break
        time.sleep(0.02)  # until the kernel has taken them away; runs in a thread of its own
    return sorted(ended)


def reap_orphans() -> None:
    """Collect the dead that became our children when their worker died; at each child's end.

    They are of another process session than we; what the relay itself starts and waits for is not.
    """
    for pid in _children():
        try:
            state, parent, session, _ = _stat(pid)
            if state == b"Z" and parent == os.getpid() and session != os.getsid(0):
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


def _carries(pid: int, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            marked = mark in file.read().split(b"\0")
        return marked and _may_be_ended(pid)
    except OSError:
        return False  # gone, or another user's


def _may_be_ended(pid: int) -> bool:
    state, parent, _, terminal = _stat(pid)
    return state != b"Z" and (not terminal or parent == os.getpid())


def _stat(pid: int) -> tuple[bytes, int, int, int]:
    """State, parent, process session and terminal."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return fields[0], int(fields[1]), int(fields[3]), int(fields[4])


def _kill(pid: int, mark: bytes) -> bool:
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        # With the handle in hand the pid cannot change owner any more: look again, then kill.
        if not _carries(pid, mark):
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True
