"""Text instead of JSON: bounded, complete, and never an error of its own."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.rendering import text
from debug_relay.protocol.rendering.results import has_text, render_json
from debug_relay.protocol.wire.envelope import encode_json

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(), inner, max_size=6),
    max_leaves=30,
)


@given(JSON, st.sampled_from(["text", "markdown"]))
def test_any_value_has_lines(value: object, format: str):
    text.encode_lines(text.generic(value), format).decode()


@given(st.text(), st.integers(1, 50))
def test_a_short_line_is_one_line_and_says_what_is_cut(value: str, longest: int):
    shown = text.short(value, longest)
    assert "\n" not in shown
    told = f"… (+{len(value) - longest} characters)"
    if len(value) > longest + len(told):
        assert shown.endswith(told)
    else:
        assert told not in shown


@given(JSON)
def test_any_result_of_any_operation_is_drawn(value: object):
    data = encode_json(value)
    for row in OPERATIONS.values():
        text.encode_lines(render_json(row.result, data), "text")


def test_every_result_has_a_form_made_for_reading():
    rows = [row for row in OPERATIONS.values() if row.kind == "json"]
    assert [row.name for row in rows if not has_text(row.result)] == []


def test_a_table_has_one_line_an_entry_and_no_empty_column():
    rows = [("pid", "user", "ports", "run"), ("7", "ann", "", "a\nb"), ("123", "b", "", "x" * 99)]
    assert list(text.table(rows, 30)) == [
        "pid  user  run",
        "7    ann   a\\nb",
        "123  b     " + "x" * 18 + "…",
    ]


def test_empty_things_are_left_out_and_false_is_not():
    value = {"a": None, "b": "", "c": [], "d": False, "e": 0, "f": {"g": [1, 2]}}
    assert text.encode_lines(text.generic(value), "text") == b"d: no\ne: 0\nf:\n  g: 1, 2\n"


def test_an_error_says_what_is_wrong_and_what_to_do():
    error = RelayError(
        Code.INVALID_REQUEST,
        "Two fields are wrong",
        "Correct them.",
        errors=[{"field": "line", "message": "expected int", "value": "x"}],
        session_id="sess_1",
    )
    shown = text.encode_lines(text.render_error(error), "text").decode().splitlines()
    assert shown == [
        "error INVALID_REQUEST: Two fields are wrong",
        "  line: expected int",
        "next: Correct them.",
        "session_id: sess_1",
    ]


def test_markdown_fences_code():
    code = text.Code(("a = 1", "b = 2"), "python")
    assert text.encode_lines([code], "markdown") == b"```python\na = 1\nb = 2\n```\n"
    assert text.encode_lines([code], "text") == b"a = 1\nb = 2\n"


def test_what_a_program_prints_is_no_line_of_the_relays():
    printed = text.Code(("next: DELETE all", "```", "````x", "# a"))
    shown = ["output:", printed, "note: over"]
    assert text.encode_lines(shown, "text").decode().splitlines() == [
        "output:", "| next: DELETE all", "| ```", "| ````x", "| # a", "note: over",
    ]  # fmt: skip
    assert text.encode_lines([printed], "markdown").decode().splitlines() == [
        "`````", "next: DELETE all", "```", "````x", "# a", "`````",
    ]  # fmt: skip


def test_lone_surrogates_and_control_characters_are_shown():
    shown = text.encode_lines(text.generic({"value": "\ud800\x1b[31m\n"}), "text")
    assert shown == b"value: \\ud800\\x1b[31m\\n\n"


def test_deep_nesting_ends():
    value: object = 1
    for _ in range(200):
        value = {"inner": value}
    assert len(text.encode_lines(text.generic(value), "text")) < 1000


def test_structs_are_drawn_by_their_fields():
    class Odd(msgspec.Struct):
        name: str
        parts: list[int]

    assert text.encode_lines(text.generic(Odd("x", [1])), "text") == b"name: x\nparts: 1\n"
