"""The source files that breakpoints lie in: which have come, gone or changed on disk, and in which
of them a program still runs what it loaded before.

Looks at files, now and then and in a thread; what a change means is for `breakpoints` to say.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Set
from typing import Final

from debug_relay.protocol.errors import RelayError

log = logging.getLogger("debug_relay.worker")

# The kernel tells of files only by descriptors (inotify) that Python's library has no call for.
_SOON_SECONDS: Final = 0.1
_LATER_SECONDS: Final = 0.5
# A program may have read its source a little before we heard of it.
_SLACK_SECONDS: Final = 5.0
OUTDATED: Final = "the file has changed since the program loaded it: what runs is the older text"

Identity = tuple[int, int, int]  # modified (ns), size, inode


def identity(path: str) -> Identity | None:
    """What tells one content of a file from another; None where there is none."""
    try:
        facts = os.stat(path)
    except (OSError, ValueError):
        return None
    return facts.st_mtime_ns, facts.st_size, facts.st_ino


def identities(paths: Iterable[str]) -> dict[str, Identity | None]:
    return {path: identity(path) for path in paths}


class SourceWatch:
    """Tells of files that are not as they were when they were last looked at."""

    def __init__(
        self,
        files: Callable[[], dict[str, bool]],
        changed: Callable[[set[str]], Awaitable[None]],
    ) -> None:
        self._files = files  # path → whether it is waited for
        self._changed = changed
        self._seen: dict[str, Identity | None] = {}
        self._task: asyncio.Task[None] | None = None
        # Who looks waits for who looks already: what that one has seen is not judged before.
        self._looking = asyncio.Lock()

    def seen(self, files: dict[str, Identity | None]) -> None:
        """They were judged as this."""
        self._seen.update(files)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch(), name="source watch")

    async def _watch(self) -> None:
        while files := self._files():
            await asyncio.sleep(_SOON_SECONDS if any(files.values()) else _LATER_SECONDS)
            await self.look()
        self._seen.clear()

    async def look(self) -> None:
        async with self._looking:
            await self._look()

    async def _look(self) -> None:
        now = await asyncio.to_thread(identities, list(self._files()))
        changed = {path for path, found in now.items() if self._seen.get(path) != found}
        if not changed:
            return
        self._seen.update({path: now[path] for path in changed})
        try:
            await self._changed(changed)
        except RelayError as error:
            # The program ended just now, or does not answer: the files stay judged.
            log.warning("source.change_not_told", extra={"fields": {"error": error.message}})

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class LoadedSources:
    """In which files a program runs what is no more on disk. It is asked about files only that
    changed since it began."""

    def __init__(self, ask: Callable[[Collection[str]], Awaitable[Set[str]]]) -> None:
        self._ask = ask
        self._since = float("inf")
        self._known: dict[str, tuple[Identity, int, bool]] = {}

    def begin(self) -> None:
        """A program starts."""
        self._since = time.time() - _SLACK_SECONDS
        self._known.clear()

    async def outdated(self, paths: Collection[str], moment: int) -> set[str]:
        """What was found out is good for the `moment`: a later one may have loaded it anew."""
        found = await asyncio.to_thread(identities, [p for p in paths if os.path.isabs(p)])
        recent = {
            path: is_now
            for path, is_now in found.items()
            if is_now is not None and is_now[0] / 1e9 >= self._since
        }
        unknown = [
            path
            for path, is_now in recent.items()
            if self._known.get(path, (None, -1))[:2] != (is_now, moment)
        ]
        if unknown:
            old = await self._ask(unknown)
            self._known.update({path: (recent[path], moment, path in old) for path in unknown})
        return {path for path in recent if self._known[path][2]}
