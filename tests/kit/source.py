"""Programs to debug, written where they are used, with marked lines."""

from __future__ import annotations

import os
import re
import shutil
import textwrap
from pathlib import Path

PYTHONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15")  # all that are debugged
# A folder with a virtual environment for each of the Pythons that most tests run on.
ENVIRONMENTS = "DEBUG_RELAY_TEST_ENVIRONMENTS"


class Source:
    """A file with Python source; `# @name` at the end of a line names it."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.text = textwrap.dedent(text).lstrip("\n")
        path.write_text(self.text)
        self.marks = {
            found.group(1): number
            for number, line in enumerate(self.text.splitlines(), 1)
            if (found := re.search(r"#\s*@(\w+)\s*$", line))
        }

    def __str__(self) -> str:
        return str(self.path)

    def __getitem__(self, mark: str) -> int:
        return self.marks[mark]


def version_of(python: str) -> tuple[int, int]:
    """Major and minor, by the name of an interpreter that `interpreters` has found."""
    major, minor = Path(python).name.removeprefix("python").split(".")
    return int(major), int(minor)


def has_monitoring(python: str) -> bool:
    """Whether debugging uses `sys.monitoring` there; before Python 3.12 it traces."""
    return version_of(python) >= (3, 12)


def interpreters() -> dict[str, str]:
    """Every CPython that can be debugged and is on this machine, by minor version."""
    found: dict[str, str] = {}
    home = Path.home() / ".pyenv" / "versions"
    made = Path(os.environ.get(ENVIRONMENTS, os.devnull))
    for minor in PYTHONS:
        installed = sorted(home.glob(f"{minor}.*/bin/python{minor}"))
        installed += made.glob(f"{minor}/bin/python{minor}")
        path = str(installed[-1]) if installed else shutil.which(f"python{minor}")
        if path and os.access(path, os.X_OK):
            found[minor] = path
    return found
