"""The file of replies that are kept for their `Idempotency-Key`.

Replies are appended; a long file is rewritten. There is no fsync: the file serves a relay that was
killed, not a machine that lost power. If the disk refuses a reply, only the next relay misses it.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from debug_relay.protocol.system.files import FileRefused, open_regular, read_bounded, write_whole
from debug_relay.supervisor.log import Log
from debug_relay.supervisor.operations.answers import Finished
from debug_relay.supervisor.storage.json_files import set_aside

_log: Final = Log(__name__)
KEPT_SECONDS: Final = 600.0  # A reply is kept for repetitions of its request this long.
MOST_REPLIES: Final = 1000  # Replies that are kept at one time.
MOST_BYTES: Final = 16 * 1024 * 1024  # Bodies of all kept replies together.
_LARGEST_FILE_BYTES: Final = 3 * MOST_BYTES  # The file of kept replies, before it is rewritten.


class KeptReply(Struct, array_like=True):
    caller: str
    path: str
    key: str
    fingerprint: bytes
    at: float  # wall time
    finished: Finished


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(KeptReply).decode


class KeptReplies:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._size = 0
        self.warning: str | None = None

    def compact(self) -> list[KeptReply]:
        """Rewrites the file with the replies that are young enough; returns them, oldest first."""
        kept: list[KeptReply] = []
        room, now = MOST_BYTES, time.time()
        for reply in reversed([*self._read()]):
            room -= len(reply.finished.body)
            if len(kept) < MOST_REPLIES and room >= 0 and 0 <= now - reply.at <= KEPT_SECONDS:
                kept.insert(0, reply)
        self._begin(kept)
        return kept

    def add(self, reply: KeptReply) -> None:
        """Appends a reply. Call it before the reply is sent: the kernel then has it, even if this
        process is killed.
        """
        line = _encode(reply) + b"\n"
        if self._size + len(line) > _LARGEST_FILE_BYTES:
            self.compact()
        self._append(line)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _read(self) -> Iterator[KeptReply]:
        try:
            lines = read_bounded(self._path, 2 * _LARGEST_FILE_BYTES).split(b"\n")
        except FileNotFoundError:
            return
        except FileRefused as error:
            set_aside(self._path, error.words)
            return
        except OSError as error:
            _log.warning("kept_replies.unreadable", path=self._path, reason=str(error))
            return
        for line in filter(None, lines):
            try:
                yield _decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                # The line was cut short when its relay was killed, or is damaged. Others are whole.
                _log.warning("kept_replies.line_unreadable", path=self._path, reason=str(error))

    def _begin(self, replies: list[KeptReply]) -> None:
        self.close()
        lines = b"".join(_encode(reply) + b"\n" for reply in replies)
        try:
            write_whole(self._path, lines, fsync=False)
            self._fd = open_regular(self._path, os.O_WRONLY | os.O_NOFOLLOW)
        except OSError as error:
            self._note_failure(error)
        else:
            self._size, self.warning = len(lines), None

    def _append(self, lines: bytes) -> None:
        if self._fd < 0:
            return
        try:
            written = os.pwrite(self._fd, lines, self._size)
            if written < len(lines):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._note_failure(error)
            return
        self._size += written
        self.warning = None

    def _note_failure(self, error: OSError) -> None:
        # A half-written line is after `_size`: the next reply overwrites it, or `_read` skips it.
        self.warning = (
            f"{self._path} cannot be written ({error.strerror}): "
            "Idempotency-Keys are not known to the next relay"
        )
        _log.warning("kept_replies.not_written", path=self._path, reason=str(error))
