"""Parts take what they need, and as little of each other as that: two rules of the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.meta.documents import ROOT

# A constructor that needs three of these takes all of them as one part.
WHOLE = {
    "Core": {"Settings", "Lifecycle", "SessionLog", "Publication"},
    "Debugging": {"Hub", "ProbeClient", "Stops", "Debuggee"},
}


def modules(*folders: str) -> Iterator[tuple[Path, ast.Module]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT), ast.parse(path.read_text(encoding="utf-8"))


def constructors(tree: ast.Module) -> Iterator[tuple[str, set[str]]]:
    """The name of each class, and the types that its constructor takes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for one in node.body:
                if isinstance(one, ast.FunctionDef) and one.name == "__init__":
                    taken = (arg.annotation for arg in one.args.args)
                    yield node.name, {kind.id for kind in taken if isinstance(kind, ast.Name)}


def test_three_of_a_kind_are_taken_as_one() -> None:
    apart = [
        f"{path}: {name} takes {len(taken & parts)} parts of {whole}"
        for path, tree in modules("worker")
        for name, taken in constructors(tree)
        for whole, parts in WHOLE.items()
        if len(taken & parts) >= 3
    ]
    assert apart == []


def test_a_private_name_stays_in_its_module() -> None:
    taken = [
        f"{path}:{node.lineno}: {name.name}"
        for path, tree in modules("protocol", "supervisor", "worker")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("debug_relay.")
        for name in node.names
        if name.name.startswith("_")
    ]
    assert taken == []
