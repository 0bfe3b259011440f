"""Runs an interpreter for one short question, as its owner, and always ends it.

`resolve` and `code_lines` use it. `own_processes` lists these processes, so that a sweep of a
program's processes never hits one.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct

from debug_relay.worker.interpreter.ownership import user_for
from debug_relay.worker.system import own_processes


class Reply(Struct):
    """The result of a short run of an interpreter."""

    code: int
    out: bytes
    err: bytes


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
    """Run an interpreter with `-I -S`, feed it `data` and read at most `limit` bytes of its answer.

    `behind` is the path that led to this one, such as a venv's link; `found` says whether that path
    was found in a project and not named. Both decide as which user the interpreter runs. Raises
    TimeoutError if it takes too long, ValueError if it writes too much, OSError if it cannot start.
    """
    decisive = [path] if behind is None else [behind, path]
    options = await asyncio.to_thread(_start_options, decisive, found, cwd)
    process = await _start(path, ["-I", "-S", *arguments], options)
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
        own_processes.remove(process.pid)


async def _start(
    path: str, arguments: Sequence[str], options: dict[str, Any]
) -> asyncio.subprocess.Process:
    with own_processes.starting():
        process = await asyncio.create_subprocess_exec(
            path,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            **options,
        )
        own_processes.add(process.pid)
        return process


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
    # An interpreter that ends without reading is reported by its exit code.
    with suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(data)
        await process.stdin.drain()
    process.stdin.close()


async def _end(process: asyncio.subprocess.Process) -> None:
    # We kill its whole group, because a shim may have ended and left children that hold the pipes.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    # Unread output keeps the pipe open, and with it the process object.
    with suppress(TimeoutError):
        async with asyncio.timeout(2):
            await _read_tail(process.stdout)
            await _read_tail(process.stderr)
            await process.wait()


def _start_options(decisive: Sequence[str], found: bool, cwd: str | None) -> dict[str, Any]:
    other = identity_for(*decisive, found=found)
    # A pyenv shim looks for .python-version in the current directory; another user may have no
    # access to that directory.
    return {"cwd": cwd if cwd and not other and os.path.isdir(cwd) else "/", **other}


def identity_for(*paths: str, found: bool = False) -> dict[str, Any]:
    """The user as whom to start an interpreter, as arguments of `subprocess`; empty for
    ourselves.
    """
    owner = user_for(paths, found=found)
    if owner is None:
        return {}
    try:
        entry = pwd.getpwuid(owner)
        group, home = entry.pw_gid, entry.pw_dir
    except KeyError:
        group, home = owner, "/"
    # Root's environment may contain secrets that the other user must not see.
    environment = {"PATH": os.defpath, "HOME": home, "LC_ALL": "C.UTF-8"}
    return {"user": owner, "group": group, "extra_groups": [], "env": environment}
