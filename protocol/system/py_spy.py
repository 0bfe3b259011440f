"""Reads the stacks of a Python process from outside, by py-spy, which need not be installed."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Struct

_SECONDS: Final = 10.0  # py-spy reads the stacks of a process within this time.
_MOST_BYTES: Final = 64 << 20  # Bytes that py-spy may write about one process.
_MOST_TEXT: Final = 2000  # Characters of what py-spy says where it fails.


class Local(Struct):
    name: str
    repr: str | None = None


class Frame(Struct):
    name: str
    filename: str
    line: int
    locals: list[Local] | None = None


class Thread(Struct):
    """One thread as py-spy writes it with `dump --json`; its innermost frame first."""

    thread_id: int
    frames: list[Frame]
    thread_name: str | None = None
    os_thread_id: int | None = None
    active: bool = False
    owns_gil: bool = False


class NotInstalled(Exception):
    pass


class Unreadable(Exception):
    """py-spy could not read the process; the text says why."""


async def stacks(pid: int, with_locals: bool) -> list[Thread]:
    """The stacks of all threads; raises NotInstalled or Unreadable."""
    beside_us = os.path.dirname(sys.executable)
    path = os.pathsep.join([beside_us, os.environ.get("PATH", os.defpath)])
    command = shutil.which("py-spy", path=path)
    if command is None:
        raise NotInstalled
    more = ["--locals"] if with_locals else []
    try:
        said, error = await _run(
            command, "dump", "--json", "--nonblocking", *more, "--pid", str(pid)
        )
    except TimeoutError:
        raise Unreadable(f"it took longer than {_SECONDS:g} s") from None
    try:
        return msgspec.json.decode(said, type=list[Thread])
    except msgspec.DecodeError:
        raise Unreadable(error.decode("utf-8", "replace").strip()[-_MOST_TEXT:]) from None


async def _run(*command: str) -> tuple[bytes, bytes]:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(_SECONDS):
            said, error = await asyncio.gather(_bounded(process.stdout), _bounded(process.stderr))
            await process.wait()
    except BaseException:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise
    return said, error


async def _bounded(stream: asyncio.StreamReader) -> bytes:
    said = bytearray()
    while part := await stream.read(1 << 16):
        said += part
        if len(said) > _MOST_BYTES:
            raise Unreadable(f"its stacks have more than {_MOST_BYTES} bytes")
    return bytes(said)
