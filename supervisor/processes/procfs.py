"""What the kernel's files say about a process; nothing of the process's own is run or asked.

Knows /proc and how Python installations look. What follows from a fact is decided elsewhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, Literal

import psutil
from msgspec import Struct

from debug_relay.protocol.models.processes import identity_of

_PYTHON: Final = re.compile(r"^python(\d(?:\.\d+)?)?(t)?(d)?$")
_LIBRARY: Final = re.compile(r"libpython(\d\.\d+)(t?)d?\.so")
_LIBRARY_IN_MAPS: Final = re.compile(rb"/libpython\d\.\d+t?d?\.so")
_FILE_IN_MAPS: Final = re.compile(rb" (/.*)$", re.MULTILINE)
_EXTENSION: Final = re.compile(r"\.cpython-(\d)(\d+)(t?)d?-[\w-]+\.so$")
# The beginning of a command line, in bytes.
_LONGEST_COMMAND: Final = 64 * 1024
_PATCH_LEVEL: Final = re.compile(r'^#define\s+PY_VERSION\s+"([^"]+)"', re.MULTILINE)
_VENV_VERSION: Final = re.compile(r"^version\s*=\s*(\d\S+)$", re.MULTILINE)
_LISTENING: Final = "0A"
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
        with suppress(OSError):
            limit = self._limit("Max open files")
            return (len(os.listdir(f"/proc/{self.pid}/fd")), limit) if limit is not None else None
        return None

    def file_size(self) -> int | None:
        """How many bytes of a file it may write."""
        return self._limit("Max file size")

    def _limit(self, name: str) -> int | None:
        with suppress(OSError, StopIteration, ValueError):
            limits = Path(f"/proc/{self.pid}/limits").read_text().splitlines()
            row = next(line for line in limits if line.startswith(name))
            return int(row[len(name) :].split()[0])
        return None  # not ours to see, or unlimited

    def cwd(self) -> str | None:
        with suppress(OSError):
            return os.readlink(f"/proc/{self.pid}/cwd")
        return None

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
    try:
        stat = _read(pid, "stat").rpartition(b")")[2].split()
        status = dict(
            line.split(":", 1)
            for line in _read(pid, "status").decode("utf-8", "replace").splitlines()
            if ":" in line
        )
        words = command(pid)
    except (OSError, ValueError):
        return None
    if stat[0] in (b"Z", b"X") or int(status.get("Tgid", pid)) != pid:
        return None
    executable = None
    with suppress(OSError):
        executable = os.readlink(f"/proc/{pid}/exe")
    return Facts(
        pid=pid,
        identity=identity_of(pid, int(stat[19]), _boot_id()),
        state=stat[0].decode(),
        uid=int(status["Uid"].split()[1]),
        tracer=int(status.get("TracerPid", 0)),
        seccomp=int(status.get("Seccomp", 0)),
        inner_pids=[int(inner) for inner in status.get("NSpid", str(pid)).split()],
        command=words,
        executable=executable,
        mapped=_mapped(pid),
    )


def pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def command(pid: int) -> list[str]:
    """Empty for a thread of the kernel's, and for a process that is gone; the beginning of one that
    is very long, for anybody may start such a process."""
    with suppress(OSError):
        words = _read(pid, "cmdline", _LONGEST_COMMAND).rstrip(b"\0")
        # One word with spaces is a title, as a launched program has where it is short.
        between = b"\0" if b"\0" in words else b" "
        return [word.decode("utf-8", "replace") for word in words.split(between)] if words else []
    return []


def is_python(executable: str) -> bool:
    """Whether it calls itself so."""
    return _PYTHON.match(_name(executable)) is not None


def embeds_python(pid: int) -> bool:
    with suppress(OSError):
        return _LIBRARY_IN_MAPS.search(_read(pid, "maps")) is not None
    return False


def _name(executable: str) -> str:
    return os.path.basename(executable.removesuffix(" (deleted)"))


def _mapped(pid: int) -> list[str]:
    with suppress(OSError):
        found = dict.fromkeys(_FILE_IN_MAPS.findall(_read(pid, "maps")))
        return [path.decode("utf-8", "replace") for path in found]
    return []


def _read(pid: int, name: str, most: int = -1) -> bytes:
    with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:
        return file.read(most)


class Listeners:
    """The TCP ports that processes listen on. The kernel's tables are read once for all of them."""

    def __init__(self) -> None:
        self._ports: dict[str, dict[str, int]] = {}  # network → inode of the socket → port

    def of(self, pid: int) -> list[int]:
        inodes = set()
        with suppress(OSError):
            for descriptor in os.scandir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    target = os.readlink(descriptor.path)
                    if target.startswith("socket:["):
                        inodes.add(target[8:-1])
        if not inodes:
            return []
        ports = self._listened_on(pid)
        return sorted({ports[inode] for inode in inodes & ports.keys()})

    def _listened_on(self, pid: int) -> dict[str, int]:
        try:
            network = os.readlink(f"/proc/{pid}/ns/net")
        except OSError:
            return {}  # gone, or not ours to see
        if network not in self._ports:
            found = self._ports[network] = {}
            for table in ("tcp", "tcp6"):
                with suppress(OSError):
                    for row in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                        fields = row.split()
                        if fields[3] == _LISTENING:
                            found[fields[9]] = int(fields[1].rpartition(":")[2], 16)
        return self._ports[network]


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


@cache
def _boot_id() -> str:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""
