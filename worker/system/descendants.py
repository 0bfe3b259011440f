"""Ends the worker's descendants: every process that its programs have left.

The worker is a subreaper, so a daemonised grandchild becomes its child instead of init's. All
processes are stopped (SIGSTOP) before any is killed: a stopped process cannot fork, so not even a
fork bomb escapes. Passes continue until two in a row find nothing, because the last process may
have forked just before it was stopped.

multiprocessing's resource trackers are ended last. A tracker unlinks the shared memory and the
semaphores that its program has left, and ends when the other end of its pipe is closed. If it were
killed together with the program, all that would stay in /dev/shm for ever.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import time
from collections.abc import Callable, Iterable, Set
from typing import Final

from msgspec import Struct

from debug_relay.protocol.secrets import masked_command
from debug_relay.protocol.system import procfs
from debug_relay.protocol.system.procfs import Stat
from debug_relay.worker.system import own_processes

log = logging.getLogger("debug_relay.worker")
_PR_SET_CHILD_SUBREAPER: Final = 36
_PASS_SECONDS: Final = 0.005  # The pause between two passes that end a program's processes.
# multiprocessing's tracker has this long to clean up and end by itself.
_TRACKER_SECONDS: Final = 0.5
# A process in the midst of exec has this long to show its command line.
_EXEC_SECONDS: Final = 0.25
_STOPPED: Final = frozenset("Tt")
_BUSY: Final = frozenset("RD")


class Ended(Struct, frozen=True):
    """A process that was ended with its session or its program."""

    pid: int
    command: str


def become_subreaper() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def of_programs() -> list[Stat] | None:
    """The worker's descendants that are a program or were started by one.

    The worker's own processes (an interpreter that answers a question, gdb) are not among them.
    None while they cannot be distinguished, because the worker is starting one.
    """
    found = procfs.descendants(os.getpid())
    if own_processes.is_starting():
        return None
    return _without(found, own_processes.running())


def uids() -> set[int]:
    """The uids of the session's processes."""
    return {uid for row in of_programs() or () for uid in procfs.uids(row.pid)}


def _without(rows: Iterable[Stat], own: Set[int]) -> list[Stat]:
    """The rows without own processes and their descendants. Parents come first in `rows`."""
    left, out = [], set(own)
    for row in rows:
        if row.pid in out or row.parent in out:
            out.add(row.pid)
        else:
            left.append(row)
    return left


def end_programs(deadline: float, awaited: int | None) -> list[Ended]:
    """Kills all processes that the session's programs have left; returns them.

    `awaited` is the program itself, whose exit code another part waits for. Blocks for some
    milliseconds, at most until `deadline`, which is monotonic.
    """
    return _Ending().run(of_programs, lambda: collect_adopted(awaited), deadline)


def end_descendants(deadline: float, spared: Set[int] = frozenset()) -> list[Ended]:
    """Kills all descendants but the spared ones. Called after the event loop has ended."""

    def left() -> list[Stat]:
        if not _has_children():
            return []  # orphans become our children, so without a child there is no descendant
        return _without(procfs.descendants(os.getpid()), spared)

    return _Ending().run(left, _collect_all, deadline)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def named(rows: list[Stat]) -> list[Ended]:
    return [Ended(row.pid, shown_command_of(row.pid) or row.name) for row in rows if row.lives]


def shown_command_of(pid: int) -> str:
    """The command line without secrets; empty if the process has none, or has ended."""
    return " ".join(masked_command(procfs.command(pid))).strip()


def is_tracker(pid: int) -> bool:
    """Whether it is multiprocessing's resource tracker: that ends by itself and ignores SIGTERM."""
    return procfs.is_tracker(procfs.command(pid))


def collect_adopted(awaited: int | None) -> None:
    """Collect the ended ones among the orphans that became children of this worker."""
    children = procfs.children(os.getpid(), only_thread=True)
    if own_processes.is_starting():
        return
    for pid in set(children) - {awaited} - own_processes.running():
        row = procfs.stat(pid)
        if row is not None and row.state == "Z":
            _collect(pid)


def _collect_all() -> None:
    while _collect(-1):
        continue


def _collect(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


class _Ending:
    """One run of passes over the descendants, until none is left."""

    def __init__(self) -> None:
        self._ended: dict[tuple[int, int], Ended] = {}
        self._beyond: set[tuple[int, int]] = set()  # setuid programs, which we may not signal
        self._trackers: set[tuple[int, int]] = set()
        # Until then we wait for trackers, once the others have ended.
        self._patience: float | None = None
        self._nameless: set[tuple[int, int]] = set()
        self._loaded: float | None = None  # a process without a command line then has none

    def run(
        self, find: Callable[[], list[Stat] | None], collect: Callable[[], None], deadline: float
    ) -> list[Ended]:
        empty = 0
        # We also wait no longer for trackers if other processes keep appearing: something that only
        # looks like a tracker may start them.
        at_last = (time.monotonic() + deadline) / 2
        while empty < 2 and time.monotonic() < deadline:
            found = find()
            living = [r for r in found or () if r.lives and r.key not in self._beyond]
            empty = empty + 1 if found is not None and not living else 0
            due = self._due(living, at_last)
            if self._freeze(due):
                continue  # they may have started others before: look again at once
            self._signal(due, signal.SIGKILL)
            collect()
            if not empty:
                time.sleep(_PASS_SECONDS)  # in a thread of its own, or after the loop's end
        return list(self._ended.values())

    def _due(self, living: list[Stat], at_last: float) -> list[Stat]:
        """The processes to kill now: trackers only after they had time to clean up and end."""
        now = time.monotonic()
        if now >= min(at_last, self._patience or at_last):
            return living
        others = [row for row in living if not self._is_tracker(row)]
        if living and not others:
            if self._patience is None:
                # A tracker that was stopped with its process group could not clean up.
                self._signal(living, signal.SIGCONT)
            # On a busy machine a tracker waits for a processor. That time does not count.
            if self._patience is None or any(row.state in _BUSY for row in living):
                self._patience = now + _TRACKER_SECONDS
        return others

    def _is_tracker(self, row: Stat) -> bool:
        """Whether it is a tracker. We read a stopped process again only if it had no name."""
        named = row.key in self._ended and row.key not in self._nameless
        if not named and row.key not in self._trackers and is_tracker(row.pid):
            self._trackers.add(row.key)
            # If it was stopped in the midst of an exec: it may end by itself.
            self._ended.pop(row.key, None)
        return row.key in self._trackers

    def _freeze(self, living: list[Stat]) -> bool:
        """Stops the processes; whether one must be looked at again: it is new or nameless."""
        new = [row for row in living if row.key not in self._ended]
        nameless = []
        for row in living:
            if row.key not in self._ended or row.key in self._nameless:
                command = shown_command_of(row.pid)
                self._ended[row.key] = Ended(row.pid, command or row.name)
                nameless += [] if command else [row]
        self._nameless = {row.key for row in nameless}
        self._signal(new, signal.SIGSTOP)
        return bool(new) or self._may_be_loading(nameless)

    def _may_be_loading(self, nameless: list[Stat]) -> bool:
        """Whether one of them may be in the midst of an exec: then it has no command line for a
        moment, and stops only afterwards.
        """
        if all(row.state in _STOPPED for row in nameless):
            return False
        now = time.monotonic()
        self._loaded = self._loaded or now + _EXEC_SECONDS
        time.sleep(min(_PASS_SECONDS, max(0, self._loaded - now)))
        return now < self._loaded

    def _signal(self, rows: list[Stat], number: signal.Signals) -> None:
        for row in rows:
            try:
                send(row, number)
            except PermissionError:
                self._beyond.add(row.key)
                self._ended.pop(row.key, None)
                log.warning("sweep.not_ours", extra={"fields": {"pid": row.pid}})


def send(row: Stat, number: signal.Signals) -> None:
    """Signals by pidfd, after a second look: the pid may have passed to another process."""
    try:
        handle = os.pidfd_open(row.pid)
    except OSError:
        return  # it has ended
    try:
        now = procfs.stat(row.pid)
        if now is not None and now.key == row.key:
            signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return
    finally:
        os.close(handle)
