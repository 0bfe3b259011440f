"""Environment files that were written to slow the worker down or to fill its memory."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from debug_relay.worker.debuggee.env_file import parse

N = 40_000  # what takes quadratic time takes minutes with it, linear time some milliseconds


@pytest.mark.parametrize(
    "text",
    [
        "A=x" + " " * N + "y",
        "A=" + "${A:-" * N,
        "A=" + "${A:-" * N + "\\$",
        'A="' + "${A:-" * N + '\\$"',
        "".join(f"A{n}=1\n" for n in range(N)),
        "#\n" * N + "A=1\n" * N,
        'A="' + "x" * N,
    ],
    ids=["spaces", "references", "dollar", "quoted", "names", "lines", "unclosed"],
)
def test_the_time_is_linear(text):
    began = time.thread_time()
    with suppress(ValueError):  # a quote that is never closed
        parse(text, {})
    assert time.thread_time() - began < 2


@pytest.mark.parametrize(
    "text",
    [
        "A=0123456789\n" + f"A={'${A}' * 10}\n" * 50,
        f"A={'x' * 1000}\n" + "".join(f"B{n}=${{A}}\n" for n in range(8000)),
    ],
    ids=["in one value", "in all"],
)
def test_references_do_not_multiply_without_end(text):
    with pytest.raises(ValueError, match=r"line \d+: .* longer than 6291456 bytes"):
        parse(text, {})


def test_what_references_and_comments_mean():
    text = 'A=a # b\nB=a#b\nC=#c\nD=\\${A}${A}\\$\nE="${A}\\n\\${A}"\nF=${NO:-x}${A\nG=${A}\\$'
    assert parse(text, {}) == {
        "A": "a", "B": "a#b", "C": "", "D": "${A}a$", "E": "a\n${A}", "F": "x${A", "G": "a$",
    }  # fmt: skip
