"""What the documents repeat of the code: `python -m tests.meta.diagram` writes it anew.

The state diagram, and the rows of the import law.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

from debug_relay.protocol.state import mermaid
from tests.meta.documents import ROOT
from tests.meta.test_import_law import LAW

ARCHITECTURE = ROOT / "docs" / "architecture"


def _law() -> str:
    rows = [
        textwrap.fill(
            " < ".join(row.strip() for row in law.strip().splitlines()),
            initial_indent=f"{package + '/':<16}",
            subsequent_indent=" " * 16,
            width=96,
        )
        for package, law in LAW.items()
    ]
    return "\n".join(("```", *rows, "```"))


# Mark → the page that has it, and what stands between `<!-- mark -->` and `<!-- /mark -->`.
GENERATED = {
    "states": (
        ARCHITECTURE / "20-sessions-and-workers.md",
        f"```mermaid\n{mermaid()}\n```",
    ),
    "law": (ARCHITECTURE / "00-overview.md", _law()),
}


def current(mark: str) -> tuple[Path, str]:
    """The page of this mark, and its text as it has to be."""
    page, content = GENERATED[mark]
    before, begin, rest = page.read_text(encoding="utf-8").partition(f"<!-- {mark} -->")
    _, end, after = rest.partition(f"<!-- /{mark} -->")
    assert end, f"{page.name} has no {begin} … <!-- /{mark} -->"
    return page, f"{before}{begin}\n{content}\n{end}{after}"


if __name__ == "__main__":
    for each in GENERATED:
        path, text = current(each)
        path.write_text(text, encoding="utf-8")
