"""Modules and functions stay of a size that can be read. What grows is printed; pytest -s shows it.

Soft figures are for the eye, hard ones for what has got out of hand.
"""

from __future__ import annotations

import ast
from pathlib import Path

from tests.meta.documents import ROOT

SOFT_MODULE, HARD_MODULE = 400, 480
SOFT_FUNCTION, HARD_FUNCTION = 50, 70
# name → lines that are allowed, and why it is not split.
LARGE_MODULES: dict[str, tuple[int, str]] = {
    "protocol/operations.py": (750, "one table; half of it is worse than all of it"),
    "protocol/errors.py": (750, "one table; half of it is worse than all of it"),
}
LARGE_FUNCTIONS: dict[str, tuple[int, str]] = {
    "protocol/errors.py:_rows": (600, "the rows of the table, one expression"),
}
SOURCES = [
    path
    for folder in ("protocol", "supervisor", "worker")
    for path in (ROOT / folder).rglob("*.py")
]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def judge(sizes: dict[str, int], soft: int, hard: int, large: dict[str, tuple[int, str]]) -> None:
    grown = {name: size for name, size in sizes.items() if size > soft}
    for name, size in sorted(grown.items(), key=lambda item: -item[1]):
        print(f"{size:5} lines  {name}")
    most = {name: large.get(name, (hard, ""))[0] for name in sizes}
    assert {name: size for name, size in grown.items() if size > most[name]} == {}
    assert set(large) <= set(sizes), "the list of exceptions names what is not there"


def test_modules():
    sizes = {name_of(path): len(path.read_text().splitlines()) for path in SOURCES}
    judge(sizes, SOFT_MODULE, HARD_MODULE, LARGE_MODULES)


def test_functions():
    sizes = {
        f"{name_of(path)}:{node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    judge(sizes, SOFT_FUNCTION, HARD_FUNCTION, LARGE_FUNCTIONS)
