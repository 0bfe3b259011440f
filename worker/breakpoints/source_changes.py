"""Watches the source files of breakpoints for changes, and finds programs that still run an older
version.

It checks the files periodically, in a thread. `reverification` decides what a change means.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable
from typing import Final

from debug_relay.protocol.errors import RelayError

log = logging.getLogger("debug_relay.worker")

# The pause between two looks at files with breakpoints while one of them does not exist yet. The
# kernel reports changes of files only by descriptors (inotify), for which Python's library has no
# call.
_SOON_SECONDS: Final = 0.1
_LATER_SECONDS: Final = 0.5  # The pause between two looks while all of them exist.
_STILL_SECONDS: Final = 0.05  # A changed file counts as written after this long without a change.
_WRITING_SECONDS: Final = 1.0  # A file that never rests is verified after this long.
_SLACK_SECONDS: Final = 5.0  # A program may have read its source this long before we heard of it.
OUTDATED: Final = "the file has changed since the program loaded it: the older text still runs"

Pids = frozenset[int]
Identity = tuple[int, int, int]  # modified (ns), size, inode


def identity(path: str) -> Identity | None:
    """The facts that differ when a file's content does; None if there is no file."""
    try:
        facts = os.stat(path)
    except (OSError, ValueError):
        return None
    return facts.st_mtime_ns, facts.st_size, facts.st_ino


def identities(paths: Iterable[str]) -> dict[str, Identity | None]:
    return {path: identity(path) for path in paths}


def outdated_in(pids: Pids, running: Pids) -> str:
    """`OUTDATED`; it names the processes if only some of those that run have an older text."""
    if pids >= running:
        return OUTDATED
    listed = ", ".join(map(str, sorted(pids)))
    who = f"process {listed}" if len(pids) == 1 else f"processes {listed}"
    return f"the file has changed since {who} loaded it: the older text still runs there"


class SourceWatch:
    """Calls `changed` with the files that have changed since they were last verified."""

    def __init__(
        self,
        files: Callable[[], dict[str, bool]],
        changed: Callable[[set[str]], Awaitable[None]],
    ) -> None:
        self._files = files  # path → whether it is waited for
        self._changed = changed
        self._seen: dict[str, Identity | None] = {}
        self._task: asyncio.Task[None] | None = None
        # One check at a time: a second one must not verify what the first one has only seen.
        self._looking = asyncio.Lock()

    def seen(self, files: dict[str, Identity | None]) -> None:
        """Note the versions of files that breakpoints were verified with."""
        self._seen.update(files)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch(), name="source watch")

    async def _watch(self) -> None:
        while files := self._files():
            await asyncio.sleep(_SOON_SECONDS if any(files.values()) else _LATER_SECONDS)
            await self._until_written()
            await self.look()
        self._seen.clear()

    async def _until_written(self) -> None:
        """Wait while a changed file is being written: half a file has other lines, and its
        breakpoints would be taken out of the program until the next look.
        """
        deadline = time.monotonic() + _WRITING_SECONDS
        now = await self._present()
        while self._changed_in(now) and time.monotonic() < deadline:
            await asyncio.sleep(_STILL_SECONDS)
            before, now = now, await self._present()
            if now == before:
                return

    async def look(self) -> None:
        """Look at once: `hit` calls this, because the program has loaded a file."""
        async with self._looking:
            await self._look()

    async def _present(self) -> dict[str, Identity | None]:
        return await asyncio.to_thread(identities, list(self._files()))

    def _changed_in(self, now: dict[str, Identity | None]) -> set[str]:
        return {path for path, found in now.items() if self._seen.get(path) != found}

    async def _look(self) -> None:
        now = await self._present()
        changed = self._changed_in(now)
        if not changed:
            return
        self._seen.update({path: now[path] for path in changed})
        try:
            await self._changed(changed)
        except RelayError as error:
            # The program ended just now, or does not answer. The files still count as seen.
            log.warning("source.change_not_told", extra={"fields": {"error": error.message}})

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class LoadedSources:
    """Finds the files of which the program's processes run an older version than the one on disk.
    It sends the probe only files that changed since the program began.
    """

    def __init__(
        self,
        ask: Callable[[Collection[str]], Awaitable[dict[str, Pids]]],
        servers: Callable[[], Iterable[Hashable]],
    ) -> None:
        self._ask = ask
        self._servers = servers  # the servers that `ask` sends to
        self._since = float("inf")
        self._known: dict[str, tuple[Identity, int, frozenset[Hashable], Pids]] = {}

    def begin(self) -> None:
        """Forget everything: a program starts."""
        self._since = time.time() - _SLACK_SECONDS
        self._known.clear()

    async def outdated(self, paths: Collection[str], moment: int) -> dict[str, Pids]:
        """The processes that run an older version, for each file that has one.

        An answer is kept for one `moment` (a stop): later a process may have loaded the file anew,
        or may have been replaced.
        """
        found = await asyncio.to_thread(identities, [p for p in paths if os.path.isabs(p)])
        recent = {
            path: is_now
            for path, is_now in found.items()
            if is_now is not None and is_now[0] / 1e9 >= self._since
        }
        servers = frozenset(self._servers())
        unknown = [
            path
            for path, is_now in recent.items()
            if path not in self._known or self._known[path][:3] != (is_now, moment, servers)
        ]
        if unknown:
            old = await self._ask(unknown)
            for path in unknown:
                self._known[path] = (recent[path], moment, servers, old.get(path, frozenset()))
        return {path: pids for path in recent if (pids := self._known[path][3])}
