"""Both flows of the protocol, line for line as an IDE sees them.

The transcripts beside this module are compared as they are; only the program's folder is masked.
`UPDATE_TRANSCRIPTS=1` writes them anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.client import Client
from tests.kit.source import Source
from tests.kit.stdio_ide import Ide

HERE = Path(__file__).parent

STEPPING = """\
def add(a, b):
    return a + b

x = 10
y = 20
print("Result:", add(x, y))
"""
BREAKPOINTS = """\
def fibonacci(n):
    if n < 2:
        return n
    return fibonacci(n - 1) + fibonacci(n - 2)

names = ["Alice", "Bob"]
print("Starting...", flush=True)
print(fibonacci(3))
"""


def stepping(ide: Ide, file: str, folder: str) -> None:
    ide.ask("initialize", "initialized", file=file, workingDir=folder)
    ide.ask("start", "started", "stopped")
    ide.ask("getVariables", "variables", frameIndex=0)
    ide.ask("stepInto", "stopped", "variableUpdate")
    ide.ask("stepInto", "stopped", "variableUpdate")
    ide.ask("stepOver", "stopped", "variableUpdate")
    ide.ask("stepInto", "stopped")
    ide.ask("getVariables", "variables", frameIndex=0)
    ide.ask("stepOut", "stopped")
    ide.ask("continue", "output", "exited")
    ide.ask("terminate", "terminated")


def breakpoints(ide: Ide, file: str, folder: str) -> None:
    ide.ask("initialize", "initialized", file=file)
    ide.ask("setBreakpoint", "breakpointSet", file=file, line=3)
    ide.ask("setBreakpoint", "breakpointSet", file=file, line=4)
    ide.ask("setBreakpoint", "breakpointSet", file=file, line=3)
    ide.ask("start", "started", "output", "stopped")
    ide.ask("getStackTrace", "stackTrace")
    ide.ask("getVariables", "variables", frameIndex=1)
    ide.ask("evaluate", "evaluateResult", expression="n * 2", frameIndex=0)
    ide.ask("clearBreakpoint", "breakpointCleared", file=file, line=4)
    ide.ask("continue", "stopped")
    ide.ask("clearBreakpoint", "breakpointCleared", file=file, line=3)
    ide.ask("start", "started", "output", "exited")


@pytest.mark.parametrize(
    ("flow", "text"), [(stepping, STEPPING), (breakpoints, BREAKPOINTS)], ids=lambda it: ""
)
@pytest.mark.one_python
def test_flow(
    flow: Callable[[Ide, str, str], None],
    text: str,
    python: str,
    relay: Client,
    source: Callable[..., Source],
):
    program = source(text, "test.py")
    with Ide("--url", relay.url, "--python", python) as ide:
        flow(ide, str(program.path), str(program.path.parent))
    assert ide.process.returncode == 0
    lines = "\n".join(ide.transcript).replace(str(program.path.parent), "/path/to") + "\n"
    golden = HERE / f"{flow.__name__}.txt"
    if os.environ.get("UPDATE_TRANSCRIPTS"):
        golden.write_text(lines)
    assert lines == golden.read_text()
