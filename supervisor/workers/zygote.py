"""The zygote: a process that has imported the worker's modules, and from which workers are forked.

A worker that is executed imports its modules anew; a forked one shares them. After that both are
alike: children of the supervisor, in a process session of their own. The zygote may die at any
moment: the next worker is then executed, and another zygote is started. The zygote ends when its
supervisor is gone.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO, Final

from debug_relay.protocol.system.files import open_regular
from debug_relay.supervisor.log import Log
from debug_relay.supervisor.workers.child_process import Child

_log: Final = Log(__name__)
_PID: Final = struct.Struct("i")
_FORK_SECONDS: Final = 5.0  # The zygote answers with the pid of a forked worker within this time.
# The zygote's first answer takes longer: it waits until everything is imported.
_FIRST_FORK_SECONDS: Final = 15.0
_END_SECONDS: Final = 1.0  # The zygote has this long to end by itself before it is killed.
# -P and -E: neither the working directory nor the user's PYTHONPATH may shadow our
# modules. The environment itself is passed on: it is what launched programs get.
WORKER_COMMAND: Final = (sys.executable, "-P", "-E", "-m", "debug_relay.worker")
# The title is as long as a session's id, which replaces it in a forked worker.
_TITLE: Final = "zygote".ljust(len("sess_00000000"))


class Zygote:
    def __init__(self, errors: Path) -> None:
        self._errors = errors  # the file for the zygote's standard error
        self._child: Child | None = None
        self._control: socket.socket | None = None
        self._has_forked = False

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._lives and self._child is not None else None

    @property
    def _lives(self) -> bool:
        return self._child is not None and not self._child.ended

    def start(self) -> None:
        """Starts the zygote without waiting: requests wait on its socket."""
        if self._lives:
            return
        self._drop()
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                pid = self._execute(theirs.fileno())
        except OSError as error:
            _log.warning("zygote.not_started", error=str(error))
            return
        ours.setblocking(False)
        self._control, self._child, self._has_forked = ours, Child(pid), False

    def _execute(self, control: int) -> int:
        with self._opened_errors() as errors:
            process = subprocess.Popen(
                [*WORKER_COMMAND, str(control), _TITLE],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                pass_fds=(control,),
                start_new_session=True,
                cwd="/",
            )
        process.returncode = 0  # reaped by its pidfd, not by Popen
        return process.pid

    def _opened_errors(self) -> BinaryIO:
        try:
            return open(self._errors, "wb", opener=open_regular)
        except OSError as error:  # workers can be forked although the disk is full
            _log.warning("zygote.mute", path=self._errors, error=str(error))
            return open(os.devnull, "wb")

    async def fork(self) -> tuple[Child, socket.socket] | None:
        """A new worker and the pipe to it; None if the worker must be executed instead."""
        control, child = self._control, self._child
        if not self._lives or control is None:
            self.start()
            return None
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(control, [b"fork"], [theirs.fileno()])
            seconds = _FORK_SECONDS if self._has_forked else _FIRST_FORK_SECONDS
            pid = await _answered_pid(ours, seconds)
            self._has_forked = True
            return Child(pid), ours
        except BlockingIOError:
            ours.close()
            return None  # more requests are waiting than the socket holds
        except (OSError, TimeoutError) as error:
            ours.close()
            _log.warning("zygote.failed", error=str(error) or type(error).__name__)
            # Other calls may wait for the same zygote: the first to fail replaces it.
            if self._child is child:
                self._drop()
                self.start()
            return None
        except BaseException:
            ours.close()  # a worker that was forked in the meantime sees this and ends
            raise

    def _drop(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._child is not None:
            self._child.kill()  # a stopped zygote would not see that its socket is closed
            self._child = None

    async def close(self) -> None:
        child = self._child
        if self._control is not None:
            self._control.close()
            self._control = None
        if child is not None and not await child.wait(_END_SECONDS):
            child.kill()
            await child.wait(_END_SECONDS)


async def _answered_pid(pipe: socket.socket, seconds: float) -> int:
    """The pid of the new worker, which the zygote sends once the worker is our child."""
    pipe.setblocking(False)
    async with asyncio.timeout(seconds):
        answer = await asyncio.get_running_loop().sock_recv(pipe, _PID.size)
    if len(answer) != _PID.size:
        raise ConnectionError("it could not fork")
    return int(_PID.unpack(answer)[0])
