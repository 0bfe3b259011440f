"""Relays that are forks of one process, which has imported the relay's modules.

A relay that imports them itself takes 0.3 s of processor time to start, its zygote 0.2 s, and a
whole run starts some hundred. A fork runs the same `main` with the same arguments, and so does its
first zygote; a later one is executed. The relay that most tests share, and those of
`tests/supervisor/test_serve.py`, are started as commands.

Run as a module this is the process that forks; its only argument is the descriptor of a socket.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import gc
import json
import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, NoReturn

_LARGEST_REQUEST: Final = 1 << 20
_ROOT: Final = Path(__file__).parents[2]


class ForkedRelay:
    """What tests use of `subprocess.Popen`, for a process that is not our child."""

    def __init__(self, pid: int, stdout: IO[bytes], ending: int) -> None:
        self.pid = pid
        self.stdout: IO[bytes] | None = stdout
        self.returncode: int | None = None
        self._ending = ending  # the parent writes the exit status to this pipe

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._ending, selectors.EVENT_READ)
                if not selector.select(timeout):
                    raise subprocess.TimeoutExpired("debug-relay", timeout or 0)
            self.returncode = int(os.read(self._ending, 16))
            os.close(self._ending)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def fork(arguments: list[str], env: dict[str, str], stderr: int) -> ForkedRelay:
    """Starts `debug-relay ARGUMENTS…`; what it prints can be read from the result's `stdout`."""
    out, ending = os.pipe(), os.pipe()
    request = json.dumps({"arguments": arguments, "env": env, "cwd": os.getcwd()}).encode()
    try:
        socket.send_fds(_template(), [request], [out[1], stderr, ending[1]])
        pid = int(_template().recv(16))
    finally:
        os.close(out[1])
        os.close(ending[1])
    return ForkedRelay(pid, open(out[0], "rb"), ending[0])


@functools.cache
def _template() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-m", "tests.kit.forked_relay", str(theirs.fileno())]
        # The command line of a forked zygote goes where this one is.
        missing = len(_words(_zygote_command(0))) - len(_words(command)) - 1
        process = subprocess.Popen(
            [*command, "-" * missing],
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )

    def end() -> None:
        ours.close()
        process.wait(10)

    atexit.register(end)
    return ours


def _serve(asked: socket.socket) -> None:
    """Forks a relay for each request, until the tests' process has ended."""
    # The forks have all that these import.
    from debug_relay.supervisor import app  # noqa: F401
    from debug_relay.worker import __main__  # noqa: F401
    from debug_relay.worker.zygote import _know_types

    _know_types()
    # A garbage collection in a fork would write to shared memory, and so copy all of it.
    gc.collect()
    gc.freeze()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    endings: dict[int, int] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(asked, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in selector.select()]
            if woken in ready:
                os.read(woken, 4096)
                _tell_endings(endings)
            if asked in ready:
                request, fds, _, _ = socket.recv_fds(asked, _LARGEST_REQUEST, 3)
                if not request:
                    return
                pid = os.fork()
                if not pid:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for fd in (woken, wake, asked.fileno(), selector.fileno(), *endings.values()):
                        os.close(fd)
                    _become_relay(json.loads(request), *fds)
                endings[pid] = fds[2]
                os.close(fds[0])
                os.close(fds[1])
                asked.send(str(pid).encode())


def _tell_endings(endings: dict[int, int]) -> None:
    while endings:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        ending = endings.pop(pid)
        with suppress(BrokenPipeError):  # the tests' process has ended
            os.write(ending, str(os.waitstatus_to_exitcode(status)).encode())
        os.close(ending)


def _become_relay(request: dict[str, object], out: int, err: int, ending: int) -> NoReturn:
    from debug_relay.supervisor.cli.main import main

    os.close(ending)
    os.setsid()
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(out)
    os.close(err)
    os.chdir(str(request["cwd"]))
    os.environ.clear()
    os.environ.update(request["env"])  # type: ignore[call-overload]
    _fork_zygote()
    sys.argv = ["debug-relay", *request["arguments"]]  # type: ignore[misc]
    main()


def _fork_zygote() -> None:
    """Fork the relay's first zygote now: once the relay has an event loop, it cannot be forked."""
    from debug_relay.supervisor.workers.zygote import Zygote

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if not pid:
        ours.close()
        _become_zygote(theirs)
    theirs.close()
    ours.recv(1)  # it has its command line
    execute = Zygote._execute

    def start(self: Zygote, control: int) -> int:
        if ours.fileno() < 0:
            return execute(self, control)
        with ours, self._opened_errors() as errors:
            socket.send_fds(ours, [b"start"], [control, errors.fileno()])
        return pid

    Zygote._execute = start  # type: ignore[method-assign]


def _become_zygote(relay: socket.socket) -> NoReturn:
    """Do as an executed zygote does, when the relay asks for it."""
    from debug_relay.worker.__main__ import main

    os.setsid()
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    os.close(nothing)
    _show_command(_zygote_command(0))
    relay.send(b"0")
    request, fds, _, _ = socket.recv_fds(relay, 16, 2)
    relay.close()
    if not request:
        os._exit(0)  # the relay has ended before it needed one
    control, errors = fds
    os.dup2(errors, 1)
    os.dup2(errors, 2)
    os.close(errors)
    sys.argv = _zygote_command(control)[4:]
    code = main()
    logging.shutdown()
    os._exit(code)


def _zygote_command(control: int) -> list[str]:
    from debug_relay.supervisor.workers.zygote import _TITLE, WORKER_COMMAND

    return [*WORKER_COMMAND, f"{control:04}", _TITLE]


def _words(command: list[str]) -> bytes:
    return b"".join(os.fsencode(word) + b"\0" for word in command)


def _show_command(command: list[str]) -> None:
    """The kernel reads the command line from the process's own memory."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    words = _words(command)
    assert len(words) == end - start
    ctypes.memmove(start, words, len(words))


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
