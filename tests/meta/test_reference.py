"""The committed reference page is the one that the operations table gives."""

from __future__ import annotations

from pathlib import Path

from debug_relay.protocol.docs.reference import reference
from debug_relay.protocol.operations import OPERATIONS

PAGE = Path(__file__).parents[2] / "docs" / "reference.md"
REGENERATE = "python -m debug_relay.protocol.docs.reference > docs/reference.md"


def test_the_page_is_current():
    current = PAGE.read_text(encoding="utf-8") == reference()
    assert current, f"docs/reference.md is out of date; regenerate it with: {REGENERATE}"


def test_the_page_tells_how_it_is_made():
    assert REGENERATE in reference()


def test_the_page_has_every_operation():
    text = reference()
    lines = text.splitlines()
    for row in OPERATIONS.values():
        assert f"### {row.name}" in lines
        assert all(f"`{row.verb} {path}`" in text for path in row.paths)
