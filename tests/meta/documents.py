"""The blocks of the documents, as they stand, and what becomes of each of them.

A mark on the line above a block says it:

- `<!-- run -->`: against a relay; `<!-- run in a copy -->` of the repository; `<!-- ci: NAME -->`:
  by .ci/run.
- `<!-- test: NAME -->`: a test takes it with `block(NAME)`, fills in what stands for something, and
  uses it.

A `text` block below one that is run is what that prints, and needs no mark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
RUN, COPY = "run", "run in a copy"
CI = "ci: "
TEST = "test: "

_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
SHELL = ("bash", "sh", "shell", "console")


@dataclass
class Example:
    page: str
    line: int
    mark: str
    language: str
    script: str
    # Among what it prints, in this order: the ```text block that follows.
    shows: list[str]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks() -> list[Example]:
    """All but the outputs of blocks that are run, which are in `shows` of these."""
    found: list[Example] = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        latest: Example | None = None
        for block in _BLOCK.finditer(text):
            ran = latest is not None and latest.mark.startswith((RUN, CI))
            if block["language"] == "text" and not block["mark"] and latest is not None and ran:
                latest.shows = [line for line in block["text"].splitlines() if line.strip()]
                latest = None
                continue
            line = text.count("\n", 0, block.start("language")) + 1
            name = str(page.relative_to(ROOT))
            latest = Example(name, line, block["mark"] or "", block["language"], block["text"], [])
            found.append(latest)
    return found


def block(name: str) -> str:
    """The block that is marked as `test: NAME`."""
    [found] = [one for one in blocks() if name_of(one.mark) == name]
    return found.script


def name_of(mark: str) -> str | None:
    """The name by which a test takes the block."""
    return mark.removeprefix(TEST) if mark.startswith(TEST) else None
