"""The newcomer's page shows what its commands print."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.meta.documents import ROOT, block, blocks
from tests.newcomer.__main__ import END, SHOP, STEPS, Bash

REPOSITORY = "https://…/opencode-debug-relay"
_STEP = re.compile(r"^\$ (.*)\n((?:(?!\[[\d.]+ s\]$).*\n)*)\[[\d.]+ s\]$", re.MULTILINE)


def without_chance(printed: str, home: str) -> list[str]:
    """The lines, without what differs each time."""
    for pattern, same in (
        (re.escape(home), "~"),
        (r"sess_\w+", "sess_…"),
        (r"127\.0\.0\.1:\d+", "127.0.0.1:5679"),
        (r"\(pid [^)]*\)", "(pid …)"),
    ):
        printed = re.sub(pattern, same, printed)
    return [line.rstrip() for line in printed.strip().splitlines()]


def test_the_commands_of_the_page_print_what_it_shows(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this tree is no clone")
    shown = _STEP.findall(block("newcomer"))
    assert [typed for typed, _ in shown] == [step.format(repository=REPOSITORY) for step in STEPS]
    [installed] = [one.script for one in blocks() if one.mark == "ci: start"]
    (tmp_path / "shop.py").write_text(SHOP)
    ours = ("OPENCODE_DEBUG_", "VIRTUAL_ENV", "PYTHONPATH")
    env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    shell = Bash(tmp_path, {**env, "HOME": str(tmp_path)})
    try:
        for step, (_, documented) in zip(STEPS, shown, strict=True):
            command = step.format(repository=ROOT)
            install, _, then = command.rpartition(" && ")
            if "pip install" in install:
                assert installed.startswith(install)  # .ci/run runs it
                command = f"ln -s {sys.prefix} .venv && {then}"
            printed, _ = shell.run(command)
            home = str(tmp_path)
            assert without_chance(printed, home) == without_chance(documented, home)
    finally:
        shell.run(END)
        shell.close()
