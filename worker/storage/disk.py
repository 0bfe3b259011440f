"""Writing files without holding up the event loop: one thread, one write after the other.

An fsync takes as long as the disk likes. A `Keeper` brings one file up to date: what is asked for
while a write is under way goes into one more write, so a burst costs two.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Final

log = logging.getLogger("debug_relay.worker")
_PATIENCE: Final = 5.0
_LOOK_AGAIN: Final = 0.01

Job = Callable[[], None]


class Disk:
    """A thread that writes. A daemon: a disk that hangs must not hold the worker's end."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[tuple[Job, asyncio.Future[None]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="disk", daemon=True)
        self._thread.start()

    async def run(self, job: Job) -> None:
        """Do the job in the thread, after those before it; what it raises is raised here."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._jobs.put((job, done))
        await done

    def close(self) -> None:
        self._jobs.put(None)

    def _work(self) -> None:
        while (entry := self._jobs.get()) is not None:
            job, done = entry
            failure: Exception | None = None
            try:
                job()
            except Exception as error:
                failure = error
            with suppress(RuntimeError):  # the loop has ended: nobody waits any more
                self._loop.call_soon_threadsafe(_tell, done, failure)


def _tell(done: asyncio.Future[None], failure: Exception | None) -> None:
    if done.done():
        return
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(failure)


class Keeper:
    """Keeps one file up to date.

    `next_job` says what is to be written now, `on_written` hears that it is; both on the loop.
    """

    def __init__(
        self,
        disk: Disk,
        what: str,
        next_job: Callable[[], Job],
        on_written: Callable[[], None] = lambda: None,
    ) -> None:
        self._disk = disk
        self._what = what
        self._next_job = next_job
        self._on_written = on_written
        self._asked = self._tried = self._written = 0
        self._writing: asyncio.Task[None] | None = None
        self._waiters: set[asyncio.Future[None]] = set()
        self.is_failing = False  # what was asked for last is not on disk

    def ask(self) -> None:
        """Something is new."""
        self._asked += 1
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name=f"write {self._what}")

    async def settled(self, timeout: float = _PATIENCE) -> bool:
        """Whether all that was asked for until now is on disk; tells when it is."""
        wanted, deadline = self._asked, time.monotonic() + timeout
        while self._tried < wanted and (left := deadline - time.monotonic()) > 0:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                await asyncio.wait([waiter], timeout=left)
            finally:
                self._waiters.discard(waiter)
        return self._written >= wanted

    async def close(self) -> None:
        """After a last chance for what is not written yet."""
        await self.settled()
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)

    async def _write(self) -> None:
        try:
            while self._tried < self._asked:
                asked = self._asked
                self.is_failing = not await self._once()
                if not self.is_failing:
                    self._written = asked
                self._tried = asked
                for waiter in self._waiters:
                    if not waiter.done():
                        waiter.set_result(None)
        finally:
            self._writing = None

    async def _once(self) -> bool:
        """A full or read-only disk degrades persistence, never a session."""
        try:
            await self._disk.run(self._next_job())
        except (OSError, ValueError) as error:
            fields = {"what": self._what, "error": str(error)}
            log.warning("disk.not_written", extra={"fields": fields})
            return False
        self._on_written()
        return True


def write_atomically(path: Path, data: bytes) -> None:
    """Whole or not at all, whenever the machine stops. One writer at a time for one path."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Always the same name: one that was left by a writer that was killed is written over.
    temporary = path.with_name(f".{path.name}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(temporary, flags, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """A new name is on disk only when its directory is."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def locked(path: Path, timeout: float = _PATIENCE) -> Iterator[None]:
    """Alone among all processes that lock this path; leaves no file behind. Blocks."""
    deadline = time.monotonic() + timeout
    while (fd := _try_lock(path)) is None:
        if time.monotonic() >= deadline:
            raise TimeoutError(errno.ETIMEDOUT, "another process holds the lock", str(path))
        time.sleep(_LOOK_AGAIN)  # in the disk's thread; flock has no deadline of its own
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        os.close(fd)


def _try_lock(path: Path) -> int | None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Whoever held it before has taken the name away: then this is nobody's lock any more.
        if os.path.samestat(os.fstat(fd), os.stat(path)):
            return fd
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return None
