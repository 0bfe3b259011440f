"""Whether another worker can be started: space on disk, descriptors, processes.

Disk and descriptors are checked at each call. Whether the kernel allows another process is tried
only after a start has failed, because the attempt costs time.
"""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import time
from pathlib import Path
from typing import Final

from debug_relay.supervisor.storage.directories import Directories
from debug_relay.supervisor.storage.disk_health import LITTLE_BYTES

_START_DESCRIPTORS: Final = 4  # Descriptors that the start of a worker has open at one time.
_TRY_SECONDS: Final = 1.0  # Whether a process can be forked is tried at most this often.
_NOTHING: Final = "/bin/true"


class StartCapacity:
    def __init__(self, directories: Directories) -> None:
        self._directories = directories
        self._has_failed = False
        self._tried, self._found = float("-inf"), ""
        self._trying = asyncio.Lock()

    def start_failed(self) -> None:
        """Notes that the last worker could not be started, for whatever reason."""
        self._has_failed = True

    def start_succeeded(self) -> None:
        self._has_failed = False

    async def lacking(self) -> str | None:
        """A text that names what another worker lacks, and how to mend it; or None."""
        lacking = _disk(self._directories.run_dir) or _descriptors()
        if lacking is None and self._has_failed:
            lacking = await self._processes()
            self._has_failed = lacking is not None
        return lacking

    async def _processes(self) -> str | None:
        async with self._trying:
            if time.monotonic() - self._tried >= _TRY_SECONDS:
                self._found = await asyncio.to_thread(_try_process)
                self._tried = time.monotonic()
        return self._found or None


def _disk(run_dir: Path) -> str | None:
    try:
        about = os.statvfs(run_dir)
    except OSError as error:
        return f"the run directory {run_dir} cannot be read ({error.strerror}): make it readable"
    left = about.f_bavail * about.f_frsize
    if about.f_flag & os.ST_RDONLY:
        return f"the run directory {run_dir} is read-only: name another with --run-dir"
    if left < LITTLE_BYTES:
        return (
            f"the disk of the run directory {run_dir} is full ({left} bytes left): make room "
            "there, or DELETE sessions that are not needed"
        )
    if about.f_files and not about.f_favail:
        return f"the disk of the run directory {run_dir} takes no more files: remove some"
    return None


def _descriptors() -> str | None:
    taken: list[int] = []
    try:
        while len(taken) < _START_DESCRIPTORS:
            taken.append(os.open("/", os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return (
            f"the relay has no file descriptors left (it may have {most}): close idle connections, "
            "or start it with a higher ulimit -n"
        )
    finally:
        for descriptor in taken:
            os.close(descriptor)
    return None


def _try_process() -> str:
    """Empty if the kernel allows another process. Blocks for a millisecond."""
    try:
        pid = os.posix_spawn(_NOTHING, [_NOTHING], {})
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.ENOMEM):
            return ""  # a missing /bin/true says nothing about processes
        return (
            f"the kernel gives the relay no more processes ({error.strerror}): end some of this "
            "user's, or start the relay with a higher ulimit -u or cgroup limit"
        )
    os.waitpid(pid, 0)
    return ""
