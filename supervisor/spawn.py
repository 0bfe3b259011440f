"""Starting workers: the one place where the relay makes a process.

A worker gets its parameters on a socket that only it inherits, in its own session, with no signal
tied to us: it outlives the supervisor. Its directory exists before it does, so that a crash between
any two steps leaves something that the next start finds.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from debug_relay.protocol.envelope import encode_json
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.sessions import WorkerParams
from debug_relay.supervisor.log import Log
from debug_relay.supervisor.store import atomic_write_json, is_alive, read_json

_log: Final = Log(__name__)
_READY_SECONDS: Final = 15.0
_PROBE_SECONDS: Final = 1.0
_CREDENTIALS: Final = struct.Struct("3i")


class Child:
    """A process known by its pidfd: no other process can be meant by it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._fd = os.pidfd_open(pid)
        self._ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._fd, self._gone)

    def _gone(self) -> None:
        self.close()
        with contextlib.suppress(ChildProcessError):  # adopted: somebody else's to reap
            os.waitpid(self.pid, os.WNOHANG)
        self._ended.set()

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    async def wait(self, timeout: float) -> bool:
        """Whether it has ended in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._ended.wait()
        return self._ended.is_set()

    async def until_ended(self) -> None:
        await self._ended.wait()

    def kill(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._fd, signal.SIGKILL)

    def close(self) -> None:
        """Watch no longer."""
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1


def living_worker(folder: Path) -> Child | None:
    """The worker whose directory this is, if it lives; never a process that only has its pid."""
    said = read_json(folder / "identity.json")
    identity = said if isinstance(said, dict) else {}
    named = _is_that_one(identity)
    pid = identity["pid"] if named else _listener(folder / "worker.sock")
    if pid is None:
        return None
    try:
        child = Child(pid)
    except OSError:
        return None  # it has ended since the look
    # With the handle in hand the pid cannot change owner any more: look again.
    if _is_that_one(identity) if named else pid == _listener(folder / "worker.sock"):
        return child
    child.close()
    return None


def was_born_in_this_boot(folder: Path) -> bool:
    """Whether the worker that had this directory was born since the machine started."""
    if not folder.is_dir():
        return False
    said = read_json(folder / "identity.json")
    return not isinstance(said, dict) or said.get("boot_id") in (_boot_id(), "", None)


def _is_that_one(identity: dict[str, Any]) -> bool:
    # Without the moment of its birth, in this run of the machine, a pid may be anybody's.
    ticks = identity.get("start_ticks")
    if identity.get("boot_id") not in (_boot_id(), "", None):
        return False
    return isinstance(ticks, int) and is_alive(identity.get("pid"), ticks)


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _listener(path: Path) -> int | None:
    """Who listens on a worker's socket, by the kernel's word: the identity file may be damaged."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_PROBE_SECONDS)
        try:
            probe.connect(str(path))
        except OSError:
            return None
        raw = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return int(pid) if uid == os.getuid() and pid > 0 else None


async def spawn_worker(params: WorkerParams) -> Child:
    """A worker that listens on its socket."""
    folder = Path(params.session_dir)
    try:
        _prepare(params, folder)
        ours, theirs = socket.socketpair()
    except OSError as error:
        raise _failed(f"its directory cannot be made: {error}") from error
    with ours:
        with theirs:
            child = _start(theirs, folder)
        try:
            await _hand_over(ours, params)
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
    _log.info("worker.started", session_id=params.session_id, pid=child.pid)
    return child


def _prepare(params: WorkerParams, folder: Path) -> None:
    # A session that comes back has its directory already, with what it left there.
    folder.mkdir(mode=0o700, parents=True, exist_ok=params.restored)
    Path(params.record_dir).mkdir(mode=0o700, parents=True, exist_ok=True)
    atomic_write_json(folder / "intent.json", {"session_id": params.session_id}, fsync=False)


def _start(pipe: socket.socket, folder: Path) -> Child:
    # -P and -E: neither the working directory nor the user's PYTHONPATH may shadow our modules.
    # The environment itself is passed on: it is what launched programs get.
    command = [sys.executable, "-P", "-E", "-m", "debug_relay.worker", str(pipe.fileno())]
    with open(folder / "worker.err", "ab") as err:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=err,
                stderr=err,
                pass_fds=(pipe.fileno(),),
                start_new_session=True,
                cwd="/",
            )
        except OSError as error:
            raise _failed(f"{sys.executable} cannot be started: {error}") from error
    process.returncode = 0  # reaped by its pidfd, not by Popen
    return Child(process.pid)


async def _hand_over(pipe: socket.socket, params: WorkerParams) -> None:
    loop = asyncio.get_running_loop()
    pipe.setblocking(False)
    async with asyncio.timeout(_READY_SECONDS):
        await loop.sock_sendall(pipe, encode_json(params))
        pipe.shutdown(socket.SHUT_WR)
        said = b""
        while piece := await loop.sock_recv(pipe, 65536):
            said += piece
    if said != b"ready":
        text = said.decode("utf-8", "replace").strip()
        err = Path(params.session_dir) / "worker.err"
        with contextlib.suppress(OSError):
            text = text or err.read_text("utf-8", "replace").strip()
        last = text.splitlines()[-1] if text else "it ended without a word"
        raise _failed(last, output=text[-2000:])


def _failed(reason: str, **details: str) -> RelayError:
    return RelayError(
        Code.WORKER_START_FAILED, f"The session's worker could not be started: {reason}", **details
    )
