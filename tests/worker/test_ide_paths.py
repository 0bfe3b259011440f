"""Paths and expressions as an IDE has them."""

from __future__ import annotations

import pytest

from debug_relay.worker.ide.expressions import Expressions
from debug_relay.worker.ide.path_mappings import PathMapping, PathMappings


@pytest.mark.parametrize(
    ("local", "remote", "in_ide", "in_session"),
    [
        ("/home/ann/shop", "/app", "/home/ann/shop/a/b.py", "/app/a/b.py"),
        ("/home/ann/shop/", "/app/", "/home/ann/shop/a.py", "/app/a.py"),
        ("C:\\work\\shop", "/app", "C:\\work\\shop\\a\\b.py", "/app/a/b.py"),
        ("c:/work/shop", "/app", "c:/work/shop\\a.py", "/app/a.py"),
    ],
)
def test_mapped_paths(local: str, remote: str, in_ide: str, in_session: str) -> None:
    mappings = PathMappings([PathMapping(local_root=local, remote_root=remote)])
    assert mappings.to_session(in_ide) == in_session
    assert mappings.to_session(mappings.to_ide(in_session)) == in_session
    for elsewhere in ("/application/a.py", "/usr/lib/python3/os.py", "<string>"):
        assert mappings.to_ide(elsewhere) == elsewhere
        assert mappings.to_session(elsewhere) == elsewhere


def test_drives_have_no_case() -> None:
    mappings = PathMappings([PathMapping(local_root="C:\\Shop", remote_root="/app")])
    assert mappings.to_session("c:\\shop\\A.py") == "/app/A.py"


def test_mappings_that_mean_nothing() -> None:
    given = [
        PathMapping(local_root="${workspaceFolder}", remote_root="."),
        PathMapping(local_root="${workspaceFolder}", remote_root="/app"),
        PathMapping(local_root=None, remote_root="/app"),
        PathMapping(local_root="/src", remote_root="."),
    ]
    assert PathMappings(given).to_ide("/app/a.py") == "/app/a.py"
    assert PathMappings(given).to_session("/src/a.py") == "/src/a.py"


def test_expressions_of_children() -> None:
    known = Expressions()
    known.scope(1, 7)
    known.value(2, known.child(1, "shop"), "Shop", 1)
    assert known.frame(2) == 7
    known.value(3, known.child(2, "items"), "dict")
    known.value(4, known.child(3, "'a b'"), "list")
    assert known.child(4, "0") == "shop.items['a b'][0]"
    assert known.child(3, "<object at 0x7f>") is None
    assert known.child(2, "special variables") is None
    known.value(5, "tags", "set")
    assert known.child(5, "0") is None
    assert known.child(99, "x") is None
    known.clear()
    assert known.child(1, "shop") is None
