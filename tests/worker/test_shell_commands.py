"""Which commands a shell only parts into words, and how: as a shell itself does it."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debug_relay.worker.probe.children.shell_commands import simple, spelt

ODD = "ab1é ./-=%:@,'\"$`\\;|&*?~#(){}[]<>!\t\n"


@given(st.lists(st.text(st.sampled_from(ODD), max_size=8), max_size=4))
def test_words_survive_being_spelt(words: list[str]) -> None:
    assert simple(spelt(["python", *words])) == ["python", *words]
    assert simple(shlex.join(["python", *words])) == ["python", *words]


@settings(max_examples=60)
@given(st.text(st.sampled_from(ODD), max_size=12).filter(lambda text: simple("x " + text)))
def test_a_shell_makes_the_same_of_it(text: str) -> None:
    words = simple("x " + text)
    assert words is not None
    said = subprocess.run(
        ["sh", "-c", "printf '%s\\0' x " + text], capture_output=True, check=True, timeout=10
    )
    assert said.stdout.decode().split("\0")[:-1] == words


@pytest.mark.parametrize(
    "command",
    ["", " ", "exit 3", "test -f x", "a; b", "a | b", "a && b", "a $x", 'a "$x"', "a *.py", "~/a",
     "it's", "a > b", "a &", "a # b", "a\nb", "a `b`", "(a)", "a \\ b"],
)  # fmt: skip
def test_the_rest_is_the_shells(command: str) -> None:
    assert simple(command) is None
