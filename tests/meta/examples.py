"""The shell examples of the documents, as they stand, and how each of them is run.

A mark on the line above a block says how: `<!-- run -->` against a relay, `<!-- run in a copy -->`
of the repository, `<!-- ci: NAME -->` by .ci/run. A block without a mark is an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
RUN, COPY = "run", "run in a copy"
CI = "ci: "

_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_SHELL = ("bash", "sh", "shell", "console")


@dataclass
class Example:
    page: str
    line: int
    mark: str
    script: str
    # Among what it prints, in this order: the ```text block that follows.
    shows: list[str]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def examples() -> list[Example]:
    found: list[Example] = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        latest: Example | None = None
        for block in _BLOCK.finditer(text):
            if block["language"] in _SHELL:
                line = text.count("\n", 0, block.start("language")) + 1
                name = str(page.relative_to(ROOT))
                latest = Example(name, line, block["mark"] or "", block["text"], [])
                found.append(latest)
            elif block["language"] == "text" and latest is not None:
                latest.shows = [line for line in block["text"].splitlines() if line.strip()]
                latest = None
    return found
