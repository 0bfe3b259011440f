"""Lines of the stdio protocol: any bytes give commands or refusals, never anything else."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from debug_relay.supervisor.cli.stdio.messages import (
    COMMANDS,
    LONGEST_LINE_BYTES,
    BadLine,
    Command,
    Lines,
    parse,
)

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=10,
)
near_commands = st.fixed_dictionaries(
    {},
    optional={
        "type": st.just("command") | anything,
        "command": st.sampled_from(sorted(COMMANDS)) | anything,
        "params": st.dictionaries(
            st.sampled_from(["file", "line", "frameIndex", "expression", "workingDir"]), anything
        )
        | anything,
    },
)


@given(st.binary(max_size=200) | near_commands.map(lambda sent: json.dumps(sent).encode()))
def test_a_line_is_a_command_or_refused_in_words(line: bytes):
    with suppress(BadLine):
        command = parse(line)
        assert isinstance(command, Command)
        assert isinstance(command.params, COMMANDS[command.name])


@given(st.data(), st.binary(max_size=300))
def test_lines_are_the_same_however_the_bytes_come(data: st.DataObject, sent: bytes):
    cuts = data.draw(st.lists(st.integers(0, len(sent)), max_size=8).map(sorted))
    pieces = [sent[a:b] for a, b in pairwise([0, *cuts, len(sent)])]
    lines = Lines()
    found = [line for piece in pieces for line in lines.add(piece)] + list(lines.end())
    assert found == [line for line in sent.split(b"\n") if line.strip()]


def test_a_line_that_is_too_long_is_passed_over_whole():
    lines = Lines()
    long = b"x" * LONGEST_LINE_BYTES
    assert list(lines.add(long)) == []
    assert list(lines.add(b"y" * 10)) == []
    assert len(lines._rest) == 0
    assert list(lines.add(b"z\n{}\n")) == [None, b"{}"]
    assert list(lines.add(long + b"\n")) == [long]
