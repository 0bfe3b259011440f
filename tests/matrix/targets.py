"""The kinds of program that are attached to: how each starts, and what makes it reach its line."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tests.kit.apps import Request, Served, Started
from tests.kit.notebook import CELL, CELL_LINE, Kernel
from tests.kit.relay import eventually
from tests.kit.running import open_files
from tests.kit.source import Source

_WITNESS: Final = Path(__file__).parent / "witness.py"
_WITHIN: Final = 60.0
_WORK = """
def work(n):
    doubled = n * 2  # @line
    return doubled
"""
PROGRAMS: Final = {
    "sleep loop": """
import time
n = 0
while True:
    n += 1
    work(n)
    time.sleep(0.02)
""",
    "spin": """
n = 0
while True:
    n += 1
    work(n)
""",
    "GIL held in C": """
import ctypes, time
hold = ctypes.PyDLL(None).usleep
n = 0
while True:
    n += 1
    work(n)
    hold(200000)
    time.sleep(0.01)
""",
    "threads": """
import threading, time
def run():
    n = 0
    while True:
        n += 1
        work(n)
        time.sleep(0.02)
others = [threading.Thread(target=run) for _ in range(8)]
for other in others:
    other.start()
for other in others:
    other.join()
""",
    "busy threads": """
import threading
def run():
    n = 0
    while True:
        n += 1
        work(n)
threading.Thread(target=run, daemon=True).start()
run()
""",
    "asyncio": """
import asyncio
async def ticks(pause):
    n = 0
    while True:
        n += 1
        work(n)
        await asyncio.sleep(pause)
async def main():
    await asyncio.gather(ticks(0.02), ticks(0.03))
asyncio.run(main())
""",
    "process pool": """
import concurrent.futures, multiprocessing, time
with concurrent.futures.ProcessPoolExecutor(
    2, mp_context=multiprocessing.get_context("fork")
) as pool:
    n = 0
    while True:
        n += sum(pool.map(abs, range(4)))
        work(n)
        time.sleep(0.02)
""",
}
SERVERS: Final = ("flask", "django", "uvicorn", "gunicorn")
KERNEL: Final = "Jupyter kernel"
TWIN: Final = "sleep loop"
KINDS: Final = (*PROGRAMS, *SERVERS, KERNEL)


class Target:
    """One that runs: `provoke` makes it reach the line; what that returns waits for the outcome."""

    pid: int
    path: str
    line: int

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def provoke(self) -> Callable[[], None]:
        return lambda: None

    def ask(self, word: str) -> Any:
        """What the witness in it answers."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(_WITHIN)
            sock.connect(str(self.folder / f"{self.pid}.sock"))
            sock.sendall(word.encode())
            answer = b""
            while part := sock.recv(4096):
                answer += part
        return json.loads(answer)

    def counts(self) -> tuple[int, int]:
        """Threads and descriptors, by the kernel's word."""
        return len(os.listdir(f"/proc/{self.pid}/task")), len(open_files(self.pid))

    def end(self) -> None:
        raise NotImplementedError


class Program(Target):
    def __init__(self, text: str, python: str, folder: Path) -> None:
        super().__init__(folder)
        source = Source(folder / "program.py", _WORK + text)
        self.path, self.line = str(source), source["line"]
        self.process = subprocess.Popen(
            [python, str(source)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=open(folder / "log", "wb"),  # noqa: SIM115  the program's from here on
            start_new_session=True,
        )
        self.pid = self.process.pid

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()


class Server(Target):
    def __init__(self, name: str, python: str, folder: Path) -> None:
        super().__init__(folder)
        self.served = Served(name, folder)
        self.started = Started(self.served, python)
        self.pid = self.started.pid
        if name == "gunicorn":
            (self.pid,) = eventually(self.started.children)  # type: ignore[misc]
        self.path, self.line = str(self.served.handler), self.served.handler["handler"]
        assert self.served.ask(1) == "2"  # what it does at its first request, it has done

    def provoke(self) -> Callable[[], None]:
        request = Request(self.served, 21)

        def finish() -> None:
            assert request.answer() == "42"

        return finish

    def end(self) -> None:
        self.started.end()


class Notebook(Target):
    def __init__(self, python: str, folder: Path) -> None:
        super().__init__(folder)
        self.kernel = Kernel(folder, python)
        self.pid = self.kernel.pid
        self.path, self.line = self.kernel.run(CELL), CELL_LINE

    def provoke(self) -> Callable[[], None]:
        cell = self.kernel.begin("print(double(21))")

        def finish() -> None:
            assert self.kernel.finish(cell) == "42"

        return finish

    def end(self) -> None:
        self.kernel.end()


def start(kind: str, python: str, folder: Path) -> Target:
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_WITNESS.read_text())
    kept = {name: os.environ.get(name) for name in ("PYTHONPATH", "WITNESS_FOLDER")}
    os.environ.update(PYTHONPATH=str(folder), WITNESS_FOLDER=str(folder))
    try:
        if kind in PROGRAMS:
            target: Target = Program(PROGRAMS[kind], python, folder)
        elif kind == KERNEL:
            target = Notebook(python, folder)
        else:
            target = Server(kind, python, folder)
    finally:
        for name, value in kept.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    witness = folder / f"{target.pid}.sock"
    eventually(witness.exists, timeout=_WITHIN, what="the witness in the target")
    return target
