"""Which processes there are below one, and what the kernel counts for each.

Reads /proc and keeps nothing. A process is known by its pid together with the moment of its birth,
which the kernel tells in the same line: a pid that was given again is another process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct

from debug_relay.protocol.secrets import shown_command

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_DEAD: Final = frozenset("ZX")
# Kernels without it (CONFIG_PROC_CHILDREN): then all of /proc is read for the parents.
_LISTS_CHILDREN: Final = os.path.exists(f"/proc/self/task/{os.getpid()}/children")


class Row(Struct, frozen=True):
    """One process at one moment: what `/proc/PID/stat` tells in one read."""

    pid: int
    born: int  # clock ticks since the machine started
    parent: int
    state: str  # the kernel's letter
    name: str
    own_seconds: float  # of processor time
    waited_seconds: float  # of its children that have ended and were collected
    resident_bytes: int
    threads: int

    @property
    def key(self) -> tuple[int, int]:
        return self.pid, self.born

    @property
    def born_seconds(self) -> float:
        """After the machine has started."""
        return self.born / _TICKS

    @property
    def lives(self) -> bool:
        return self.state not in _DEAD


def read(pid: int) -> Row | None:
    """None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            text = file.read(4096)
    except OSError:
        return None
    head, _, tail = text.rpartition(b")")  # the name may hold anything, brackets too
    fields = tail.split()
    return Row(
        pid=pid,
        state=fields[0].decode(),
        parent=int(fields[1]),
        own_seconds=(int(fields[11]) + int(fields[12])) / _TICKS,
        waited_seconds=(int(fields[13]) + int(fields[14])) / _TICKS,
        threads=int(fields[17]),
        born=int(fields[19]),
        resident_bytes=int(fields[21]) * _PAGE,
        name=head.partition(b"(")[2].decode("utf-8", "replace"),
    )


def uids(pid: int) -> frozenset[int]:
    """Real, effective, saved and that of the file system: a process may change from one to another
    at any moment. None when there is no such process."""
    try:
        with open(f"/proc/{pid}/status", "rb", buffering=0) as file:
            for line in file.read(4096).splitlines():
                if line.startswith(b"Uid:"):
                    return frozenset(map(int, line.split()[1:]))
    except OSError:
        pass  # it is gone
    return frozenset()


def below(pid: int, without: Iterable[int] = ()) -> list[Row]:
    """All that descend from `pid`, parents first, ended ones that nobody has collected too.

    Read parents first, a child that is collected meanwhile is missing for once and never counted
    twice. The kernel may leave one out while others end: who must have all looks again.
    """
    children = _lister()
    found: list[Row] = []
    waiting, seen = [(pid, 0)], {pid, *without}
    while waiting:
        for child in children(*waiting.pop()):
            row = read(child) if child not in seen else None
            seen.add(child)
            if row is not None:
                found.append(row)
                waiting.append((child, row.threads))
    return found


def children_of_us() -> list[int]:
    """Of this process, which starts all from its main thread; orphans are given to that as well."""
    return _lister()(os.getpid(), 1)


def _lister() -> Callable[[int, int], list[int]]:
    return _children if _LISTS_CHILDREN else _all_children()


def _children(pid: int, threads: int) -> list[int]:
    """Each thread has its own; those of the only one are asked for at once."""
    found: list[int] = []
    try:
        names = [str(pid)] if threads == 1 else os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in names:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as file:
                found += map(int, file.read().split())
        except OSError:
            continue  # the thread has ended
    return found


def _all_children() -> Callable[[int, int], list[int]]:
    """The same by the parents of all processes there are."""
    by_parent: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        row = read(int(name)) if name.isdigit() else None
        if row is not None:
            by_parent.setdefault(row.parent, []).append(row.pid)
    return lambda pid, threads: by_parent.get(pid, [])


def command(pid: int) -> str:
    """Its command line as it may be shown; empty when it has none, or is gone."""
    return " ".join(shown_command(words(pid))).strip()


def words(pid: int) -> list[str]:
    """The same, word by word."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb", buffering=0) as file:
            return file.read(4096).decode("utf-8", "replace").rstrip("\0").split("\0")
    except OSError:
        return []


def proportional_bytes(row: Row) -> int:
    """Its memory, of what it shares with others only its part; blocks for large programs."""
    try:
        with open(f"/proc/{row.pid}/smaps_rollup", "rb", buffering=0) as file:
            for line in file.read(4096).splitlines():
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass  # gone, another user's, or a kernel without: what it shares counts in full
    return row.resident_bytes
