"""Facts about one process, read from outside: whether it is Python, which version, which libraries.

This module knows how Python installations look; `protocol/system/procfs.py` reads /proc. Whether a
process can be attached to is decided in `attach_preflight`.
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
    seccomp: int  # 1: the process has given up most system calls
    inner_pids: list[int]  # its pid in each namespace, the outermost first
    command: list[str]
    executable: str | None
    mapped: list[str]  # files in its memory; empty if we may not see them

    @property
    def name(self) -> str:
        """The name of the executable; if not visible, the first word of the command line."""
        return _name(self.executable or (self.command[0] if self.command else ""))

    @property
    def is_python(self) -> bool:
        return is_python(self.name) or any(_LIBRARY.search(p) for p in self.mapped)

    def minor(self) -> tuple[str, bool] | None:
        """The version, such as `3.11`, and whether it is a free-threaded build."""
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
        """The version, with its third number if the interpreter's headers are installed."""
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
        """Whether gevent has replaced threads by greenlets: then it has loaded its own thread-local
        data, which is rarely used otherwise.
        """
        return any(_THREAD_LOCALS in path for path in self.mapped)

    def descriptors(self) -> tuple[int, int] | None:
        """The number of open descriptors, and the limit."""
        opened, allowed = procfs.descriptors(self.pid), procfs.limit(self.pid, "Max open files")
        return (opened, allowed) if opened is not None and allowed is not None else None

    def file_size(self) -> int | None:
        """The limit on the size of files that it writes; None if unlimited or not visible to us."""
        return procfs.limit(self.pid, "Max file size")

    def cwd(self) -> str | None:
        return procfs.cwd(self.pid)

    def venv(self) -> str | None:
        """The virtual environment whose interpreter the process runs."""
        if not self.command or os.sep not in self.command[0]:
            return None
        started = os.path.join(self.cwd() or "/", self.command[0])
        prefix = os.path.dirname(os.path.dirname(os.path.normpath(started)))
        return prefix if os.path.exists(os.path.join(prefix, "pyvenv.cfg")) else None

    def start_time(self) -> float:
        """In seconds since the epoch; 0 if the process has ended."""
        with suppress(psutil.Error):
            return psutil.Process(self.pid).create_time()
        return 0.0


def look(pid: int) -> Facts | None:
    """The facts; None if there is no such process, or if it has ended and is not yet reaped."""
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
    """The words of the command line; empty for a kernel thread and for a process that has ended.
    Of a very long one we read the beginning only, because any user can start such a process.
    """
    words = procfs.command(pid, _COMMAND_BYTES)
    # A single word with spaces is a process title, which our launched programs set.
    return words[0].split(" ") if len(words) == 1 else words


def is_python(executable: str) -> bool:
    """Whether the executable's name is that of a Python interpreter."""
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
        "pyvenv.cfg": _VENV_VERSION,  # an environment whose interpreter is a copy
    }
    for name, pattern in places.items():
        with suppress(OSError):
            found = pattern.search(Path(prefix, name).read_text("utf-8", "replace"))
            if found is not None:
                return found.group(1)
    return None
