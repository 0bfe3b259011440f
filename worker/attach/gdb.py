"""One run of gdb in a program.

We never signal gdb once it has begun: that would kill the program. It runs in a session of its own,
writes to a file, and outlives the worker if it must. It reads its commands from a descriptor,
because every user can read command lines.
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
# This shell script tries what gdb will do: write to the program's memory, and read its files by
# their paths.
_TRIAL: Final = 'exec 3<>"/proc/$1/mem"; shift; for file; do : <"$file"; done'
_TRIAL_SECONDS: Final = 2.0  # A trial of whether this gdb works at all.


def _sysroot(program: int) -> tuple[str, ...]:
    """In another container gdb would enter the program's mount namespace to read its libraries,
    which needs CAP_SYS_ADMIN. The right to trace the program is enough for `/proc/PID/root`.
    """
    if procfs.is_in_our_namespace(program, "mnt"):
        return ()
    return ("-iex", f"set sysroot /proc/{program}/root")


class Gdb:
    """Starts gdb and waits for its end. gdb reads no debug information and few symbols, because the
    program is stopped meanwhile.
    """

    def __init__(self, program: int, commands: Sequence[str], given: tuple[int, ...] = ()) -> None:
        """`given` are descriptors that the commands use."""
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
                    *_sysroot(program),
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

    def output(self) -> str:
        if self._output.closed:
            return ""
        size = os.fstat(self._output.fileno()).st_size
        data = os.pread(self._output.fileno(), _TAIL_BYTES, max(0, size - _TAIL_BYTES))
        return data.decode("utf-8", "replace")

    def printed_number(self, what: str) -> int | None:
        """The number that the commands have printed as `relay WHAT: …`.

        gdb may run as the program's user, who can then let it print anything.
        """
        found = re.search(rf"^relay {what}: (-?[0-9]{{1,20}})$", self.output(), re.MULTILINE)
        return int(found.group(1)) if found else None

    def release(self) -> None:
        """Stop watching gdb. It runs as long as it must, and the kernel collects it at our end."""
        self._close_pidfd()
        self._output.close()
        if self.code is None:
            self._popen.returncode = 0  # Popen must not warn of a child that we leave running

    def _close_pidfd(self) -> None:
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1


def _identity_for(program: int) -> dict[str, Any]:
    """The user as whom gdb runs, as arguments of `subprocess`; empty for our own user.

    gdb reads the program's files, which the program's user may write. So a relay that runs as root
    runs gdb as that user if that user may do all that gdb needs. That user may not if the program
    is not dumpable or has capabilities (a daemon that began as root), if Yama or a namespace
    forbids it, or if root started the program from a folder that the user cannot read. gdb then
    runs as root.
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
        return {}  # root may not change its user here
    return identity if tried.returncode == 0 else {}


def _user_of(pid: int) -> tuple[int, int] | None:
    """The process's uid and gid; None if it has several."""
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
