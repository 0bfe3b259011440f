"""What the kernel's files say about a process; nothing of the process's own is run or asked.

Knows /proc and how Python installations look. What follows from a fact is decided elsewhere.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, Literal

import psutil
from msgspec import Struct

from debug_relay.protocol.processes import identity_of

# For looking into the memory maps of what does not call itself Python: it may embed one.
_EMBEDDED_SECONDS: Final = 1.0
_PYTHON: Final = re.compile(r"^python(\d(?:\.\d+)?)?(t)?(d)?$")
_LIBRARY: Final = re.compile(r"libpython(\d\.\d+)(t?)d?\.so")
_EXTENSION: Final = re.compile(r"\.cpython-(\d)(\d+)(t?)d?-[\w-]+\.so$")
_PATCH_LEVEL: Final = re.compile(r'^#define\s+PY_VERSION\s+"([^"]+)"', re.MULTILINE)
_VENV_VERSION: Final = re.compile(r"^version\s*=\s*(\d\S+)$", re.MULTILINE)
_LISTENING: Final = "0A"


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
        path = self.executable or (self.command[0] if self.command else "")
        return os.path.basename(path.removesuffix(" (deleted)"))

    @property
    def is_python(self) -> bool:
        return bool(_PYTHON.match(self.name)) or any(_LIBRARY.search(p) for p in self.mapped)

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

    def descriptors(self) -> tuple[int, int] | None:
        """How many are open, and how many may be."""
        with suppress(OSError, StopIteration, ValueError):
            limits = Path(f"/proc/{self.pid}/limits").read_text().splitlines()
            row = next(line for line in limits if line.startswith("Max open files"))
            return len(os.listdir(f"/proc/{self.pid}/fd")), int(row.split()[3])
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


def look(pid: int, into_memory: bool = True) -> Facts | None:
    """None when there is no such process, or only its remains."""
    folder = Path(f"/proc/{pid}")
    try:
        stat = (folder / "stat").read_bytes().rpartition(b")")[2].split()
        status = dict(
            line.split(":", 1)
            for line in (folder / "status").read_text("utf-8", "replace").splitlines()
            if ":" in line
        )
        command = (folder / "cmdline").read_bytes()
    except (OSError, ValueError):
        return None
    if stat[0] in (b"Z", b"X") or int(status.get("Tgid", pid)) != pid:
        return None
    executable = None
    with suppress(OSError):
        executable = os.readlink(folder / "exe")
    return Facts(
        pid=pid,
        identity=identity_of(pid, int(stat[19]), _boot_id()),
        state=stat[0].decode(),
        uid=int(status["Uid"].split()[1]),
        tracer=int(status.get("TracerPid", 0)),
        seccomp=int(status.get("Seccomp", 0)),
        inner_pids=[int(inner) for inner in status.get("NSpid", str(pid)).split()],
        command=[part.decode("utf-8", "replace") for part in command.rstrip(b"\0").split(b"\0")]
        if command
        else [],
        executable=executable,
        mapped=_mapped(pid) if into_memory else [],
    )


def pythons() -> Iterator[Facts]:
    """All that are Python; programs that embed one as far as time allows."""
    deadline = time.monotonic() + _EMBEDDED_SECONDS
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        facts = look(int(name), into_memory=False)
        if facts is None or not facts.command:
            continue  # gone, or a thread of the kernel's
        if facts.is_python or time.monotonic() < deadline:
            facts.mapped = _mapped(facts.pid)
        if facts.is_python:
            yield facts


def _mapped(pid: int) -> list[str]:
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    paths = (line.split(None, 5) for line in lines)
    found = dict.fromkeys(p[5] for p in paths if len(p) > 5 and p[5].startswith(b"/"))
    return [path.decode("utf-8", "replace") for path in found]


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
