"""Who the interpreters are that programs run on: each is asked once, for as long as its file lasts.

What one has said is kept for the sessions to come, in a file of its own: the question takes 20 ms
and more. A file that is damaged, or cannot be written, costs a question.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Final
from zlib import crc32

import msgspec
from msgspec import Struct

from debug_relay.worker.interpreters import Interpreter, ask, not_found, resolve

Stamp = tuple[str, int, int, int]  # path, and of the file behind it: mtime, size, inode


class _Kept(Struct):
    stamp: Stamp
    interpreter: Interpreter


class InterpreterBook:
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
        """`resolve` and `describe`; looking at files is done beside the event loop."""
        path = await asyncio.to_thread(resolve, python_path, venv, project_root, default)
        return await self.describe(path, project_root)

    async def describe(self, path: str, project_root: str | None = None) -> Interpreter:
        """Who the interpreter at `path` is; refused when debugpy cannot debug it."""
        try:
            stamp, is_script = await asyncio.to_thread(_look_at, path)
        except (OSError, ValueError) as error:
            raise not_found(f"{path} cannot be run: {error}", project_root, path) from None
        if is_script:
            # What a script such as a pyenv shim runs may change without the script.
            return await ask(path, project_root)
        if stamp not in self._known:
            known = await asyncio.to_thread(self._recall, stamp)
            if known is None:
                known = await ask(path, project_root)
                await asyncio.to_thread(self._keep, stamp, known)
            self._known[stamp] = known
        return self._known[stamp]

    def _recall(self, stamp: Stamp) -> Interpreter | None:
        if self._folder is None:
            return None
        try:
            kept = msgspec.json.decode(self._file(stamp).read_bytes(), type=_Kept)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return None  # the first time, or damaged
        return kept.interpreter if kept.stamp == stamp else None

    def _keep(self, stamp: Stamp, interpreter: Interpreter) -> None:
        if self._folder is None:
            return
        path = self._file(stamp)
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):  # a full or read-only disk: it is asked again
            self._folder.mkdir(mode=0o700, exist_ok=True)
            fresh.write_bytes(msgspec.json.encode(_Kept(stamp, interpreter)))
            fresh.rename(path)

    def _file(self, stamp: Stamp) -> Path:
        assert self._folder is not None
        return self._folder / f"{crc32(os.fsencode(stamp[0])):08x}.json"


def _look_at(path: str) -> tuple[Stamp, bool]:
    facts = os.stat(path)
    if not os.path.isfile(path):
        raise ValueError("it is not a file")
    with open(path, "rb") as file:
        stamp = (path, facts.st_mtime_ns, facts.st_size, facts.st_ino)
        return stamp, file.read(2) == b"#!"
