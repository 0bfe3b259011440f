"""The session's record on disk: it survives the worker, the supervisor and a reboot.

Only the worker writes it, also while no supervisor runs. It leaves out values of the environment
that look secret.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from debug_relay.protocol.models.blueprint import SessionRecord
from debug_relay.protocol.system.files import write_whole
from debug_relay.protocol.wire.envelope import encode_json
from debug_relay.worker.storage.disk import Disk, Job, Keeper

_SAVE_SECONDS: Final = 0.3  # A record that nobody waits for is saved this long after a change.


class Record:
    def __init__(self, folder: str, disk: Disk, content: Callable[[], SessionRecord]) -> None:
        """`content` gives the record as it is now."""
        self._content = content
        self._path = Path(folder) / "session.json"
        self._keeper = Keeper(disk, str(self._path), self._next_job)
        self._timer: asyncio.TimerHandle | None = None

    def save(self) -> None:
        """Begin to write at once; `settled` waits until it is done."""
        self._cancel()
        self._keeper.ask()

    def save_later(self) -> None:
        """Write soon. No call waits for this write: a step would be as slow as the disk."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SAVE_SECONDS, self.save)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def settled(self) -> bool:
        """Wait for the writes; whether all of them are on disk."""
        return await self._keeper.settled()

    async def close(self) -> None:
        self._cancel()
        await self._keeper.close()

    @property
    def is_kept(self) -> bool:
        """Whether the last write succeeded."""
        return not self._keeper.is_failing

    def _next_job(self) -> Job:
        return partial(_write, self._path, encode_json(self._content()))


def _write(path: Path, content: bytes) -> None:
    # The supervisor could not make the folder if the disk was full then.
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(path, content)
