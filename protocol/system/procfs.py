"""Reads /proc, for supervisor and worker: the only reader of those files.

Each function reads the state of one moment and keeps nothing. None of the process's own code runs.
A value that is gone, or that this user may not see, is None or empty; callers that must distinguish
the two read the process's `stat`, which everybody may read. Every read has a bound, because anybody
may start a process with a long command line or many mapped files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Final

from msgspec import Struct

COMMAND_BYTES: Final = 4096  # A command line from /proc; a caller may ask for more.
_STAT_BYTES: Final = 4096  # /proc/PID/stat and /proc/PID/smaps_rollup.
_STATUS_BYTES: Final = 1 << 20  # /proc/PID/status; one line of it lists up to 65,536 groups.
_ENVIRONMENT_BYTES: Final = 16 << 20  # /proc/PID/environ.
_MAPS_BYTES: Final = 64 << 20  # /proc/PID/maps.
_TABLE_BYTES: Final = 64 << 20  # Tables of the kernel: children of a thread, sockets, /proc/stat.
_CHUNK_BYTES: Final = 1 << 16  # One read of a file in /proc.
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_PF_EXITING: Final = 0x4
_DEAD: Final = frozenset("ZX")
_CONNECTED: Final = "01"  # states of a TCP socket, as the kernel prints them
_LISTENS: Final = "0A"
_MAPPED_FILE: Final = re.compile(rb" (/.*)$", re.MULTILINE)
# Without CONFIG_PROC_CHILDREN a kernel has no lists of children.
_LISTS_CHILDREN: Final = os.path.exists(f"/proc/self/task/{os.getpid()}/children")
# The beginnings of the code that multiprocessing's helpers run.
_TRACKERS: Final = (
    "from multiprocessing.resource_tracker import main;",
    "from multiprocessing.semaphore_tracker import main;",
)


class Stat(Struct, frozen=True, kw_only=True):
    """One process at one moment: the fields of `/proc/PID/stat`, from one read."""

    pid: int
    name: str
    state: str  # the kernel's letter
    parent: int
    session: int
    terminal: int  # 0: the process has none
    is_exiting: bool  # the kernel is ending it
    own_seconds: float  # processor time
    waited_seconds: float  # that of its children that have ended and were collected
    threads: int
    start_ticks: int  # clock ticks from the machine's start to the process's
    virtual_bytes: int
    resident_bytes: int
    code_start: int  # an address
    arguments_end: int  # an address
    exit_status: int  # a zombie's, as `waitpid` would give it

    @property
    def key(self) -> tuple[int, int]:
        """Identifies this process: the kernel reuses a pid alone."""
        return self.pid, self.start_ticks

    @property
    def identity(self) -> str:
        """The identity for callers of the relay; valid until the machine starts again."""
        return f"{self.pid}-{self.start_ticks}-{boot_id()}"

    @property
    def started(self) -> float:
        """The start of the process, in seconds after that of the machine."""
        return self.start_ticks / _TICKS

    @property
    def lives(self) -> bool:
        return self.state not in _DEAD

    @property
    def is_loading(self) -> bool:
        """Whether the process is in the midst of exec: the kernel sets the code's address last. A
        dead process and a kernel thread have no memory at all.
        """
        return self.virtual_bytes != 0 and self.code_start == 0


class Status(Struct, frozen=True, kw_only=True):
    """The facts in `/proc/PID/status`; `pid` may also be a thread's number."""

    process: int  # the process that the thread belongs to; a process's own pid
    uids: tuple[int, ...]  # real, effective, saved, file system
    gids: tuple[int, ...]
    tracer: int  # the pid of its tracer; 0: none
    seccomp: int  # 1: it may only read and write
    inner_pids: tuple[int, ...]  # as namespaces see it, the outermost first
    waits: int  # the number of times that it has waited in the kernel


class Syscall(Struct, frozen=True, kw_only=True):
    """The system call in which a thread waits, and where it entered the kernel."""

    number: int
    arguments: tuple[int, ...]
    stack: int
    code: int


class Listener(Struct, frozen=True, kw_only=True):
    """A TCP socket that listens."""

    address: str  # in the kernel's format: words of 32 bits, in this machine's byte order
    port: int
    uid: int
    inode: str


class Connection(Struct, frozen=True, kw_only=True):
    """One end of a TCP connection."""

    port: int
    peer_port: int
    inode: str


# -- one process


def stat(pid: int) -> Stat | None:
    """The process's `stat`; None if there is no such process."""
    text = _read(f"/proc/{pid}/stat", _STAT_BYTES)
    # The name may contain anything, brackets and spaces too: the last bracket ends it.
    head, found, tail = text.rpartition(b")")
    if not found:
        return None
    fields = tail.split()
    return Stat(
        pid=pid,
        name=head.partition(b"(")[2].decode("utf-8", "replace"),
        state=fields[0].decode(),
        parent=int(fields[1]),
        session=int(fields[3]),
        terminal=int(fields[4]),
        is_exiting=bool(int(fields[6]) & _PF_EXITING),
        own_seconds=(int(fields[11]) + int(fields[12])) / _TICKS,
        waited_seconds=(int(fields[13]) + int(fields[14])) / _TICKS,
        threads=int(fields[17]),
        start_ticks=int(fields[19]),
        virtual_bytes=int(fields[20]),
        resident_bytes=int(fields[21]) * _PAGE,
        code_start=int(fields[23]),
        arguments_end=int(fields[46]),
        exit_status=int(fields[49]),
    )


def status(pid: int) -> Status | None:
    """The status of a process or thread; None if there is none."""
    lines = _read(f"/proc/{pid}/status", _STATUS_BYTES).splitlines()
    rows = {name: values for name, _, values in (line.partition(b":") for line in lines)}

    def numbers(name: bytes, default: int = 0) -> tuple[int, ...]:
        return tuple(map(int, rows[name].split())) if name in rows else (default,)

    if b"Uid" not in rows:
        return None
    return Status(
        process=numbers(b"Tgid", pid)[0],
        uids=numbers(b"Uid"),
        gids=numbers(b"Gid"),
        tracer=numbers(b"TracerPid")[0],
        seccomp=numbers(b"Seccomp")[0],
        inner_pids=numbers(b"NSpid", pid),
        waits=numbers(b"voluntary_ctxt_switches")[0],
    )


def uids(pid: int) -> frozenset[int]:
    """All uids that the process may take: it may change from one to another at any moment."""
    found = status(pid)
    return frozenset(found.uids) if found is not None else frozenset()


def start_ticks(pid: int) -> int | None:
    """The process's start, in clock ticks after the machine's."""
    found = stat(pid)
    return found.start_ticks if found is not None else None


def is_alive(pid: object, ticks: object) -> bool:
    """Whether this very process lives; `ticks` distinguish it from a later one with its pid."""
    if not isinstance(pid, int) or isinstance(pid, bool) or pid <= 0:
        return False
    found = stat(pid)
    return found is not None and found.lives and ticks in (None, found.start_ticks)


def executable(pid: int) -> str | None:
    """The path of the process's program; None for a thread of the kernel too."""
    return _link(f"/proc/{pid}/exe")


def cwd(pid: int) -> str | None:
    return _link(f"/proc/{pid}/cwd")


def command(pid: int, most: int = COMMAND_BYTES) -> list[str]:
    """The words of the process's command line, cut after `most` bytes. Empty for a thread of the
    kernel.
    """
    text = _read(f"/proc/{pid}/cmdline", most).rstrip(b"\0")
    return text.decode("utf-8", "replace").split("\0") if text else []


def is_tracker(words: list[str]) -> bool:
    """Whether this command line starts one of multiprocessing's trackers. They run none of the
    program's code, ignore SIGTERM, and end by themselves when no process needs them any more.
    """
    return any(
        option.startswith("-") and code.startswith(_TRACKERS) for option, code in pairwise(words)
    )


def environment(pid: int) -> list[bytes] | None:
    """Each `NAME=value` that the process was started with. Empty for a moment during an exec."""
    try:
        text = _read_or_raise(f"/proc/{pid}/environ", _ENVIRONMENT_BYTES)
    except OSError:
        return None
    return text.split(b"\0") if text else []


def maps(pid: int) -> bytes:
    """The table of the process's memory."""
    return _read(f"/proc/{pid}/maps", _MAPS_BYTES)


def memory(pid: int, address: int, most: int) -> bytes:
    """The process's memory from there on, at most to the mapping's end; empty if unreadable."""
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
            file.seek(address)
            return file.read(most)
    except (OSError, ValueError):
        return b""


def mapped_files(pid: int) -> list[str]:
    """The files that the process has mapped, each once."""
    found = dict.fromkeys(_MAPPED_FILE.findall(maps(pid)))
    return [path.decode("utf-8", "replace") for path in found]


def proportional_bytes(pid: int) -> int | None:
    """The process's memory, with its share of the pages that it shares (PSS). Blocks for large
    programs. None on older kernels.
    """
    for line in _read(f"/proc/{pid}/smaps_rollup", _STAT_BYTES).splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return None


def limit(pid: int, name: str) -> int | None:
    """A soft limit of the process, by the kernel's name for it; None if it is not limited, too."""
    for line in _read(f"/proc/{pid}/limits", _STAT_BYTES).decode().splitlines():
        if line.startswith(name):
            value = line[len(name) :].split()[0]
            return int(value) if value.isdigit() else None
    return None


def descriptors(pid: int) -> int | None:
    """The number of descriptors that the process has open."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None


def namespace(pid: int, kind: str) -> str | None:
    return _link(f"/proc/{pid}/ns/{kind}")


def is_in_our_namespace(pid: int, kind: str) -> bool:
    """Whether it is, also true if the kernel does not know that kind or does not show it."""
    theirs = namespace(pid, kind)
    return theirs is None or theirs == namespace(os.getpid(), kind)


# -- threads and children


def threads(pid: int) -> list[int]:
    try:
        return sorted(map(int, os.listdir(f"/proc/{pid}/task")))
    except OSError:
        return []


def thread_state(pid: int, thread: int) -> str | None:
    """The kernel's letter: R while the thread runs or could run; None when it is gone."""
    _, found, tail = _read(f"/proc/{pid}/task/{thread}/stat", _STAT_BYTES).rpartition(b")")
    return tail.split()[0].decode() if found else None


def syscall(pid: int, thread: int) -> Syscall | None:
    """The system call in which the thread waits; None while it runs."""
    fields = _read(f"/proc/{pid}/task/{thread}/syscall", _STAT_BYTES).split()
    # `running`, or -1 with two addresses for one that waits in no call.
    if len(fields) != 9:
        return None
    arguments = tuple(int(field, 16) for field in fields[1:7])
    return Syscall(
        number=int(fields[0]),
        arguments=arguments,
        stack=int(fields[7], 16),
        code=int(fields[8], 16),
    )


def children(pid: int, only_thread: bool = False) -> list[int]:
    """The process's children: the kernel lists those of each thread separately. With `only_thread`
    the process has no other thread, and we look for none.
    """
    if not _LISTS_CHILDREN:
        return _children_by_parent().get(pid, [])
    found: list[int] = []
    for thread in [pid] if only_thread else threads(pid):
        found += map(int, _read(f"/proc/{pid}/task/{thread}/children", _TABLE_BYTES).split())
    return found


def descendants(pid: int) -> list[Stat]:
    """All descendants of the process, parents first, including ended ones that are not collected
    yet.

    Because parents are read first, a child that is collected meanwhile is missing once and never
    counted twice. The kernel may leave one out while others end: a caller that needs all of them
    looks again.
    """
    by_parent = None if _LISTS_CHILDREN else _children_by_parent()
    found: list[Stat] = []
    waiting, seen = [(pid, 0)], {pid}
    while waiting:
        parent, thread_count = waiting.pop()
        if by_parent is None:
            of_it = children(parent, only_thread=thread_count == 1)
        else:
            of_it = by_parent.get(parent, [])
        for child in of_it:
            row = stat(child) if child not in seen else None
            seen.add(child)
            if row is not None:
                found.append(row)
                waiting.append((child, row.threads))
    return found


def _children_by_parent() -> dict[int, list[int]]:
    """The children of every process, from one pass over all processes."""
    found: dict[int, list[int]] = {}
    for pid in pids():
        row = stat(pid)
        if row is not None:
            found.setdefault(row.parent, []).append(pid)
    return found


# -- the machine


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


@cache
def boot_id() -> str:
    """An id that changes with each start of the machine; empty if the kernel does not show it."""
    return _read("/proc/sys/kernel/random/boot_id", _STAT_BYTES).decode().strip()


def ptrace_scope() -> str:
    """Whom Yama lets a user's process trace: `0` to `3`; empty on a kernel without Yama."""
    return _read("/proc/sys/kernel/yama/ptrace_scope", _STAT_BYTES).decode().strip()


@cache
def boot_time() -> int:
    """The start of the machine, in seconds since the epoch."""
    for line in _read("/proc/stat", _TABLE_BYTES).splitlines():
        if line.startswith(b"btime "):
            return int(line.split()[1])
    return 0


# -- sockets


def sockets(pid: int) -> set[str]:
    """The inodes of the sockets that the process has open."""
    found: set[str] = set()
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return found
    for name in names:
        # One descriptor may be closed meanwhile; the others still count.
        target = _link(f"/proc/{pid}/fd/{name}")
        if target is not None and target.startswith("socket:["):
            found.add(target[8:-1])
    return found


def listeners(pid: int) -> Iterator[Listener]:
    """All listeners in the network namespace of this process, of any process."""
    for local, _, state, uid, inode in _tcp_sockets(pid):
        if state == _LISTENS:
            address, _, port = local.partition(":")
            yield Listener(address=address, port=int(port, 16), uid=int(uid), inode=inode)


def connections(pid: int) -> Iterator[Connection]:
    """All connections in the network namespace of this process, of any process."""
    for local, peer, state, _, inode in _tcp_sockets(pid):
        if state == _CONNECTED:
            port, peer_port = (int(end.rpartition(":")[2], 16) for end in (local, peer))
            yield Connection(port=port, peer_port=peer_port, inode=inode)


def _tcp_sockets(pid: int) -> Iterator[tuple[str, str, str, str, str]]:
    """The local end, the peer's end, the state, the uid and the inode of each TCP socket."""
    for table in ("tcp", "tcp6"):
        for row in _read(f"/proc/{pid}/net/{table}", _TABLE_BYTES).decode().splitlines()[1:]:
            _, local, peer, state, _, _, _, uid, _, inode, *_ = row.split()
            yield local, peer, state, uid, inode


# -- reading


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def _read(path: str, most: int) -> bytes:
    try:
        return _read_or_raise(path, most)
    except OSError:
        return b""


def _read_or_raise(path: str, most: int) -> bytes:
    """At most `most` bytes; the kernel may return them in several pieces."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = os.read(descriptor, min(most, _CHUNK_BYTES))
        if not text or len(text) == most:
            return text
        pieces, size = [text], len(text)
        while size < most and (piece := os.read(descriptor, min(most - size, _CHUNK_BYTES))):
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces)
    finally:
        os.close(descriptor)
