"""Leaving nobody behind: everything that descends from this worker ends with it.

The worker is a subreaper, so a daemonised grandchild becomes its child instead of init's. Passes go
on until two in a row find nobody: who is killed may have forked a moment before.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Set
from typing import Final

from msgspec import Struct

from debug_relay.protocol.version import MARK

_PR_SET_CHILD_SUBREAPER: Final = 36
_PASS_SECONDS: Final = 0.01


class Ended(Struct):
    pid: int
    command: str


def become_subreaper() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def descendants(of: int) -> list[int]:
    """All processes below `of`, children before grandchildren."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            parent = _parent(int(name))
            if parent is not None:
                children.setdefault(parent, []).append(int(name))
    found: list[int] = []
    waiting = [of]
    while waiting:
        below = children.get(waiting.pop(0), [])
        found += below
        waiting += below
    return found


def _parent(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] == b"Z" else int(fields[1])


def end_marked_descendants(session_id: str, deadline: float) -> None:
    """SIGKILL to those below us that a program of this session has started, and them alone.

    They carry the session's mark, unless they have cleared their environment; what the worker
    itself has just asked something does not.
    """
    mark = f"{MARK}={session_id}".encode()
    dying: set[int] = set()
    while time.monotonic() < deadline:
        found = [pid for pid in descendants(os.getpid()) if _carries(pid, mark)]
        for pid in found:
            _kill(pid)
        dying = {pid for pid in dying.union(found) if _is_unreaped(pid)}
        if not found and not dying:
            return
        time.sleep(_PASS_SECONDS)  # in a thread of its own


def _carries(pid: int, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return mark in file.read().split(b"\0")
    except OSError:
        return False


def _is_unreaped(pid: int) -> bool:
    """Whether it is a child of ours that has not ended yet; one that has is collected."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == 0
    except ChildProcessError:
        return False  # its own parent lives, or it is gone


def end_descendants(deadline: float, spared: Set[int] = frozenset()) -> list[Ended]:
    """SIGKILL to all below us but the spared; returns who was there. `deadline` is monotonic."""
    ended: dict[int, Ended] = {}
    empty = 0
    while empty < 2 and _has_children() and time.monotonic() < deadline:
        below = [pid for pid in descendants(os.getpid()) if pid not in spared]
        empty = 0 if below else empty + 1
        for pid in below:
            ended.setdefault(pid, Ended(pid, _command(pid)))
            _kill(pid)
        reap()
        if below:
            time.sleep(_PASS_SECONDS)  # the loop has ended: nothing else waits for this process
    return list(ended.values())


def _has_children() -> bool:
    """Orphans become ours: who has no child has no descendant."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _kill(pid: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return  # gone since the look
    try:
        # Between the look and the handle the pid may have changed hands: only our own descend.
        if pid in descendants(os.getpid()):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        os.close(handle)


def reap() -> None:
    """Collect the children that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except ChildProcessError:
        return


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(4096).replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return ""
