"""The documents say what the code does: diagram, codes, operations, links."""

from __future__ import annotations

import re

import pytest

from debug_relay.protocol.errors import Code
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.version import VERSION
from tests.meta.diagram import PAGE, with_diagram
from tests.meta.examples import PAGES, ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
REFERENCE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
_CALL = re.compile(r"`(GET|POST|PUT|PATCH|DELETE) ([^`]*)`")


def test_the_state_diagram_is_current():
    text = PAGE.read_text(encoding="utf-8")
    assert text == with_diagram(text), "regenerate it with: python -m tests.meta.diagram"


def test_the_reference_explains_every_error():
    assert [code.value for code in Code if f"`{code.value}`" not in REFERENCE] == []


def test_the_readme_names_just_what_is_not_there_yet():
    section = README.partition("<!-- 501 -->")[2].partition("<!-- /501 -->")[0]
    named = re.findall(r"`([^`]+)`", section)
    assert sorted(named) == sorted(row.name for row in OPERATIONS.values() if not row.implemented)


def test_the_calls_that_the_readme_offers_are_there():
    there = {
        (row.verb, path) for row in OPERATIONS.values() if row.implemented for path in row.paths
    }
    offered = {
        (verb, path.replace("…", "/sessions/{session_id}"))
        for verb, path in _CALL.findall(README.partition("## Limits")[0])
    }
    assert offered
    assert offered - there == set()


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_exist(page):
    """`worker/debugger/adapter.py` in a text is a promise."""
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"`((?:protocol|supervisor|worker|tests|docs)/[\w./-]+)`", text)
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_changelog_knows_the_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "## [Unreleased]" in text or f"## [{VERSION}]" in text
