"""Finds what in source lines a page may colour: keywords, strings, numbers, comments and names.

It reads text with Python's own tokenizer and never compiles or runs it. Text that is no Python is
coloured up to the place where the tokenizer gives up.
"""

from __future__ import annotations

import builtins
import io
import keyword
import tokenize
from collections.abc import Iterator
from itertools import islice
from typing import Final

from debug_relay.protocol.models.sources import SourceToken, TokenKind

# The tokenizer starts at the file's first line. What is above this many characters has no tokens.
MOST_CHARACTERS: Final = 256 * 1024
_MOST_TOKENS: Final = 100_000  # Tokens of one file that are read.
_BUILTINS: Final = frozenset(name for name in dir(builtins) if not name.startswith("_"))
_PLAIN: Final = frozenset({"self", "cls"})
_DEFINING: Final = frozenset({"def", "class"})
# From Python 3.12 on, an f-string is several tokens.
_STRINGS: Final = frozenset(
    {tokenize.STRING}
    | {
        getattr(tokenize, name)
        for name in ("FSTRING_START", "FSTRING_MIDDLE", "FSTRING_END", "TSTRING_START",
                     "TSTRING_MIDDLE", "TSTRING_END")
        if hasattr(tokenize, name)
    }
)  # fmt: skip


def tokens_of(lines: list[str], start: int, end: int) -> list[list[SourceToken]]:
    """The tokens of the lines `start` to `end`, which count from 1, line by line."""
    found: list[list[SourceToken]] = [[] for _ in range(max(end - start + 1, 0))]
    for line, token in _pieces(lines[:end]):
        if start <= line <= end:
            found[line - start].append(token)
    return found


def _pieces(lines: list[str]) -> Iterator[tuple[int, SourceToken]]:
    """Each token with its line; a string over several lines is one token on each of them."""
    text = "\n".join(lines) + "\n"
    if len(text) > MOST_CHARACTERS:
        return
    before = ""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    try:
        for token in islice(tokens, _MOST_TOKENS):
            kind = _kind(token, before)
            if kind is not None:
                yield from _on_each_line(token, kind, lines)
            if token.type not in (tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT):
                before = token.string
    except (tokenize.TokenError, SyntaxError):
        return  # the text ends in the middle of something, or is no Python


def _on_each_line(
    token: tokenize.TokenInfo, kind: TokenKind, lines: list[str]
) -> Iterator[tuple[int, SourceToken]]:
    (first, column), (last, until) = token.start, token.end
    for line in range(first, min(last, len(lines)) + 1):
        begin = column if line == first else 0
        end = until if line == last else len(lines[line - 1])
        if end > begin:
            yield line, SourceToken(start=begin, end=end, kind=kind)


def _kind(token: tokenize.TokenInfo, before: str) -> TokenKind | None:
    if token.type in _STRINGS:
        return "string"
    if token.type == tokenize.COMMENT:
        return "comment"
    if token.type == tokenize.NUMBER:
        return "number"
    if token.type != tokenize.NAME:
        return None
    if keyword.iskeyword(token.string):
        return "keyword"
    if before in _DEFINING:
        return "definition"
    if before == "@":
        return "decorator"
    if token.string in _PLAIN or (token.string in _BUILTINS and before != "."):
        return "builtin"
    return None
