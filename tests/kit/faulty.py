"""A relay with a fault in it: for what a sound one never does, or does too slowly for a test."""

from __future__ import annotations

from pathlib import Path

MISTAKE = """
from debug_relay.supervisor.handlers import Handlers

async def broken(self, params, caller):
    raise KeyError("inner secret")

Handlers._info = broken
"""
IMPATIENT = """
from debug_relay.supervisor import body

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


def with_fault(folder: Path, fault: str) -> dict[str, str]:
    """The environment in which a relay has the fault; its workers and programs are sound."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(fault)
    return {"PYTHONPATH": str(folder)}
