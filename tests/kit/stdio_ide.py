"""An IDE that speaks the stdio protocol, and everything that it may not leave behind."""

from __future__ import annotations

import json
import os
import queue
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tests.kit.relay import Relay, eventually

SECONDS = 40.0  # a bound for one event, which a busy machine keeps too
_MARK = "DEBUG_RELAY_TEST_IDE"


class Ide:
    """`debug-relay stdio` as an IDE has it: two pipes. In a `with`, it guards against leaks."""

    def __init__(self, *flags: str, word: str = "stdio", **environment: str) -> None:
        # Short, for the paths of sockets; empty again when all is over.
        self.folder = Path(tempfile.mkdtemp(prefix="ide-", dir="/tmp"))
        self.mark = uuid.uuid4().hex
        assert Relay.compiled is not None
        self.process = subprocess.Popen(
            [sys.executable, "-m", "debug_relay.supervisor", word, *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                "TMPDIR": str(self.folder),
                "OPENCODE_DEBUG_DATA_DIR": f"{Relay.compiled}-of-ides",
                _MARK: self.mark,
                **environment,
            },
            start_new_session=True,
        )
        self.transcript: list[str] = []
        self._events: queue.Queue[str | None] = queue.Queue()
        self._stops = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        pipe, rest = self.process.stdout.fileno(), b""
        while not self._stops.is_set():
            if not select.select([pipe], [], [], 0.05)[0]:
                continue
            data = os.read(pipe, 65536)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._events.put(line.decode())
        assert self._stops.is_set() or rest == b""
        self.process.stdout.close()
        self._events.put(None)

    def stop_reading(self) -> None:
        """Closes the pipe of the events."""
        self._stops.set()
        self._reader.join(SECONDS)

    def __enter__(self) -> Ide:
        return self

    def __exit__(self, *error: object) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(SECONDS)
            eventually(lambda: self.left() == [], SECONDS, "processes of the IDE's session gone")
            if error[0] is None:
                eventually(lambda: os.listdir(self.folder) == [], SECONDS, "no files are left")
        finally:
            for process in self.left():
                process.kill()
            self._reader.join(SECONDS)
            shutil.rmtree(self.folder)

    def left(self) -> list[psutil.Process]:
        """Every process that has come from this IDE and still runs."""
        found = []
        mark = f"{_MARK}={self.mark}".encode()
        for environ in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError, psutil.Error):
                if mark in environ.read_bytes().split(b"\0"):
                    process = psutil.Process(int(environ.parent.name))
                    if process.status() != psutil.STATUS_ZOMBIE:
                        found.append(process)
        return found

    def send(self, command: str, **params: Any) -> None:
        message = {"type": "command", "command": command, "params": params}
        line = json.dumps(message, separators=(",", ":"))
        self.transcript.append(f"IDE → {line}")
        self.write(line.encode() + b"\n")

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def next(self) -> tuple[str, dict[str, Any]]:
        """The next event's name and data."""
        line = self._events.get(timeout=SECONDS)
        assert line is not None, f"no more events come; exit {self.process.wait(SECONDS)}"
        self.transcript.append(f"DBG → {line}")
        event = json.loads(line)
        assert list(event) == ["type", "event", "data"]
        assert event["type"] == "event"
        return event["event"], event["data"]

    def expect(self, *names: str) -> list[dict[str, Any]]:
        """The data of the next events, which have these names."""
        found = [self.next() for _ in names]
        assert [name for name, _ in found] == list(names), found
        return [data for _, data in found]

    def ask(self, command: str, *names: str, **params: Any) -> dict[str, Any]:
        """Sends a command; returns the data of the last of the events that must follow."""
        self.send(command, **params)
        return self.expect(*names)[-1]

    def until(self, name: str) -> dict[str, Any]:
        """The data of the next event of this name, whatever comes before it."""
        while True:
            found, data = self.next()
            if found == name:
                return data

    def is_over(self) -> bool:
        """Whether no more events come; waits for it."""
        return self._events.get(timeout=SECONDS) is None
