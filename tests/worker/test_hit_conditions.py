"""Hit conditions: what is read, what is refused, and when they hold, against plain Python."""

from __future__ import annotations

import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.worker.probe.breakpoints.line_breakpoints import COMPARE
from debug_relay.worker.source.code_lines import parse_hit_condition

ORACLE = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
    "%": lambda n, k: n % k == 0,
    "": operator.eq,
}
BLANK = st.text(" \t", max_size=3)


@given(
    sign=st.sampled_from(sorted(ORACLE)),
    number=st.integers(0, 10**18 - 1),
    near=st.integers(-3, 3),
    blanks=st.tuples(BLANK, BLANK, BLANK),
)
def test_what_is_read_holds_when_python_says_so(
    sign: str, number: int, near: int, blanks: tuple[str, str, str]
) -> None:
    if sign == "%" and number == 0:
        number = 1
    text = f"{blanks[0]}{sign}{blanks[1]}{number}{blanks[2]}"
    word, bound = parse_hit_condition(text)
    for hits in (1, 2, 3, max(1, number + near), number * 2 + 1):
        assert COMPARE[word](hits, bound) == ORACLE[sign](hits, number)


def is_one(text: str) -> bool:
    """Whether it is a number behind a sign, and nothing besides; by hand."""
    rest = text.strip()
    for sign in ("==", "!=", ">=", "<=", ">", "<", "%"):
        if rest.startswith(sign):
            rest = rest[len(sign) :].lstrip()
            return is_number(rest) and not (sign == "%" and int(rest) == 0)
    return is_number(rest)


def is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18


@given(st.text(st.sampled_from("0123456789=!<>% \tx-."), max_size=8) | st.text(max_size=12))
def test_any_other_text_is_refused_with_the_forms(text: str) -> None:
    if is_one(text):
        assert COMPARE.keys() >= {parse_hit_condition(text)[0]}
        return
    with pytest.raises(RelayError) as refused:
        parse_hit_condition(text)
    assert refused.value.code is Code.BREAKPOINT_INVALID_CONDITION
    forms = ["5", "==5", "!=5", ">=5", ">5", "<=5", "<5", "%5"]
    assert refused.value.details["forms"] == forms


@pytest.mark.parametrize(
    "text", ["", "=5", "%0", "-1", "5.0", "5 6", "> x", "\u0661", "1e3", "5;", "==="]
)
def test_near_misses_are_refused(text: str) -> None:
    with pytest.raises(RelayError):
        parse_hit_condition(text)


@given(st.sampled_from(sorted(COMPARE)), st.integers(1, 40), st.integers(1, 120))
def test_a_run_of_hits_stops_as_often_as_python_counts(sign: str, bound: int, hits: int) -> None:
    stops = [n for n in range(1, hits + 1) if COMPARE[sign](n, bound)]
    assert stops == [n for n in range(1, hits + 1) if ORACLE[sign](n, bound)]
