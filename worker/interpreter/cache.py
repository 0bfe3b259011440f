"""Caches what each Python interpreter is, for as long as its file does not change.

Asking an interpreter takes 20 ms and more, so the answer is also kept on disk for later sessions. A
damaged or unwritable file only costs a new question. `launch_plan` and the breakpoints use it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from pathlib import Path
from typing import Final
from zlib import crc32

import msgspec
from msgspec import Struct

from debug_relay.protocol.system.files import FileRefused, open_regular, read_bounded, write_whole
from debug_relay.worker.interpreter.resolve import Interpreter, ask, choose, not_found

# Path, and mtime, ctime, size, inode and device of the file behind it.
Stamp = tuple[str, int, int, int, int, int]
_MOST_BYTES: Final = 1 << 16  # One file of the interpreter cache.


class _Kept(Struct):
    stamp: Stamp
    interpreter: Interpreter
    checksum: str  # a damaged file may still be valid JSON and then name no interpreter


class InterpreterCache:
    def __init__(self, folder: Path | None = None) -> None:
        self._folder: Final = folder
        self._known: dict[Stamp, Interpreter] = {}

    async def find(
        self,
        python_path: str | None = None,
        venv: str | None = None,
        project_root: str | None = None,
        default: str | None = None,
    ) -> Interpreter:
        """`choose`, then `describe`. File access happens in a thread, not on the event loop."""
        choice = await asyncio.to_thread(choose, python_path, venv, project_root, default)
        return await self.describe(choice.path, project_root, choice.found)

    async def describe(
        self, path: str, project_root: str | None = None, found: bool = False
    ) -> Interpreter:
        """The facts about the interpreter at `path`; refused if debugpy cannot debug it."""
        try:
            stamp, is_script = await asyncio.to_thread(_look_at, path)
        except (OSError, ValueError) as error:
            words = f"it {error.words}" if isinstance(error, FileRefused) else error
            raise not_found(f"{path} cannot be run: {words}", project_root, path) from None
        if is_script:
            # A script such as a pyenv shim may run something else tomorrow without changing itself.
            return _with(await ask(path, project_root, found), found)
        if stamp not in self._known:
            known = await asyncio.to_thread(self._recall, stamp)
            if known is None:
                known = await ask(path, project_root, found)
                await asyncio.to_thread(self._keep, stamp, known)
            self._known[stamp] = known
        return _with(self._known[stamp], found)

    def _recall(self, stamp: Stamp) -> Interpreter | None:
        if self._folder is None:
            return None
        try:
            kept = msgspec.json.decode(read_bounded(self._file(stamp), _MOST_BYTES), type=_Kept)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return None  # the first time, or damaged
        if kept.stamp != stamp or kept.checksum != _checksum(stamp, kept.interpreter):
            return None
        return kept.interpreter

    def _keep(self, stamp: Stamp, interpreter: Interpreter) -> None:
        if self._folder is None:
            return
        path = self._file(stamp)
        kept = _Kept(stamp, interpreter, _checksum(stamp, interpreter))
        with contextlib.suppress(OSError):  # a full or read-only disk: the next session asks again
            self._folder.mkdir(mode=0o700, exist_ok=True)
            write_whole(path, msgspec.json.encode(kept), fsync=False)

    def _file(self, stamp: Stamp) -> Path:
        assert self._folder is not None
        return self._folder / f"{crc32(os.fsencode(stamp[0])):08x}.json"


def _with(known: Interpreter, found: bool) -> Interpreter:
    return known if known.found == found else msgspec.structs.replace(known, found=found)


def _checksum(stamp: Stamp, interpreter: Interpreter) -> str:
    return hashlib.sha256(msgspec.json.encode([stamp, interpreter])).hexdigest()


def _look_at(path: str) -> tuple[Stamp, bool]:
    with open(path, "rb", opener=open_regular) as file:
        facts = os.fstat(file.fileno())
        stamp = (
            path,
            facts.st_mtime_ns,
            facts.st_ctime_ns,
            facts.st_size,
            facts.st_ino,
            facts.st_dev,
        )
        return stamp, file.read(2) == b"#!"
