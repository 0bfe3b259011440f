"""Running an interpreter for one question: briefly, as whom it belongs to, and never left behind.

Whose processes these are is known at every moment: they are the worker's own, no program's.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from msgspec import Struct

from debug_relay.worker.interpreter.ownership import user_for

# What the worker itself asks something: never a program's, nor swept with one.
_asked: Final[set[int]] = set()
_starting = 0


class Reply(Struct):
    """What a short run of an interpreter came to."""

    code: int
    out: bytes
    err: bytes


def asked() -> frozenset[int]:
    """The pids of the interpreters that are being asked something now."""
    return frozenset(_asked)


def is_starting() -> bool:
    """Whether there may be one whose pid is not known yet."""
    return _starting > 0


async def run_briefly(
    path: str,
    arguments: Sequence[str],
    data: bytes,
    seconds: float,
    limit: int,
    cwd: str | None = None,
    *,
    behind: str | None = None,
    found: bool = False,
) -> Reply:
    """Run an interpreter with `-I -S`, feed it `data` and read at most `limit` bytes of answer.

    `behind` is the path that has led to this one, and `found` whether that was found in a project:
    both decide as whom it runs. Raises TimeoutError when it is late, ValueError when it says more,
    OSError when it cannot start.
    """
    decisive = [path] if behind is None else [behind, path]
    circumstances = await asyncio.to_thread(_circumstances, decisive, found, cwd)
    process = await _start(path, ["-I", "-S", *arguments], circumstances)
    try:
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as tasks:
            out = tasks.create_task(_read(process.stdout, limit))
            err = tasks.create_task(_read_tail(process.stderr))
            tasks.create_task(_feed(process, data))
            code = await process.wait()
        return Reply(code, out.result(), err.result())
    except BaseException as error:
        await _end(process)
        if isinstance(error, ExceptionGroup):
            raise error.exceptions[0] from None
        raise
    finally:
        _asked.discard(process.pid)


async def _start(
    path: str, arguments: Sequence[str], circumstances: dict[str, Any]
) -> asyncio.subprocess.Process:
    global _starting
    _starting += 1
    try:
        process = await asyncio.create_subprocess_exec(
            path,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            **circumstances,
        )
        _asked.add(process.pid)
        return process
    finally:
        _starting -= 1


async def _read(stream: asyncio.StreamReader | None, limit: int) -> bytes:
    assert stream is not None
    found = bytearray()
    while chunk := await stream.read(65536):
        found += chunk
        if len(found) > limit:
            raise ValueError(f"it wrote more than {limit} bytes")
    return bytes(found)


async def _read_tail(stream: asyncio.StreamReader | None) -> bytes:
    assert stream is not None
    tail = b""
    while chunk := await stream.read(65536):
        tail = (tail + chunk)[-4096:]
    return tail


async def _feed(process: asyncio.subprocess.Process, data: bytes) -> None:
    assert process.stdin is not None
    # One that ends without reading is known by its exit code.
    with suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(data)
        await process.stdin.drain()
    process.stdin.close()


async def _end(process: asyncio.subprocess.Process) -> None:
    # Its whole group: a shim may be gone and have left children that hold the pipes.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    # What it wrote and nobody read keeps the pipe, and with it the process object, open.
    with suppress(TimeoutError):
        async with asyncio.timeout(2):
            await _read_tail(process.stdout)
            await _read_tail(process.stderr)
            await process.wait()


def _circumstances(decisive: Sequence[str], found: bool, cwd: str | None) -> dict[str, Any]:
    other = identity_for(*decisive, found=found)
    # A pyenv shim looks for .python-version where it is started; another user may not come there.
    return {"cwd": cwd if cwd and not other and os.path.isdir(cwd) else "/", **other}


def identity_for(*paths: str, found: bool = False) -> dict[str, Any]:
    """As whom to start an interpreter, as arguments of `subprocess`; empty for as ourselves."""
    owner = user_for(paths, found=found)
    if owner is None:
        return {}
    try:
        entry = pwd.getpwuid(owner)
        group, home = entry.pw_gid, entry.pw_dir
    except KeyError:
        group, home = owner, "/"
    # Root's environment may hold secrets, and is not that user's.
    environment = {"PATH": os.defpath, "HOME": home, "LC_ALL": "C.UTF-8"}
    return {"user": owner, "group": group, "extra_groups": [], "env": environment}
