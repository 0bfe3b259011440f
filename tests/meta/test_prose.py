"""Docstrings and comments begin with their subject: the number of those that do not only falls.

`Who holds the lease may end it.` makes a reader guess the subject; `The holder may end the lease.`
names it. Lower `ALLOWED` with each docstring that is rewritten.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.meta.documents import ROOT

ALLOWED = 0
BARE = re.compile(r"(?:Who|What|Those|That|Of|By|As|Whoever|Whatever|Where)\b", re.IGNORECASE)
# Only these texts are worth the time that parsing takes.
SUSPECT = re.compile(rf"[#\"']\s*{BARE.pattern}", re.IGNORECASE)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED):
            yield ast.get_docstring(node) or ""


def comments(text: str) -> Iterator[str]:
    """The first line of each comment."""
    before = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != before + 1:
                yield token.string.lstrip("# ")
            before = token.start[0]


def bare(path: Path) -> list[str]:
    text = path.read_text()
    if not SUSPECT.search(text):
        return []
    return [words for words in (*docstrings(text), *comments(text)) if BARE.match(words)]


def test_fewer_and_fewer_begin_without_a_subject() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {words.splitlines()[0]}"
        for folder in ("protocol", "supervisor", "worker")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for words in bare(path)
    ]
    print(*found, sep="\n")  # pytest -s
    assert len(found) <= ALLOWED, "name the subject first"
