"""Finds functions by name in a source file, from the facts that any Python version tells of it."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from debug_relay.worker.source.code_lines import LineFacts

_DEFINITION: Final = re.compile(r"\s*(?:async\s+)?(def|class)\s+(\w+)")


class FunctionSpan(Struct, frozen=True):
    """A function: its qualified name, the first line of its body, and all lines of the body."""

    name: str
    first: int
    lines: tuple[int, ...]


def functions_of(facts: LineFacts) -> list[FunctionSpan]:
    """All functions of a file; the lines of one that is inside another belong to both."""
    found: list[FunctionSpan] = []
    # Names of the definitions around, where they end, and where their bodies begin.
    around: list[tuple[str, int, int]] = []
    for start, head, end in sorted(facts.statements, key=lambda one: (one[0], -one[2])):
        while around and around[-1][1] < start:
            around.pop()
        if around and start <= around[-1][2]:
            continue  # it is on the line of the definition itself
        texts = (facts.source_lines[line - 1] for line in range(start, head + 1))
        # Decorators may stand before the definition.
        match = next((one for text in texts if (one := _DEFINITION.match(text))), None)
        if match is None:
            continue
        name = ".".join([*(outer for outer, _, _ in around), match[2]])
        if match[1] == "def":
            lines = tuple(sorted(line for line in facts.lines if head < line <= end))
            lines = lines or tuple(line for line in (head,) if line in facts.lines)
            if lines:
                found.append(FunctionSpan(name, lines[0], lines))
        around.append((name.rpartition(".")[2], end, head))
    return found


def find_function(facts: LineFacts, name: str) -> tuple[FunctionSpan | None, list[str]]:
    """The function of that name, or of that end of a qualified name; and the names of all."""
    every = functions_of(facts)
    plain = name.replace(".<locals>", "")
    for one in every:
        if one.name == plain:
            return one, []
    for one in every:
        if f".{one.name}".endswith(f".{plain}") or f".{plain}".endswith(f".{one.name}"):
            return one, []
    return None, [one.name for one in every]
