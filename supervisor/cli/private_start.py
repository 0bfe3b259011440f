"""Starts a private relay for this process, and ends it."""

from __future__ import annotations

import queue
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final

from debug_relay.supervisor.cli.client.address import Address, NoRelay, parse

_START_SECONDS: Final = 30.0  # The relay listens within this time.
# The relay ends its programs within this time: they have 2 s to end by themselves.
_END_SECONDS: Final = 10.0


# Workers without a relay have ended within this time.
_WORKERS_SECONDS: Final = 8.0


class PrivateRelay:
    """A relay that lives as long as this process: the pipe to its standard input tells it.

    It starts at once; `address` waits until it listens.
    """

    def __init__(self) -> None:
        # -P: the current directory, which may be anybody's, does not shadow the relay's modules.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "debug_relay.supervisor.private_relay"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._address: Address | None = None
        self._lines: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._read, name="private relay", daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        self._lines.put(self._process.stdout.readline(1000))

    def address(self) -> Address:
        if self._address is None:
            try:
                words = self._lines.get(timeout=_START_SECONDS).decode().split()
            except queue.Empty:
                words = []
            if len(words) < 4 or not words[3].startswith("unix:"):
                raise NoRelay("a private relay did not start; its standard error says why")
            self._address = parse(words[3], "a private relay")
        return self._address

    def end(self) -> None:
        """Ends the relay with its programs; returns when they are gone."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.returncode != 0 and self._address is not None:
            self._clean_up_after(Path(self._address.socket).parent)

    def _clean_up_after(self, folder: Path) -> None:
        """Removes the files of a relay that was killed, once its workers have noticed: they end
        their programs, and themselves.
        """
        deadline = time.monotonic() + _WORKERS_SECONDS
        while any(folder.glob("data/run/*/worker.sock")) and time.monotonic() < deadline:
            time.sleep(0.05)
        shutil.rmtree(folder, ignore_errors=True)
