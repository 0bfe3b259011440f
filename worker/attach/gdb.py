"""One run of gdb in a program.

We never signal gdb once it has begun: that would kill the program. It runs in a session of its own,
writes to a file, and outlives the worker if it must. Its commands are on descriptors, because every
user can read command lines.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from typing import IO, Any, Final

from debug_relay.protocol.system import procfs
from debug_relay.worker.system import own_processes

_TAIL_BYTES: Final = 4000  # The end of gdb's output that is read.
_SYMBOLS: Final = re.compile(r"/lib(c|python[^/]*)[.-][^/]*$")  # libraries that gdb needs
_LIBRARIES: Final = (
    # Otherwise a signal to the program ends gdb's call half-way through.
    "handle all nostop noprint pass",
    "set scheduler-locking off",
    r"sharedlibrary libc\.",
    "sharedlibrary libpython",
)
# Tries what gdb will do: trace the program, and read by their paths the files that it runs.
_TRIAL: Final = 'exec 3<>"/proc/$1/mem"; shift; for file; do : <"$file"; done'
_TRIAL_SECONDS: Final = 2.0  # A trial of whether this gdb works at all.


class Gdb:
    """No debug information and few symbols are read: the program stands still meanwhile."""

    def __init__(self, program: int, commands: Sequence[str], given: tuple[int, ...] = ()) -> None:
        """`given` are descriptors that the commands speak of."""
        self.ended = asyncio.Event()
        self.code: int | None = None
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed by release
        script = os.memfd_create("debug-relay-injection")
        try:
            os.write(script, "\n".join([*_LIBRARIES, *commands, ""]).encode())
            self._popen = subprocess.Popen(
                [
                    shutil.which("gdb") or "gdb",
                    *("--nw", "--nh", "--nx", "--batch", "--readnever"),
                    *("-iex", "set auto-solib-add off", "-iex", "set debuginfod enabled off"),
                    *("-iex", "set auto-load off"),
                    *("--pid", str(program), "-x", f"/proc/self/fd/{script}"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "HOME": "/"},
                pass_fds=(script, *given),
                cwd="/",
                start_new_session=True,
                **_identity_for(program),
            )
        except BaseException:
            self._output.close()
            raise
        finally:
            os.close(script)
        self.pid = self._popen.pid
        # A signal to gdb at work would kill the program that it is in: nothing may end it.
        own_processes.add(self.pid, outlives=True)
        self._pidfd = os.pidfd_open(self.pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._exited)

    def _exited(self) -> None:
        self.code = self._popen.poll()
        if self.code is None:
            return
        own_processes.remove(self.pid)
        self._close_pidfd()
        self.ended.set()

    def said(self) -> str:
        if self._output.closed:
            return ""
        size = os.fstat(self._output.fileno()).st_size
        data = os.pread(self._output.fileno(), _TAIL_BYTES, max(0, size - _TAIL_BYTES))
        return data.decode("utf-8", "replace")

    def told(self, what: str) -> int | None:
        """The number that its commands have printed as `relay WHAT: …`.

        gdb may run as the program's user, who can then let it print anything.
        """
        found = re.search(rf"^relay {what}: (-?[0-9]{{1,20}})$", self.said(), re.MULTILINE)
        return int(found.group(1)) if found else None

    def release(self) -> None:
        """Watch no longer; it goes on as long as it must, and is collected at our end."""
        self._close_pidfd()
        self._output.close()
        if self.code is None:
            self._popen.returncode = 0  # no warning of a child that we leave

    def _close_pidfd(self) -> None:
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1


def _identity_for(program: int) -> dict[str, Any]:
    """The user as whom gdb runs, as arguments of `subprocess`; empty for ourselves.

    gdb reads the program's files, which its user may write. So a relay that runs as root lets gdb
    run as that user wherever this user can do all of it. He cannot if the program is not dumpable
    or has capabilities (a daemon that began as root), if Yama or a namespace forbids it, or if root
    started the program from a folder that is closed to him: there gdb stays root.
    """
    owner = _user_of(program) if os.geteuid() == 0 else None
    if owner is None or owner[0] == 0:
        return {}
    identity: dict[str, Any] = {"user": owner[0], "group": owner[1], "extra_groups": []}
    try:
        tried = subprocess.run(
            ["/bin/sh", "-e", "-c", _TRIAL, "sh", str(program), *_code_of(program)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            timeout=_TRIAL_SECONDS,
            check=False,
            **identity,
        )
    except (OSError, subprocess.SubprocessError):
        return {}  # root may not become another user here
    return identity if tried.returncode == 0 else {}


def _user_of(pid: int) -> tuple[int, int] | None:
    """Uid and gid, where there is only one of each."""
    status = procfs.status(pid)
    if status is None or len({*status.uids[:3]}) != 1 or len({*status.gids[:3]}) != 1:
        return None
    return status.uids[0], status.gids[0]


def _code_of(pid: int) -> list[str]:
    """The program's file, and the libraries whose symbols are needed."""
    found = {path for path in procfs.mapped_files(pid) if _SYMBOLS.search(path)}
    if executable := procfs.executable(pid):
        found.add(executable)
    return sorted(found)
