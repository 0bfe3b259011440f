"""The state diagram in docs/architecture.md: `python -m tests.meta.diagram` writes it anew."""

from __future__ import annotations

from debug_relay.protocol.state import mermaid
from tests.meta.examples import ROOT

PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- states -->", "<!-- /states -->"


def with_diagram(text: str) -> str:
    """The page with the diagram that the table of transitions gives."""
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert end, f"{PAGE.name} has no {BEGIN} … {END}"
    return f"{before}{BEGIN}\n```mermaid\n{mermaid()}\n```\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_diagram(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
