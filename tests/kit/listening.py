"""A program that somebody else has started with `debugpy --listen`."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.kit.relay import eventually


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Listening:
    def __init__(
        self, program: Path, port: int | None = None, wait: bool = False, **env: str
    ) -> None:
        self.port = port or free_port()
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-X", "frozen_modules=off", "-m", "debugpy"),
                *("--listen", f"127.0.0.1:{self.port}"),
                *(["--wait-for-client"] if wait else []),
                str(program),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **env},
        )
        try:
            eventually(self.listens, what="debugpy listens")
        except BaseException:
            self.end()
            raise

    def listens(self) -> bool:
        # By the kernel's table: a trial connection would be taken for the one client.
        wanted = f":{self.port:04X}"
        rows = Path("/proc/net/tcp").read_text().splitlines()[1:]
        return any(r.split()[1].endswith(wanted) and r.split()[3] == "0A" for r in rows)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
