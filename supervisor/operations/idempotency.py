"""Replies kept by `Idempotency-Key`: a creating request that is sent twice is done once.

Keys belong to a caller and a path. The first request's reply is kept for ten minutes, also if it is
a refusal; a repeated request waits for that reply. Replies are written to the file before they are
sent, so a reply that a caller has seen is known even after a `kill -9`.
A session that a killed relay has made, but whose reply it has not kept, is found by its intent
(`supervisor/workers/intent.py`).
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec import Struct

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.refusals import Problem
from debug_relay.supervisor.operations.answers import Finished
from debug_relay.supervisor.operations.idempotency_store import (
    KEPT_SECONDS,
    MOST_BYTES,
    MOST_REPLIES,
    KeptReplies,
    KeptReply,
)
from debug_relay.supervisor.sessions.background_tasks import BackgroundTasks, outcome
from debug_relay.supervisor.workers.intent import CURRENT_REQUEST, KeyedRequest

_KEY_CHARACTERS: Final = 255  # The header Idempotency-Key.


class _Entry(Struct):
    fingerprint: bytes
    work: asyncio.Future[Finished]
    since: float


class Idempotency:
    def __init__(
        self,
        file: KeptReplies,
        background: BackgroundTasks,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now = now
        self._background = background
        self._file = file
        self._entries: OrderedDict[tuple[str, str, str], _Entry] = OrderedDict()
        for reply in file.compact():
            work: asyncio.Future[Finished] = asyncio.get_running_loop().create_future()
            work.set_result(reply.finished)
            slot = (reply.caller, reply.path, reply.key)
            since = now() - (time.time() - reply.at)
            self._entries[slot] = _Entry(reply.fingerprint, work, since)

    def warning(self) -> str | None:
        return self._file.warning

    async def once(
        self, caller: str, path: str, key: str, body: bytes, make: Callable[[], Awaitable[Finished]]
    ) -> Finished:
        """The reply for this key; `make` makes it if the key is new."""
        if not key or len(key) > _KEY_CHARACTERS or not key.isprintable():
            raise _bad_key(key)
        self._forget()
        slot = (caller, path, key)
        fingerprint = hashlib.sha256(body).digest()
        entry = self._entries.get(slot)
        if entry is None:
            request = KeyedRequest(*slot, fingerprint.hex(), time.time())
            work = self._background.begin(self._made(request, fingerprint, make))
            entry = self._entries[slot] = _Entry(fingerprint, work, self._now())
        elif entry.fingerprint != fingerprint:
            raise RelayError(
                Code.IDEMPOTENCY_CONFLICT,
                f"Idempotency-Key {key!r} was used for another request to {path}",
                "Use a new key for a new request; the first body under this key is done already.",
                idempotency_key=key,
                path=path,
            )
        return await outcome(entry.work)

    async def _made(
        self,
        request: KeyedRequest,
        fingerprint: bytes,
        make: Callable[[], Awaitable[Finished]],
    ) -> Finished:
        CURRENT_REQUEST.set(request)  # in the context of this task alone
        finished = await make()
        slot = request.caller, request.path, request.key
        self._file.add(KeptReply(*slot, fingerprint, time.time(), finished))
        return finished

    def _forget(self) -> None:
        """Drops entries that are too old, and the oldest if there are too many."""
        oldest = self._now() - KEPT_SECONDS
        total = sum(self._size(entry) for entry in self._entries.values())
        for slot, entry in list(self._entries.items()):
            crowded = len(self._entries) > MOST_REPLIES or total > MOST_BYTES
            if not entry.work.done() or (entry.since >= oldest and not crowded):
                continue
            total -= self._size(entry)
            del self._entries[slot]

    @staticmethod
    def _size(entry: _Entry) -> int:
        has_no_reply = not entry.work.done() or entry.work.cancelled() or entry.work.exception()
        return 0 if has_no_reply else len(entry.work.result().body)

    async def close(self) -> None:
        """Cancels requests that are still being answered."""
        tasks = [entry.work for entry in self._entries.values() if not entry.work.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._entries.clear()
        self._file.close()


def _bad_key(key: str) -> RelayError:
    problem = f"must have 1 to {_KEY_CHARACTERS} printable characters"
    return RelayError(
        Code.INVALID_PARAMETER,
        f"The header Idempotency-Key {problem}",
        "Send a short unique text, such as a UUID.",
        errors=[Problem("Idempotency-Key", problem, key[:100])],
    )
