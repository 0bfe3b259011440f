"""Leaving nobody behind: everything that descends from this worker ends with it.

The worker is a subreaper, so a daemonised grandchild becomes its child instead of init's. Passes go
on until two in a row find nobody: who is killed may have forked a moment before.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from typing import Final

from msgspec import Struct

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


def end_descendants(deadline: float) -> list[Ended]:
    """SIGKILL to all below us; returns who was there. `deadline` is monotonic."""
    ended: dict[int, Ended] = {}
    empty = 0
    while empty < 2 and time.monotonic() < deadline:
        below = descendants(os.getpid())
        empty = 0 if below else empty + 1
        for pid in below:
            ended.setdefault(pid, Ended(pid, _command(pid)))
            _kill(pid)
        reap()
        if below:
            time.sleep(_PASS_SECONDS)  # the loop has ended: nothing else waits for this process
    return list(ended.values())


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
