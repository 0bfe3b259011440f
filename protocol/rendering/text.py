"""Results as compact text for a language model or a person, instead of JSON.

`results` has a rendering for each type of result. This module has what they share, and a general
form for data of another version of the relay. Pure; it never fails on any value, and lines stay
short however large the values are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from debug_relay.protocol.errors import RelayError

Format = Literal["text", "markdown"]
CONTENT_TYPES: Final[Mapping[str, str]] = {
    "text": "text/plain; charset=utf-8",
    "markdown": "text/markdown; charset=utf-8",
}
_LONGEST: Final = 400  # Characters of one value in the generic text rendering.
_SAID: Final = len("… (+99 characters)")
_DEEPEST: Final = 8  # Levels of lists and objects in the generic text rendering.
_BAR: Final = "| "  # so that a program's output cannot be mistaken for a line of the relay
_BACKTICKS: Final = re.compile(r"`+")
_LISTED: Final = 1000  # Entries of one list in the generic text rendering.


class Code(msgspec.Struct, frozen=True):
    """Lines that the program wrote: markdown fences them, text puts a bar before each.

    Source lines have no bar because each begins with its line number.
    """

    lines: tuple[str, ...]
    language: str = ""


Line = str | Code


def encode_lines(lines: Iterator[Line] | list[Line], format: str) -> bytes:
    """The finished body."""
    out: list[str] = []
    for line in lines:
        if isinstance(line, str):
            # Two spaces end a markdown line; without them, consecutive lines would run together.
            out.append(line + "  " if format == "markdown" and line else line)
        elif format == "markdown":
            fence = _fence(line.lines)
            out += [fence + line.language, *line.lines, fence]
        else:
            bar = "" if line.language else _BAR
            out += [bar + one for one in line.lines]
    return ("\n".join(out) + "\n").encode("utf-8", "backslashreplace")


def _fence(lines: tuple[str, ...]) -> str:
    """A fence longer than any run of backticks in the lines, so that none of them can close it."""
    longest = max((len(run) for line in lines for run in _BACKTICKS.findall(line)), default=0)
    return "`" * max(3, longest + 1)


def short(value: object, longest: int = _LONGEST) -> str:
    """One line of bounded length; a note says how much was cut, unless the note is longer than the
    cut.
    """
    text = value if isinstance(value, str) else str(value)
    cut = len(text) - longest
    if cut <= _SAID:
        cut = 0
    else:
        text = text[:longest]
    text = _printable(text)
    return f"{text}… (+{cut} characters)" if cut > 0 else text


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def plural(count: int, what: str) -> str:
    """`1 session`, `2 sessions`, `3 processes`."""
    if count == 1:
        return f"1 {what}"
    return f"{count} {what}{'es' if what.endswith('s') else 's'}"


def table(rows: Sequence[Sequence[str]], longest: int = _LONGEST) -> Iterator[str]:
    """One line for each row, with columns below each other; a column that is empty in all rows but
    the first, which has the names, is left out. The last column is cut so that a line fits.
    """
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    widths = [max(len(_printable(cell)) for cell in column) for column in columns[:-1]]
    for row in zip(*columns, strict=True):
        cells = [_printable(cell).ljust(width) for cell, width in zip(row, widths, strict=False)]
        line = "  ".join([*cells, _printable(row[-1])]).rstrip()
        yield line if len(line) <= longest else line[: longest - 1] + "…"


def more(page: Any) -> Iterator[str]:
    """How to get the rest of a page; nothing if it has all."""
    if not page.has_more:
        return
    cursor = getattr(page, "next_cursor", None)
    if cursor is not None:
        yield f"… more: ?cursor={cursor}"
    else:
        yield f"… {page.total} in all: ?offset={page.offset + len(page.items)}"


def generic(value: Any, depth: int = 0) -> Iterator[Line]:
    """`key: value`, indented; empty values are left out."""
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    pad = "  " * depth
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _entry(f"{pad}{short(key, 100)}:", item, depth)
    elif isinstance(value, list | tuple):
        for item in value[:_LISTED]:
            yield from _entry(f"{pad}-", item, depth)
        if len(value) > _LISTED:
            yield f"{pad}… ({len(value) - _LISTED} more)"
    else:
        yield pad + scalar(value)


def _entry(head: str, item: Any, depth: int) -> Iterator[Line]:
    if item is None or item is msgspec.UNSET or (item in ("", [], {}) and item is not False):
        return
    if isinstance(item, Mapping | list | tuple | msgspec.Struct):
        if depth >= _DEEPEST:
            yield f"{head} …"
            return
        if isinstance(item, list | tuple) and all(_is_scalar(part) for part in item):
            yield f"{head} {short(', '.join(scalar(part) for part in item[:_LISTED]))}"
            return
        yield head
        yield from generic(item, depth + 1)
    else:
        yield f"{head} {scalar(item)}"


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, str | bool | int | float)


def scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else short(value)


def render_error(error: RelayError) -> Iterator[Line]:
    """The text of an error: what happened, what to do next, and the details."""
    details = dict(error.details)
    suggestion = details.pop("suggestion", None)
    details.pop("closest", None)  # the suggestion has that call with its values
    yield f"error {error.code.value}: {short(error.message, 2000)}"
    wrong = details.pop("errors", None)
    for field in wrong[:_LISTED] if isinstance(wrong, list) else ():
        known = msgspec.structs.asdict(field) if isinstance(field, msgspec.Struct) else field
        told = isinstance(known, Mapping) and str(known.get("message", "")) in error.message
        if isinstance(known, Mapping) and not told:
            yield f"  {known.get('field')}: {short(known.get('message', ''), 500)}"
    if suggestion:
        yield f"next: {short(suggestion, 2000)}"
    said = f"{error.message} {suggestion}"
    yield from generic({name: one for name, one in details.items() if not _is_said(one, said)})


def _is_said(value: Any, said: str) -> bool:
    """Whether message and suggestion contain this detail already."""
    if isinstance(value, list):
        return all(_is_said(one, said) for one in value)
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, dict):
        return all(_is_said(one, said) for one in value.values())
    is_word = isinstance(value, str | int) and not isinstance(value, bool)
    return is_word and str(value).strip() in said
