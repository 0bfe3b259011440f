"""Starts workers, and finds those that live.

A worker is forked from the zygote, or else executed. It gets its parameters on a socket that only
it has. It is in a process session of its own and no signal to the supervisor's group reaches it, so
it outlives the supervisor. Its directory is made first: a crash between any two steps leaves
something that the next start finds.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.worker_messages import WorkerParams
from debug_relay.protocol.system.files import open_regular
from debug_relay.protocol.system.procfs import boot_id, is_alive
from debug_relay.protocol.wire.envelope import encode_json
from debug_relay.supervisor.log import Log
from debug_relay.supervisor.storage.json_files import read_json
from debug_relay.supervisor.storage.run_directory import NO_ROOM
from debug_relay.supervisor.workers import intent
from debug_relay.supervisor.workers.child_process import Child
from debug_relay.supervisor.workers.zygote import WORKER_COMMAND, Zygote

_log: Final = Log(__name__)
_READY_SECONDS: Final = 15.0  # A new worker listens on its socket within this time.
# A connection to a socket that an old worker may have left takes this long at most.
_PROBE_SECONDS: Final = 1.0
_CREDENTIALS: Final = struct.Struct("3i")


def living_worker(folder: Path) -> Child | None:
    """The worker whose directory this is, if it lives; never another process with its old pid."""
    answer = read_json(folder / "identity.json")
    identity = answer if isinstance(answer, dict) else {}
    named = _is_that_one(identity)
    pid = identity["pid"] if named else _listener(folder / "worker.sock")
    if pid is None:
        return None
    try:
        child = Child(pid)
    except OSError:
        return None  # it has just ended
    # While we hold the pidfd the pid cannot pass to another process: look again.
    if _is_that_one(identity) if named else pid == _listener(folder / "worker.sock"):
        return child
    child.close()
    return None


def _is_that_one(identity: dict[str, Any]) -> bool:
    # A pid alone may be any process's: its start time and the machine's boot must be the same.
    ticks = identity.get("start_ticks")
    if identity.get("boot_id") not in (boot_id(), "", None):
        return False
    return isinstance(ticks, int) and is_alive(identity.get("pid"), ticks)


def _listener(path: Path) -> int | None:
    """The pid that the kernel names for a worker's socket; the identity file may be damaged."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_PROBE_SECONDS)
        try:
            probe.connect(str(path))
        except OSError:
            return None
        raw = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return int(pid) if uid == os.getuid() and pid > 0 else None


async def spawn_worker(params: WorkerParams, zygote: Zygote) -> Child:
    """Starts a worker; returns when it listens on its socket."""
    folder = Path(params.session_dir)
    try:
        _prepare(params, folder)
    except OSError as error:
        raise _failed(f"its directory cannot be made: {error}") from error
    try:
        forked = await zygote.fork()
        child, pipe = forked or _executed(params)
    except OSError as error:
        raise _failed(str(error)) from error
    with pipe:
        try:
            await _hand_over(pipe, params)
        except (OSError, TimeoutError, RelayError) as error:
            child.kill()
            await child.wait(5.0)
            child.close()
            raise (
                error
                if isinstance(error, RelayError)
                else _failed(str(error) or f"it was not ready within {_READY_SECONDS:g} s")
            ) from error
        except BaseException:
            child.kill()
            raise
    _log.info(
        "worker.started",
        session_id=params.session_id,
        pid=child.pid,
        how="forked" if forked else "executed",
    )
    return child


def _prepare(params: WorkerParams, folder: Path) -> None:
    # A restored session has its directory already.
    folder.mkdir(mode=0o700, parents=True, exist_ok=params.restored or params.ended is not None)
    try:
        Path(params.record_dir).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        # Without a record the session is lost at a reboot; its state says so.
        if error.errno not in NO_ROOM:
            raise
    intent.write(folder, params.session_id)


def _executed(params: WorkerParams) -> tuple[Child, socket.socket]:
    ours, theirs = socket.socketpair()
    command = [*WORKER_COMMAND, str(theirs.fileno()), params.session_id]
    err_path = Path(params.session_dir) / "worker.err"
    with theirs, open(err_path, "ab", opener=open_regular) as err:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=err,
                stderr=err,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                cwd="/",
            )
        except OSError as error:
            ours.close()
            raise _failed(f"{sys.executable} cannot be started: {error}") from error
    process.returncode = 0  # reaped by its pidfd, not by Popen
    return Child(process.pid), ours


async def _hand_over(pipe: socket.socket, params: WorkerParams) -> None:
    loop = asyncio.get_running_loop()
    pipe.setblocking(False)
    async with asyncio.timeout(_READY_SECONDS):
        await loop.sock_sendall(pipe, encode_json(params))
        pipe.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := await loop.sock_recv(pipe, 65536):
            answer += piece
    if answer != b"ready":
        text = answer.decode("utf-8", "replace").strip()
        err = Path(params.session_dir) / "worker.err"
        with contextlib.suppress(OSError):
            text = text or err.read_text("utf-8", "replace").strip()
        last = text.splitlines()[-1] if text else "it ended without a message"
        raise _failed(last, output=text[-2000:])


def _failed(reason: str, **details: str) -> RelayError:
    return RelayError(
        Code.WORKER_START_FAILED, f"The session's worker could not be started: {reason}", **details
    )
