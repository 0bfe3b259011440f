"""Whether a line has code; if not, why not, and which line is probably meant.

A caller that names a line without code has miscounted, reads a file that has changed since, or
names the comment, the bracket or the keyword beside the code. The rules, in this order:

- Inside a statement of several lines: its first line, as at a closing bracket. For a comment or a
blank line in between: the next part that has code of its own. In the head of a function: the first
line of its body, because the head runs when the function is defined, not when it is called.
- A docstring, `else:`, `try:`, `global x`: the next line with code of the same block.
- A comment: the code below it. At the end of a block, indented deeper than what follows, it belongs
to the code above.
- A blank line: the next line with code. Between the end of a block and a function or class that
follows it: the nearer of the two, and the one above if both are equally near.
- If nothing follows: the last line with code.

Pure: it knows the facts of a file, and nothing of breakpoints or of the debugger.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from typing import Final, Literal

from msgspec import Struct

from debug_relay.worker.source.code_lines import LineFacts

Why = Literal[
    "blank", "comment", "docstring", "continuation", "no_code", "past_end", "syntax_error"
]
_Statement = tuple[int, int, int]  # first line, last line of the head, last line

_SHOWN_CHARACTERS: Final = 60  # A line's text in a message.
_DEFINITION: Final = re.compile(r"@|(async\s+)?def\b|class\b")
_FUNCTION: Final = re.compile(r"(async\s+)?def\b")


class Verdict(Struct, frozen=True, kw_only=True):
    """Whether a breakpoint on a line can stop, and the explanation if it cannot."""

    line: int
    ok: bool
    why: Why | None = None
    message: str = ""
    statement: int | None = None  # the first line of the statement that the line continues
    above: int | None = None  # the line with code before it
    below: int | None = None  # the line with code after it
    meant: int | None = None  # the line with code that is probably meant
    suggestion: str | None = None


def verify_line(facts: LineFacts, line: int) -> Verdict:
    """Whether `line` has code, and the reason in words if it has none."""
    if line in facts.lines:
        return Verdict(line=line, ok=True)
    why, statement, message = _why_not(facts, line)
    ordered = sorted(facts.lines)
    place = bisect_left(ordered, line)
    above = ordered[place - 1] if place else None
    below = ordered[place] if place < len(ordered) else None
    meant = _meant(facts, ordered, line, above, below)
    return Verdict(
        line=line,
        ok=False,
        why=why,
        message=message,
        statement=statement,
        above=above,
        below=below,
        meant=meant,
        suggestion=None if meant is None else _suggestion(facts, above, below, meant),
    )


def _why_not(facts: LineFacts, line: int) -> tuple[Why, int | None, str]:
    if not 1 <= line <= facts.total_lines:
        last = f"the file has {facts.total_lines} lines" if facts.total_lines else "it is empty"
        return "past_end", None, f"line {line} is past the end of the file: {last}"
    if facts.syntax_error:
        error = facts.syntax_error
        words = f"the file does not compile: line {error.line}: {error.message}"
        return "syntax_error", None, words
    kind = facts.kind(line)
    owner = _innermost(facts, line)
    start = owner[0] if owner else line
    if kind == "blank":
        return "blank", None, f"line {line} is blank"
    if kind == "comment":
        return "comment", None, f"line {line} is a comment"
    if kind == "string":
        return "docstring", start, f"line {line} belongs to a string that is not used (a docstring)"
    if kind == "inside":
        words = f"line {line} is in the middle of the statement that starts at line {start}"
        return "continuation", start, words
    return "no_code", None, f'line {line} ("{_cut(facts.text(line))}") has no code of its own'


def _suggestion(facts: LineFacts, above: int | None, below: int | None, meant: int) -> str:
    """The neighbouring lines with code, with their text, and which line is probably meant."""
    parts = [
        f"Code {side}: {_shown(facts, line)}"
        + (f", which is probably meant{_when(facts, line)}" if line == meant else "")
        for side, line in (("above", above), ("below", below))
        if line is not None
    ]
    if meant not in (above, below):
        parts.append(f"Probably meant: {_shown(facts, meant)}{_when(facts, meant)}")
    return ". ".join(parts) + "."


def _shown(facts: LineFacts, line: int) -> str:
    return f"line {line} `{_cut(facts.text(line))}`"


def _when(facts: LineFacts, line: int) -> str:
    """A note that the head of a function does not run when the function is called."""
    owner = _innermost(facts, line)
    if owner is None or owner[0] != line or _place_of_def(facts, owner) is None:
        return ""
    body = _first_of_body(facts, owner)
    if body is None:
        return ""
    return f" (it runs when the function is defined; line {body} runs when it is called)"


# -- which line is meant


def _meant(
    facts: LineFacts, ordered: list[int], line: int, above: int | None, below: int | None
) -> int | None:
    inside = _meant_inside(facts, ordered, line)
    if inside is not None:
        return inside
    if above is None or below is None:
        return below if above is None else above
    kind = facts.kind(line)
    before, end = _statement_of(facts, ordered, above)
    if kind == "comment":
        return before if _ends_what_is_above(facts, line, below) else below
    if kind == "blank":
        leaves_block = _indent(facts, before) > _indent(facts, below)
        if not leaves_block or not _DEFINITION.match(facts.text(below)):
            return below
        return below if below - line < line - end else before
    block = _innermost(facts, line, in_body=True)
    end_of_block = block[2] if block else facts.total_lines
    return below if below <= end_of_block else before


def _meant_inside(facts: LineFacts, ordered: list[int], line: int) -> int | None:
    """The meant line within the statement whose head `line` continues, if there is one."""
    statement = _innermost(facts, line)
    if statement is None or line > statement[1] or facts.kind(line) == "string":
        return None
    first, head, _ = statement
    function = _place_of_def(facts, statement)
    if function is not None and line > function:
        body = _first_of_body(facts, statement)
        if body is not None:
            return body
    # Each decorator is a separate call.
    decorators = [at for at in range(first, line + 1) if facts.text(at).startswith("@")]
    first = max(decorators, default=first)
    within = ordered[bisect_left(ordered, first) : bisect_right(ordered, head)]
    if facts.kind(line) in ("comment", "blank"):
        later = [one for one in within if one > line]
        within = later or within
    return within[0] if within else None


def _place_of_def(facts: LineFacts, statement: _Statement) -> int | None:
    """The line with `def` in the head of a function, after its decorators."""
    first, head, _ = statement
    if not _DEFINITION.match(facts.text(first)):
        return None
    heads = range(first, head + 1)
    return next((line for line in heads if _FUNCTION.match(facts.text(line))), None)


def _first_of_body(facts: LineFacts, statement: _Statement) -> int | None:
    _, head, last = statement
    return min((line for line in facts.lines if head < line <= last), default=None)


def _statement_of(facts: LineFacts, ordered: list[int], line: int) -> tuple[int, int]:
    """The first line with code of the statement that `line` is part of, and its last line."""
    owner = _innermost(facts, line)
    return (ordered[bisect_left(ordered, owner[0])], owner[2]) if owner else (line, line)


def _ends_what_is_above(facts: LineFacts, line: int, below: int) -> bool:
    """Whether `line` is indented deeper than what follows it."""
    return any(
        facts.kind(other) not in ("blank", "comment")
        and _indent(facts, other) < _indent(facts, line)
        for other in range(line + 1, below + 1)
    )


def _indent(facts: LineFacts, line: int) -> int:
    text = facts.source_lines[line - 1].expandtabs()
    return len(text) - len(text.lstrip())


def _innermost(facts: LineFacts, line: int, *, in_body: bool = False) -> _Statement | None:
    """The smallest statement that `line` is part of, or whose body it is in."""
    place = bisect_right(facts.statements, line, key=lambda span: span[0])
    for index in range(place - 1, -1, -1):
        _, head, last = facts.statements[index]
        if last >= line and (line > head or not in_body):
            return facts.statements[index]
    return None


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"
