"""One run of gdb in a program.

gdb is never signalled once it has begun: that would kill the program. It runs in a session of its
own, writes to a file, and outlives us where it must; what it was told is on descriptors, because
command lines can be read by everybody.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from typing import IO, Final

_TAIL: Final = 4000
_under_way: set[int] = set()
_LIBRARIES: Final = (
    # Otherwise a signal to the program ends gdb's call half-way through.
    "handle all nostop noprint pass",
    "set scheduler-locking off",
    r"sharedlibrary libc\.",
    "sharedlibrary libpython",
)


def under_way() -> frozenset[int]:
    """Those that have not ended: nobody may end them."""
    return frozenset(_under_way)


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
            )
        except BaseException:
            self._output.close()
            raise
        finally:
            os.close(script)
        self.pid = self._popen.pid
        _under_way.add(self.pid)
        self._pidfd = os.pidfd_open(self.pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._exited)

    def _exited(self) -> None:
        self.code = self._popen.poll()
        if self.code is None:
            return
        _under_way.discard(self.pid)
        self._close_pidfd()
        self.ended.set()

    def said(self) -> str:
        if self._output.closed:
            return ""
        size = os.fstat(self._output.fileno()).st_size
        data = os.pread(self._output.fileno(), _TAIL, max(0, size - _TAIL))
        return data.decode("utf-8", "replace")

    def told(self, what: str) -> str | None:
        """What its commands have printed as `relay WHAT: …`."""
        found = re.search(rf"^relay {what}: (.*)$", self.said(), re.MULTILINE)
        return found.group(1) if found else None

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
