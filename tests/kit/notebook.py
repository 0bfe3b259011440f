"""A Jupyter kernel as a notebook starts it, of whatever Python has ipykernel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.kit.relay import eventually

WITHIN = 30.0
# Cells are compiled under the name of a file that does not exist.
CELL = """\
def double(n):
    doubled = n * 2
    return doubled
print(double.__code__.co_filename)
"""
CELL_LINE = 2  # `doubled = …`


class Kernel:
    def __init__(self, folder: Path, python: str = sys.executable) -> None:
        connection = folder / "kernel.json"
        self.log = folder / "kernel.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                # Its history opens a file and a thread of its own, whenever it likes.
                [
                    *(python, "-m", "ipykernel_launcher", "-f", str(connection)),
                    "--HistoryManager.enabled=False",
                ],
                env={**os.environ, "IPYTHONDIR": str(folder)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.pid = self.process.pid
        from jupyter_client import BlockingKernelClient  # takes long, and each process collects

        self._client: Any = BlockingKernelClient(connection_file=str(connection))
        self._connect(connection)

    def _connect(self, connection: Path) -> None:
        eventually(
            lambda: connection.exists() and connection.stat().st_size,
            timeout=WITHIN,
            what="the kernel's connection file",
        )
        self._client.load_connection_file()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=WITHIN)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def begin(self, code: str) -> str:
        """Run a cell, and do not wait for it."""
        return str(self._client.execute(code))

    def finish(self, id: str) -> str:
        """What the cell printed, when it has ended well."""
        printed = ""
        while True:
            message = self._client.get_iopub_msg(timeout=WITHIN)
            if message["parent_header"].get("msg_id") != id:
                continue
            kind, content = message["msg_type"], message["content"]
            assert kind != "error", content
            if kind == "stream":
                printed += content["text"]
            elif kind == "status" and content["execution_state"] == "idle":
                return printed.strip()

    def run(self, code: str) -> str:
        return self.finish(self.begin(code))

    def end(self) -> None:
        self._client.stop_channels()
        self.process.kill()
        self.process.wait()
