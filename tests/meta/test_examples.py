"""Every block of the documents does what it says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.client import Client
from tests.meta.diagram import current
from tests.meta.documents import (
    CI,
    COPY,
    ROOT,
    RUN,
    SHELL,
    TEST,
    Example,
    blocks,
    name_of,
)

WRITTEN_ADDRESS = "http://127.0.0.1:5679/api/v1"
WRITTEN_FOLDER = "/tmp/"
SECONDS = 180  # a bound, which a busy machine keeps too
ALL = blocks()
# The blocks of these pages that have no language are drawings.
DRAWN = "docs/architecture/"
# Generated from the examples that tests/contract/api/test_openapi_live.py compares with replies.
GENERATED = "docs/reference.md"


def marked(mark: str) -> list[Example]:
    return [example for example in ALL if example.mark == mark]


def shell(script: str, folder: Path, **env: str) -> str:
    """What a person would see who pastes the block into a terminal."""
    done = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", script],
        cwd=folder,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=SECONDS,
        check=False,
    )
    printed = done.stdout.decode()
    assert done.returncode == 0, printed
    return printed


def check_shown(example: Example, printed: str) -> None:
    at = 0
    for line in example.shows:
        found = printed.find(line, at)
        assert found >= 0, f"{example} does not print {line!r} (any more), or earlier:\n{printed}"
        at = found + len(line)


def is_run(example: Example) -> bool:
    mark = example.mark
    if mark in (RUN, COPY) or mark.startswith(CI):
        return example.language in SHELL
    return mark.startswith(TEST)


def test_every_block_is_run():
    unmarked = [
        str(example)
        for example in ALL
        if not is_run(example)
        and not (example.page.startswith(DRAWN) and example.language in ("", "mermaid"))
        and example.page != GENERATED
    ]
    assert unmarked == []
    assert marked(RUN)
    assert marked(COPY)


def test_a_test_takes_each_block_that_has_a_name():
    names = [name for example in ALL if (name := name_of(example.mark))]
    assert sorted(set(names)) == sorted(names)
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    taken = set(re.findall(r"\bblock\(\s*\"([\w-]+)\"\)", tests))
    assert taken == set(names)


def test_what_is_marked_for_ci_is_run_there():
    script = (ROOT / ".ci" / "run").read_text()
    for example in ALL:
        if example.mark.startswith(CI):
            name = example.mark.removeprefix(CI)
            assert f"readme_command {name}" in script
            assert example.page == "README.md"


@pytest.mark.parametrize("example", marked(RUN), ids=str)
def test_against_a_relay(example: Example, relay: Client, tmp_path: Path):
    """Only the address and the folder are others than those that are written."""
    script = example.script.replace(WRITTEN_ADDRESS, relay.url)
    script = script.replace(WRITTEN_FOLDER, f"{tmp_path}/")
    # The commands of the virtual environment, which find the relay.
    path = os.pathsep.join([f"{sys.prefix}/bin", os.environ["PATH"]])
    (tmp_path / ".venv").symlink_to(sys.prefix)
    shown = shell(script, tmp_path, PATH=path, OPENCODE_DEBUG_URL=relay.url)
    check_shown(example, shown)
    assert relay.get("/sessions").ok()["items"] == [], "the example leaves a session behind"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the repository; for all examples that a process runs."""
    copy = tmp_path_factory.mktemp("repository") / "copy"
    unwanted = shutil.ignore_patterns(".*", "build", "*.egg-info")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=unwanted)
    (copy / ".venv").symlink_to(sys.prefix)
    return copy


@pytest.mark.long
@pytest.mark.parametrize("example", marked(COPY), ids=str)
def test_in_a_copy_of_the_repository(example: Example, copy: Path):
    check_shown(example, shell(example.script, copy))
    for page in ("docs/reference.md", str(current("states")[0].relative_to(ROOT))):
        assert (copy / page).read_text() == (ROOT / page).read_text(), f"{page} is out of date"
