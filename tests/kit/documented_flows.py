"""What the API document shows its readers to type, and how it is typed here.

The document is not part of the repository; it may lie beside it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

WITHIN = 60.0
_ADDRESS = "http://localhost:5679/api/v1"
_PROJECT = "/Users/dev/myproject"


def _document() -> Path | None:
    for folder in Path(__file__).resolve().parents:
        for found in sorted((folder / "shared" / "seeds").glob("000_*.txt")):
            return found
    return None


needs_tools = pytest.mark.skipif(
    not (shutil.which("curl") and shutil.which("jq")), reason="curl and jq are not installed"
)
needs_document = pytest.mark.skipif(
    _document() is None, reason="the API document is not beside the repository"
)


def documented(heading: str, language: str, url: str, project: Path) -> str:
    """The block below a heading, with nothing changed but the address and the paths."""
    document = _document()
    assert document is not None
    section = document.read_text().split(f"### {heading}\n")[1]
    found = re.search(rf"```{language}\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return found.group(1).replace(_ADDRESS, url).replace(_PROJECT, str(project))


def run(*command: str, **env: str) -> str:
    """What a command prints that succeeds."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=WITHIN,
        env={**os.environ, **env},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def bash(script: str, **env: str) -> str:
    return run("bash", "-c", script, **env)


def at_lines(lines: Mapping[int, str]) -> str:
    """A text with each piece beginning at its line and blank lines between."""
    text: list[str] = []
    for number, piece in sorted(lines.items()):
        assert len(text) < number, f"the piece before line {number} is too long"
        text += [""] * (number - 1 - len(text)) + piece.splitlines()
    return "\n".join(text) + "\n"
