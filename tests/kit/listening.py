"""A program that somebody else has started with `debugpy --listen`."""

from __future__ import annotations

import itertools
import os
import shlex
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.kit.relay import eventually
from tests.meta.documents import block

_NUMBERS = itertools.count(os.getpid() * 101)


def free_port() -> int:
    """A port below those that the kernel gives away: no other test gets it before it is used."""
    for number in itertools.islice(_NUMBERS, 10_000):
        port = 20_000 + number % 10_000
        with socket.socket() as sock, suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port
    raise AssertionError("every port from 20000 to 29999 is in use")


class Listening:
    def __init__(
        self, program: Path, port: int | None = None, wait: bool = False, **env: str
    ) -> None:
        self.port = port or free_port()
        documented = shlex.split(block("debugpy-listen"))
        filled = {
            "python": [sys.executable, "-X", "frozen_modules=off"],
            "0.0.0.0:5678": [f"127.0.0.1:{self.port}", *(["--wait-for-client"] if wait else [])],
            "serve.py": [str(program)],
        }
        self.process = subprocess.Popen(
            [word for written in documented for word in filled.get(written, [written])],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **env},
        )
        try:
            eventually(self.listens, timeout=30, what="debugpy listens")
        except BaseException:
            self.end()
            raise

    def listens(self) -> bool:
        # A trial connection would be taken for the one client, and the kernel's table of thousands
        # of closed connections takes 10 ms to read. Nobody gets an address where somebody listens.
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind(("127.0.0.1", self.port))
            except OSError:
                return True
        return False

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


class SlowTunnel:
    """A port that leads to another, as `ssh -L` does: it takes a connection at once, and connects
    to the other side a while later."""

    def __init__(self, port: int, seconds: float) -> None:
        self._there = ("127.0.0.1", port)
        self._seconds = seconds
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):  # it was closed
            while True:
                here, _ = self._listener.accept()
                self._start(self._serve, here)

    def _serve(self, here: socket.socket) -> None:
        time.sleep(self._seconds)
        there = socket.create_connection(self._there, timeout=20)
        self._ends += [here, there]
        self._start(self._pass_on, there, here)
        self._pass_on(here, there)

    @staticmethod
    def _pass_on(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):  # one end or the other has gone
            while data := source.recv(65536):
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        for sock in (self._listener, *self._ends):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        for sock in (self._listener, *self._ends):
            sock.close()
