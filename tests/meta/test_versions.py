"""The bounds of the Pythons that can be debugged stand in one place; what repeats them agrees."""

from __future__ import annotations

import ast
import re

from debug_relay.protocol.version import FIRST_PYTHON, LAST_PYTHON, PYTHONS
from tests.kit.source import PYTHONS as TESTED
from tests.meta.documents import ROOT

_RANGE = re.compile(r"3\.8 to 3\.\d+")


def test_the_tests_cover_the_bounds():
    minors = [tuple(map(int, name.split("."))) for name in TESTED]
    assert (minors[0], minors[-1]) == (FIRST_PYTHON, LAST_PYTHON)


def test_bootstrap_has_the_same_bounds():
    """It runs alone inside programs and can import nothing of ours."""
    source = (ROOT / "worker/probe/startup/bootstrap.py").read_text(encoding="utf-8")
    [bounds] = [
        node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Tuple)
        and ast.unparse(node.targets[0]) == "(_FIRST_PYTHON, _LAST_PYTHON)"
    ]
    assert ast.literal_eval(bounds) == (FIRST_PYTHON, LAST_PYTHON)


def test_documents_name_the_same_bounds():
    pages = [ROOT / "README.md", ROOT / "docs/guide/programs.md", ROOT / "worker/probe/__init__.py"]
    for page in pages:
        named = _RANGE.findall(page.read_text(encoding="utf-8"))
        assert named, f"{page.name} does not say which Pythons can be debugged"
        assert set(named) == {PYTHONS}, page.name


def test_the_bounds_are_written_once():
    """As a pair of numbers in the code of relay and workers."""
    repeated = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("protocol", "supervisor", "worker")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not path.is_relative_to(ROOT / "worker/probe") and path.name != "version.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Tuple)
        and ast.unparse(node) in (str(FIRST_PYTHON), str(LAST_PYTHON))
    ]
    assert repeated == []
