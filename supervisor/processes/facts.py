"""What can be told of a process from outside, and what of it says that it is Python.

Knows how Python installations look; `protocol/system/procfs.py` reads /proc. What follows from a
fact is decided elsewhere.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, Literal

import psutil
from msgspec import Struct

from debug_relay.protocol.system import procfs

_PYTHON: Final = re.compile(r"^python(\d(?:\.\d+)?)?(t)?(d)?$")
_LIBRARY: Final = re.compile(r"libpython(\d\.\d+)(t?)d?\.so")
_LIBRARY_IN_MAPS: Final = re.compile(rb"/libpython\d\.\d+t?d?\.so")
_EXTENSION: Final = re.compile(r"\.cpython-(\d)(\d+)(t?)d?-[\w-]+\.so$")
# The beginning of a process's command line that is searched and shown.
_COMMAND_BYTES: Final = 64 * 1024
_PATCH_LEVEL: Final = re.compile(r'^#define\s+PY_VERSION\s+"([^"]+)"', re.MULTILINE)
_VENV_VERSION: Final = re.compile(r"^version\s*=\s*(\d\S+)$", re.MULTILINE)
_THREAD_LOCALS: Final = "/gevent/_gevent_clocal."


class Facts(Struct):
    """One process at one moment."""

    pid: int
    identity: str
    state: str  # the kernel's letter
    uid: int  # the effective one
    tracer: int
    seccomp: int  # 1: few system calls are left to it
    inner_pids: list[int]  # as namespaces see it, the outermost first
    command: list[str]
    executable: str | None
    mapped: list[str]  # files in its memory; empty when they may not be seen

    @property
    def name(self) -> str:
        """What it calls itself: its executable, or what can be seen of that."""
        return _name(self.executable or (self.command[0] if self.command else ""))

    @property
    def is_python(self) -> bool:
        return is_python(self.name) or any(_LIBRARY.search(p) for p in self.mapped)

    def minor(self) -> tuple[str, bool] | None:
        """`3.11`, and whether it is built without the interpreter's lock."""
        for path in self.mapped:
            if found := _LIBRARY.search(path):
                return found.group(1), bool(found.group(2))
            if found := _EXTENSION.search(path):
                return f"{found.group(1)}.{found.group(2)}", bool(found.group(3))
        found = _PYTHON.match(self.name)
        if found is None or not found.group(1):
            return None
        return found.group(1), bool(found.group(2))

    def version(self) -> str | None:
        """To the micro version where its headers are installed."""
        minor = self.minor()
        if minor is None:
            return None
        return _exact_version(self.executable or "", minor[0]) or minor[0]

    def greenlets(self) -> Literal["gevent", "eventlet"] | None:
        if any("/gevent/" in path for path in self.mapped):
            return "gevent"
        for path in self.mapped:
            packages, found, _ = path.partition("/greenlet/")
            if found and os.path.isdir(f"{packages}/eventlet"):
                return "eventlet"
        return None

    def has_patched_threads(self) -> bool:
        """Whether gevent has made greenlets of its threads. For that it loads its own kind of
        thread-local data, which little else needs."""
        return any(_THREAD_LOCALS in path for path in self.mapped)

    def descriptors(self) -> tuple[int, int] | None:
        """How many are open, and how many may be."""
        opened, allowed = procfs.descriptors(self.pid), procfs.limit(self.pid, "Max open files")
        return (opened, allowed) if opened is not None and allowed is not None else None

    def file_size(self) -> int | None:
        """How many bytes of a file it may write; None when it is not ours to see, or unlimited."""
        return procfs.limit(self.pid, "Max file size")

    def cwd(self) -> str | None:
        return procfs.cwd(self.pid)

    def venv(self) -> str | None:
        """The virtual environment whose interpreter it was started by."""
        if not self.command or os.sep not in self.command[0]:
            return None
        started = os.path.join(self.cwd() or "/", self.command[0])
        prefix = os.path.dirname(os.path.dirname(os.path.normpath(started)))
        return prefix if os.path.exists(os.path.join(prefix, "pyvenv.cfg")) else None

    def start_time(self) -> float:
        with suppress(psutil.Error):
            return psutil.Process(self.pid).create_time()
        return 0.0


def look(pid: int) -> Facts | None:
    """None when there is no such process, or only its remains."""
    stat, status = procfs.stat(pid), procfs.status(pid)
    if stat is None or status is None or not stat.lives or status.process != pid:
        return None
    return Facts(
        pid=pid,
        identity=stat.identity,
        state=stat.state,
        uid=status.uids[1],
        tracer=status.tracer,
        seccomp=status.seccomp,
        inner_pids=list(status.inner_pids),
        command=command(pid),
        executable=procfs.executable(pid),
        mapped=procfs.mapped_files(pid),
    )


def command(pid: int) -> list[str]:
    """Empty for a thread of the kernel's, and for a process that is gone; the beginning of one that
    is very long, for anybody may start such a process."""
    words = procfs.command(pid, _COMMAND_BYTES)
    # One word with spaces is a title, as a launched program has where it is short.
    return words[0].split(" ") if len(words) == 1 else words


def is_python(executable: str) -> bool:
    """Whether it calls itself so."""
    return _PYTHON.match(_name(executable)) is not None


def embeds_python(pid: int) -> bool:
    return _LIBRARY_IN_MAPS.search(procfs.maps(pid)) is not None


def _name(executable: str) -> str:
    return os.path.basename(executable.removesuffix(" (deleted)"))


@cache
def _exact_version(executable: str, minor: str) -> str | None:
    prefix = os.path.dirname(os.path.dirname(executable))
    places = {
        f"include/python{minor}/patchlevel.h": _PATCH_LEVEL,
        "pyvenv.cfg": _VENV_VERSION,  # one whose interpreter is a copy
    }
    for name, pattern in places.items():
        with suppress(OSError):
            found = pattern.search(Path(prefix, name).read_text("utf-8", "replace"))
            if found is not None:
                return found.group(1)
    return None
