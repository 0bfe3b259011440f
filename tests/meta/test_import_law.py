"""The import law inside each package: a folder imports only what stands in a row above its own.

What the packages may import of each other is in `test_layers.py`. A name is a folder or a module of
the package. Names in one row do not import each other.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.meta.examples import ROOT

LAW = {
    "protocol": """
        version errors state scopes secrets system
        wire
        models
        operations
        calls
        refusals
        validation rendering
        docs
    """,
    "supervisor": """
        own_files
        log
        storage
        config
        output
        workers
        sessions
        processes
        access
        operations
        http
        app
        cli
        __main__
    """,
    "worker": """
        process_title probe bundle
        storage system
        state
        interpreter
        source
        debugger
        breakpoints
        inspection
        tracing
        limits
        debuggee
        attach
        session
        operations
        rpc
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

# Statements that break the law still. The list only shrinks.
BROKEN: dict[str, list[str]] = {
    "worker": [
        "worker/system/descendants.py imports attach",
        "worker/system/descendants.py imports interpreter",
    ],
    "worker/probe": [
        "worker/probe/breakpoints/exceptions.py imports inspection",
        "worker/probe/engine/deep_stacks.py imports inspection",
        "worker/probe/engine/stop_arbiter.py imports breakpoints",
        "worker/probe/engine/stop_arbiter.py imports breakpoints",
        "worker/probe/engine/suspended_wait.py imports breakpoints",
        "worker/probe/inspection/exception_details.py imports breakpoints",
    ],
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
    assert Counter(broken) == Counter(BROKEN.get(package, ())), "remove what is mended from BROKEN"
    assert seen <= row_of.keys(), "a folder or module stands in no row"
