"""Writes files without blocking the event loop: one thread, one write after the other.

An fsync takes as long as the disk wants. A `Keeper` keeps one file up to date: requests that arrive
during a write share the next write, so a burst costs two.
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
_SETTLED_SECONDS: Final = 5.0  # A caller waits this long for the disk or for the lock of a file.
_LOOK_AGAIN_SECONDS: Final = 0.01  # The pause between two attempts to lock a file.

Job = Callable[[], None]


class Disk:
    """A thread that writes. It is a daemon: a hanging disk must not block the worker's end."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[tuple[Job, asyncio.Future[None]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="disk", daemon=True)
        self._thread.start()

    async def run(self, job: Job) -> None:
        """Runs the job in the thread, after the earlier ones; its exception is raised here."""
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
            with suppress(RuntimeError):  # the loop has ended, so no task waits any more
                self._loop.call_soon_threadsafe(_resolve, done, failure)


def _resolve(done: asyncio.Future[None], failure: Exception | None) -> None:
    if done.done():
        return
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(failure)


class Keeper:
    """Keeps one file up to date.

    `next_job` returns the write that is needed now; `on_written` is called after it. Both run on
    the loop.
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
        self._requested = self._tried = self._written = 0
        self._writing: asyncio.Task[None] | None = None
        self._waiters: set[asyncio.Future[None]] = set()
        self.is_failing = False  # the last requested write has failed

    def ask(self) -> None:
        """Requests a write of the present content."""
        self._requested += 1
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name=f"write {self._what}")

    async def settled(self, timeout: float = _SETTLED_SECONDS) -> bool:
        """Waits until all writes requested so far were tried; returns whether they are on disk."""
        wanted, deadline = self._requested, time.monotonic() + timeout
        while self._tried < wanted and (left := deadline - time.monotonic()) > 0:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                await asyncio.wait([waiter], timeout=left)
            finally:
                self._waiters.discard(waiter)
        return self._written >= wanted

    async def close(self) -> None:
        """Gives pending writes a last chance, then stops."""
        await self.settled()
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)

    async def _write(self) -> None:
        try:
            while self._tried < self._requested:
                requested = self._requested
                self.is_failing = not await self._once()
                if not self.is_failing:
                    self._written = requested
                self._tried = requested
                for waiter in self._waiters:
                    if not waiter.done():
                        waiter.set_result(None)
        finally:
            self._writing = None

    async def _once(self) -> bool:
        """One write. A full or read-only disk degrades persistence, never a session."""
        try:
            await self._disk.run(self._next_job())
        except (OSError, ValueError) as error:
            fields = {"what": self._what, "error": str(error)}
            log.warning("disk.not_written", extra={"fields": fields})
            return False
        self._on_written()
        return True


@contextmanager
def locked(path: Path, timeout: float = _SETTLED_SECONDS) -> Iterator[None]:
    """Holds a lock against all processes that lock this path; leaves no file behind. Blocks."""
    deadline = time.monotonic() + timeout
    while (fd := _try_lock(path)) is None:
        if time.monotonic() >= deadline:
            raise TimeoutError(errno.ETIMEDOUT, "another process holds the lock", str(path))
        time.sleep(_LOOK_AGAIN_SECONDS)  # in the disk's thread; flock itself has no timeout
    try:
        yield
    finally:
        with suppress(OSError):  # somebody has removed it already
            path.unlink()
        os.close(fd)


def _try_lock(path: Path) -> int | None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The previous holder has removed the file name, so this lock would protect nothing.
        if os.path.samestat(os.fstat(fd), os.stat(path)):
            return fd
    except (BlockingIOError, FileNotFoundError):
        pass  # another process holds it, or has just removed it
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return None
