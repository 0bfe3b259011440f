"""A relay with a fault in it: for what a sound one never does, or does too slowly for a test."""

from __future__ import annotations

from pathlib import Path

from tests.kit.relay import eventually

MISTAKE = """
from debug_relay.supervisor.operations.relay_handlers import RelayHandlers

async def broken(self, params, caller):
    raise KeyError("inner secret")

RelayHandlers._info = broken
"""
IMPATIENT = """
from debug_relay.supervisor.http import body

body.read_body.__defaults__ = (*body.read_body.__defaults__[:-1], 0.2)
"""
# May trace no process of its own user that may do more than it.
UNPRIVILEGED = """
import ctypes, os, sys

DROP, CAP_SYS_PTRACE = 24, 19
if "RELAY_IS_UNPRIVILEGED" not in os.environ:
    os.environ["RELAY_IS_UNPRIVILEGED"] = "1"
    if ctypes.CDLL(None).prctl(DROP, CAP_SYS_PTRACE, 0, 0, 0) == 0:
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
"""


# Waits in its workers at places that are passed too quickly to be met there.
GATES = """
import os, sys

words = getattr(sys, "orig_argv", ())
if "serve" in words:
    from debug_relay.supervisor.workers import spawn, zygote

    # Workers would not look at PYTHONPATH.
    command = tuple(word for word in zygote.WORKER_COMMAND if word != "-E")
    spawn.WORKER_COMMAND = zygote.WORKER_COMMAND = command
elif "debug_relay.worker" in words:
    import asyncio

    from debug_relay.worker.attach import by_port
    from debug_relay.worker.breakpoints import run_to_line
    from debug_relay.worker.debugger import adapter

    def gated(owner, name):
        passing, gate = getattr(owner, name), os.path.join({folder!r}, name)

        async def waiting(*arguments):
            if os.path.exists(gate):
                os.rename(gate, gate + ".reached")
            while os.path.exists(gate + ".reached"):
                await asyncio.sleep(0.01)
            return await passing(*arguments)

        setattr(owner, name, waiting)

    gated(adapter, "configure")
    gated(by_port.JoinedProgram, "_settle")
    gated(run_to_line.RunToLine, "at_stop")
"""


class Gates:
    """Where the workers of a relay with `GATES` are held: the next one that comes there."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder

    @property
    def fault(self) -> str:
        return GATES.format(folder=str(self._folder))

    def close(self, name: str) -> None:
        (self._folder / name).touch()

    def until_reached(self, name: str) -> None:
        eventually((self._folder / f"{name}.reached").exists, what=f"{name} reached")

    def open(self, name: str) -> None:
        (self._folder / f"{name}.reached").unlink()

    def open_all(self) -> None:
        for left in self._folder.iterdir():
            left.unlink()


def with_fault(folder: Path, fault: str) -> dict[str, str]:
    """The environment in which a relay has the fault; its workers and programs are sound."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(fault)
    return {"PYTHONPATH": str(folder)}
