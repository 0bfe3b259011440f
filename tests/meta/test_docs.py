"""The documents say what the code does: diagram, codes, operations, links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from debug_relay.protocol.errors import Code
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.version import VERSION
from tests.meta.diagram import GENERATED, current
from tests.meta.documents import PAGES, ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDE = ROOT / "docs" / "guide"
REFERENCE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
RANKS = ["Must change", "Change if", "Regenerate", "Tests", "Traps"]
_WORD = re.compile(r"\w+")
# Names of the kernel and of DAP in the chapters, which no source contains.
OTHERS_NAMES = {"PR_SET_PDEATHSIG", "startDebugging"}
_CALL = re.compile(r"`(GET|POST|PUT|PATCH|DELETE) ([^`]*)`")


def relative(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """The names by which the headings of a page can be linked to."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("mark", GENERATED)
def test_what_is_generated_is_current(mark):
    page, text = current(mark)
    assert page.read_text(encoding="utf-8") == text, "regenerate it with: make docs"


def test_the_reference_explains_every_error():
    assert [code.value for code in Code if f"`{code.value}`" not in REFERENCE] == []


def test_the_calls_that_are_offered_are_there():
    there = {(row.verb, path) for row in OPERATIONS.values() for path in row.paths}
    agents = (GUIDE / "agents.md").read_text(encoding="utf-8")
    offered = {
        (verb, path.replace("…", "/sessions/{session_id}"))
        for verb, path in _CALL.findall(README + agents)
    }
    assert offered
    assert offered - there == set()


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", text):
        if "://" not in target:
            there = page.parent / target if target else page
            assert there.exists(), f"{page.name} links to {target}"
            assert not anchor or anchor in anchors(there), f"{page.name} links to {target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_files_that_are_named_exist(page):
    """`worker/debugger/adapter.py` in a text is a promise."""
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"`((?:protocol|supervisor|worker|tests|docs)/[\w./-]+)`", text)
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_names_in_the_chapters_are_names_in_the_sources():
    """A name that is changed in the code is changed in the chapters."""
    sources = (
        path.read_text(encoding="utf-8")
        for folder in ("protocol", "supervisor", "worker", "tests")
        for path in (ROOT / folder).rglob("*.py")
    )
    known = {word for text in sources for word in _WORD.findall(text)} | OTHERS_NAMES
    for page in (ROOT / "docs" / "architecture").glob("*.md"):
        prose = re.sub("```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        named = {
            word
            for code in re.findall(r"`([A-Za-z_][\w.]*)`", prose)
            if "_" in code or code != code.lower()
            for word in _WORD.findall(code)
        }
        assert sorted(named - known) == [], page.name


def test_the_page_of_changes_says_where_to_add_things():
    """Ten changes, each with all files that it touches, ranked; those exist."""
    page = (ROOT / "docs" / "architecture" / "95-where-to-add.md").read_text(encoding="utf-8")
    section = page.partition("<!-- where -->")[2].partition("<!-- /where -->")[0]
    _, *changes = section.split("\n## ")
    assert len(changes) == 10
    for change in changes:
        title, _, text = change.partition("\n")
        ranks = re.findall(r"^\*\*([\w ]+)\*\*", text, re.MULTILINE)
        assert list(dict.fromkeys(ranks)) == RANKS, title
        files = re.findall(r"`([\w./-]+\.(?:py|md|toml))`", text)
        assert len(files) >= 4, f"{title!r} names {files} only"
        assert [name for name in files if not (ROOT / name).is_file()] == [], title


def test_the_rows_about_pydevd_name_what_is_there():
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (ROOT / "docs" / "pydevd.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| ") and not line.startswith(("| symptom", "| ---"))
    ]
    assert len(rows) > 40
    for symptom, _cause, _cure, modules, tests, pythons, upstream in rows:
        for folder, names in (("worker/probe", modules), ("tests/contract", tests)):
            files = re.findall(r"`([\w./]+\.py)`", names)
            assert files or "tests.matrix" in names, symptom
            assert [name for name in files if not (ROOT / folder / name).is_file()] == [], symptom
        assert pythons, symptom
        assert upstream, symptom


def test_agents_md_has_every_folder():
    page = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
    folders = {
        f"{path.parent.relative_to(ROOT)}/"
        for package in ("protocol", "supervisor", "worker")
        for path in (ROOT / package).rglob("*.py")
    }
    named = set(re.findall(r"^\| `([\w/]+/)`", page, re.MULTILINE))
    assert sorted(folders - named) == []
    assert [name for name in named if not (ROOT / name).is_dir()] == []


def test_the_changelog_knows_the_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "## [Unreleased]" in text or f"## [{VERSION}]" in text
