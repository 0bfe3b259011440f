"""A real relay process on a free port, and what it may not leave behind."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from debug_relay.protocol.version import MARK
from tests.kit.client import Client
from tests.kit.forked_relay import ForkedRelay, fork

START_SECONDS = 20.0
ZYGOTE = "zygote".ljust(len("sess_00000000"))  # as `ps` shows it


class Relay:
    """`debug-relay serve` with a data directory of its own."""

    # The debugger's byte code for all relays of a run: each would compile it anew for each Python.
    compiled: Path | None = None

    def __init__(
        self,
        data_dir: Path,
        *flags: str,
        env: dict[str, str] | None = None,
        python: str = sys.executable,
        forked: bool = False,
    ) -> None:
        self.python = python
        self.data_dir = data_dir
        self.flags = flags
        self.env = {
            name: value
            for name, value in {**os.environ, **(env or {})}.items()
            if not name.startswith("OPENCODE_DEBUG_") or name in (env or {})
        }
        self.forked = forked
        self.process: subprocess.Popen[bytes] | ForkedRelay | None = None
        self.url = ""
        self.log = data_dir.with_name(data_dir.name + ".stderr")

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def client(self) -> Client:
        return Client(self.url)

    def start(self, *flags: str, port: int = 0) -> Relay:
        if self.compiled is not None and not self.data_dir.exists():
            self.data_dir.mkdir(0o700)
            (self.data_dir / "bytecode").symlink_to(self.compiled)
        arguments = ["serve", "--port", str(port), "--data-dir", str(self.data_dir)]
        arguments += [*self.flags, *flags]
        with open(self.log, "ab") as err:
            if self.forked:
                self.process = fork(arguments, self.env, err.fileno())
            else:
                self.process = subprocess.Popen(
                    [self.python, "-m", "debug_relay.supervisor", *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=err,
                    env=self.env,
                    start_new_session=True,
                )
        line = self._first_line()
        assert "listening on" in line, f"{line!r}\n{self.stderr()}"
        self.url = line.split()[3]
        return self

    def _first_line(self) -> str:
        assert self.process is not None
        assert self.process.stdout is not None
        lines: queue.Queue[bytes] = queue.Queue()
        reader = threading.Thread(
            target=lambda: lines.put(self.process.stdout.readline()),  # type: ignore[union-attr]
            daemon=True,
        )
        reader.start()
        line = lines.get(timeout=START_SECONDS).decode()
        reader.join(5)
        return line

    def stderr(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self, timeout: float = 20.0) -> int:
        assert self.process is not None
        try:
            return self.process.wait(timeout)
        finally:
            if self.process.stdout is not None:
                self.process.stdout.close()

    def kill(self) -> None:
        """As a crash would: nothing is tidied up."""
        self.signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> int:
        """As a user would."""
        if self.process is None:
            return 0
        self.signal(signal.SIGTERM)
        return self.wait()

    @property
    def run_dir(self) -> Path:
        """Where sockets and rings are: elsewhere than the data when that has a long path."""
        recorded = self.data_dir / "run_dir"
        return Path(recorded.read_text().strip()) if recorded.exists() else self.data_dir / "run"

    def worker(self, session_id: str) -> psutil.Process:
        """The worker of one session."""
        identity = json.loads((self.run_dir / session_id / "identity.json").read_text())
        return psutil.Process(identity["pid"])

    def calls(self) -> int:
        """How many calls are being served; one that has its answer may count for a moment more."""
        found = psutil.Process(self.pid).net_connections("tcp")
        return sum(connection.status == psutil.CONN_ESTABLISHED for connection in found)

    @property
    def zygote(self) -> psutil.Process | None:
        """What workers are forked from: there as long as the relay is, and asked by it alone."""
        found = [pid for pid in children(self.pid) if is_zygote(pid)]
        return psutil.Process(found[0]) if found else None

    def below(self) -> list[int]:
        """All processes that descend from the relay, but its zygote."""
        found, waiting = [], [self.pid]
        while waiting:
            pids = children(waiting.pop())
            waiting += pids
            found += [pid for pid in pids if not is_zygote(pid)]
        return found

    def workers(self) -> list[psutil.Process]:
        """The worker processes whose rings lie in our run directory."""
        run_dir = str(self.run_dir)
        return [
            psutil.Process(pid)
            for pid in pids()
            if b"debug_relay.worker\0" in told(pid, "cmdline")
            and any(file.startswith(run_dir) for file in files(pid))
        ]


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def told(pid: int, name: str) -> bytes:
    """The kernel's file of a process; psutil and pathlib take three times as long for all."""
    try:
        with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:
            return file.read()
    except OSError:  # gone, or another user's
        return b""


def files(pid: int) -> Iterator[str]:
    """The files that the process has open."""
    with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as found:
        for one in found:
            with suppress(OSError):  # closed meanwhile
                yield os.readlink(one.path)


def children(pid: int) -> list[int]:
    """By the kernel's own list: to look at every process there is would take the tests' time."""
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            found += map(int, thread.read_text().split())
    return found


def is_zygote(pid: int) -> bool:
    return told(pid, "cmdline").split(b"\0")[-2:-1] == [ZYGOTE.encode()]


def marked(session_id: str) -> list[psutil.Process]:
    """Every process that carries the session's mark."""
    mark = f"{MARK}={session_id}".encode()
    found = []
    for pid in pids():
        if mark in told(pid, "environ"):
            with suppress(psutil.Error):  # it has ended meanwhile
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
    return found


def eventually(condition: Callable[[], object], timeout: float = 20.0, what: str = "") -> object:
    """For facts of the kernel that give no event: look until it is so, within a bound.

    The longer it has taken, the longer the pause: a look may take as much processor time as what
    is waited for.
    """
    began = time.monotonic()
    while True:
        value = condition()
        if value:
            return value
        waited = time.monotonic() - began
        assert waited < timeout, f"not within {timeout} s: {what or condition}"
        time.sleep(min(max(0.01, waited / 10), 0.1))
