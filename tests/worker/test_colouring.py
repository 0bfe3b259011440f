"""What a page may colour in a line: found by the tokenizer, within bounds, whatever the text is."""

from __future__ import annotations

import sys
import time

import pytest

from debug_relay.worker.source.colouring import MOST_CHARACTERS, tokens_of

TEXT = '''\
@cached
def work(self, n=0x1f):
    """Two
    lines.""" # after
    return print(f"{n}", len(self.print), None)
class Ä: "é"
'''


def kinds(lines: list[str], start: int, end: int) -> list[list[tuple[str, str]]]:
    found = tokens_of(lines, start, end)
    shown = zip(lines[start - 1 : end], found, strict=True)
    return [[(line[one.start : one.end], one.kind) for one in tokens] for line, tokens in shown]


def test_kinds_of_tokens() -> None:
    found = kinds(TEXT.splitlines(), 1, 6)
    assert found[0] == [("cached", "decorator")]
    assert found[1] == [
        ("def", "keyword"), ("work", "definition"), ("self", "builtin"), ("0x1f", "number"),
    ]  # fmt: skip
    assert found[2] == [('"""Two', "string")]
    assert found[3] == [('    lines."""', "string"), ("# after", "comment")]
    assert ("print", "builtin") in found[4]
    assert found[4].count(("print", "builtin")) == 1  # an attribute is no builtin
    assert next(text for text, kind in found[4] if kind == "string").startswith("f")
    assert found[5][-1] == ('"é"', "string")
    assert kinds(TEXT.splitlines(), 4, 4) == found[3:4]
    assert tokens_of([], 1, 0) == []


@pytest.mark.parametrize(
    "text",
    ['x = """never\nends', "def (", "\tx\n  y\n z", "\0", "$ ? !", "( [ {", "'", "\f\v", "é" * 99],
)
def test_text_that_is_no_python_is_coloured_as_far_as_it_goes(text: str) -> None:
    lines = ["import os", *text.split("\n")]
    found = tokens_of(lines, 1, len(lines))
    assert len(found) == len(lines)
    assert found[0][0].kind == "keyword" or sys.version_info >= (3, 12)


def test_it_is_bounded() -> None:
    began = time.process_time()
    assert tokens_of(["x = 1"] * MOST_CHARACTERS, 1, MOST_CHARACTERS)[0] == []
    assert len(tokens_of(["(" * 1000] * 200, 1, 200)) == 200
    assert time.process_time() - began < 2
