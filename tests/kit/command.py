"""`debug-relay …` as a process: with pipes, or with a terminal of its own."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

SECONDS = 60.0
COMMAND = (sys.executable, "-P", "-m", "debug_relay.supervisor")


class Shell:
    """A working directory and the relay that commands find."""

    def __init__(self, folder: Path, url: str | None = None, **env: str) -> None:
        self.folder = folder
        self.env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("OPENCODE_DEBUG_") and name not in ("NO_COLOR", "VIRTUAL_ENV")
        }
        self.env |= {"HOME": str(folder), "TERM": "xterm-256color", **env}
        if url is not None:
            self.env["OPENCODE_DEBUG_URL"] = url

    def run(self, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *argv],
            cwd=self.folder,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def ok(self, *argv: str, **env: str) -> str:
        """What a command prints that succeeds."""
        done = self.run(*argv, **env)
        assert done.returncode == 0, f"{argv}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def refused(self, code: int, *argv: str, **env: str) -> str:
        """What a command complains that does not; no command ever shows a traceback."""
        done = self.run(*argv, **env)
        assert done.returncode == code, f"{argv}: {done.returncode}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stderr

    def start(self, *argv: str, **env: str) -> subprocess.Popen[str]:
        """A command that goes on; its lines come through a pipe."""
        return subprocess.Popen(
            [*COMMAND, *argv],
            cwd=self.folder,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def terminal(self, *argv: str, command: Sequence[str] = COMMAND, **env: str) -> Terminal:
        return Terminal([*command, *argv], self.folder, {**self.env, **env})


class Terminal:
    """A process whose stdin, stdout and stderr are a terminal."""

    def __init__(self, command: Sequence[str], folder: Path, env: dict[str, str]) -> None:
        self.pid, self._descriptor = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execve(command[0], command, env)
        self.shown = ""
        self.code: int | None = None

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def read(self, until: str | Callable[[str], bool] | None = None, seconds: float = 30) -> str:
        """Reads until the text has been shown, or to the end; returns all that was shown."""
        deadline = time.monotonic() + seconds
        is_there = (lambda shown: until in shown) if isinstance(until, str) else until
        while is_there is None or not is_there(self.shown):
            left = deadline - time.monotonic()
            assert left > 0, f"not shown: {until!r}\n{self.shown}"
            if select.select([self._descriptor], [], [], left)[0]:
                try:
                    data = os.read(self._descriptor, 65536)
                except OSError:  # the other end is closed
                    data = b""
                if not data:
                    assert until is None, f"not shown: {until!r}\n{self.shown}"
                    break
                self.shown += data.decode(errors="replace")
        return self.shown

    def end(self) -> int:
        """Reads to the end; the exit code."""
        if self.code is None:
            self.read()
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            os.close(self._descriptor)
        return self.code

    def kill(self) -> None:
        if self.code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.end()
