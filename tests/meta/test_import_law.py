"""The import law inside each package: a folder imports only what stands in a row above its own.

What the packages may import of each other is in `test_layers.py`. A name is a folder or a module of
the package. Names in one row do not import each other.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.meta.documents import ROOT

LAW = {
    "protocol": """
        version errors state scopes secrets system
        wire
        models
        operation_row
        operations
        calls
        refusals trace_pages
        validation rendering
        docs
    """,
    "supervisor": """
        setup_error safe_open
        log
        storage
        config
        output
        workers
        sessions
        processes
        access
        operations
        streams page
        http
        mcp
        app
        private_relay
        cli
        __main__
    """,
    "worker": """
        process_title probe bundle
        storage system joining
        state
        interpreter
        source
        debugger
        breakpoints
        inspection
        tracing
        limits
        debuggee
        attach native
        session
        operations
        rpc ide
        server
        zygote
        __main__
    """,
    "worker/probe": """
        startup
        runtime
        values
        engine
        inspection breakpoints
        tracing children
        probe
        lifecycle
    """,
}


def imports(path: Path, package: str) -> Iterator[str]:
    """The names of `package` that a module imports, also for types alone."""
    prefix = "debug_relay." + package.replace("/", ".") + "."
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full.startswith(prefix):
                    yield full.removeprefix(prefix).partition(".")[0]


@pytest.mark.parametrize("package", LAW)
def test_folders_import_what_is_below_them(package: str):
    row_of = {
        name: number
        for number, row in enumerate(LAW[package].strip().splitlines())
        for name in row.split()
    }
    broken, seen = [], set()
    for path in sorted((ROOT / package).rglob("*.py")):
        inner = path.relative_to(ROOT / package)
        own = inner.parts[0].removesuffix(".py")
        if own == "__init__" or (package == "worker" and own == "probe"):
            continue
        seen.add(own)
        broken += [
            f"{path.relative_to(ROOT)} imports {name}"
            for name in imports(path, package)
            if name != own and row_of[name] >= row_of[own]
        ]
    assert broken == []
    assert seen <= row_of.keys(), "a folder or module stands in no row"


# What must name the debugger outside of the engine, with the reason.
NAMES_THE_DEBUGGER = {
    # 3.12+: pydevd knows a program's runner by its file's name, `pydevd_runpy.py`.
    "startup/bootstrap.py",
    # It runs before the engine can be loaded: it asks whether pydevd is in the program already, and
    # marks its thread so that pydevd leaves it alone.
    "startup/injected.py",
}


def test_the_engine_alone_names_the_debugger():
    """Features ask the engine in verbs: a debugpy upgrade is work in one folder."""
    probe = ROOT / "worker" / "probe"
    found = {
        str(path.relative_to(probe))
        for path in probe.rglob("*.py")
        if re.search(r"_?pydev|debugpy|\.db\b", path.read_text(encoding="utf-8"))
    }
    outside = {name for name in found if not name.startswith("engine/")}
    assert outside == NAMES_THE_DEBUGGER, "ask the engine"
