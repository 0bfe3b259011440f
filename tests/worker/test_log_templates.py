"""Log messages read as Python reads an f-string, whatever the expressions hold."""

from __future__ import annotations

import datetime
import sys
from typing import Any

import pytest

from debug_relay.worker.probe.runtime.expressions import Template

NAMES: dict[str, Any] = {
    "x": 3.14159,
    "s": "hé",
    "d": {"k": 5, "a:b": 6},
    "w": 10,
    "p": 2,
    "xs": [1, 2, 3],
    "now": datetime.datetime(2020, 1, 2, 3, 4, 5),
}
ALIKE = (
    "{x!r:>10}", "{{}}", "{{{x}}}", "}}{{", "{x:{w}.{p}f}", "{d['k']}", "{d['a:b']}", "{x=}",
    "{x = }", "{x = !r}", "{ x = :.2f}", "{x=!s:>20}", "{x!r }", "{ x!r }", "{x!=3}", "{x>=3}",
    "{'}'}", "{'a' if x!=3 else 'b'}", "{(lambda q: q+1)(2)}", "{ {1:2}[1] }", "{xs[::-1]!r}",
    "{[i for i in xs if i!=w]}", "{now:%Y-%m-%d %H:%M}", "{(y:=5)}", "{x:=^10}", "{s!a}",
    "{'!r'}", "{x,}", "{1_000:,}", "{x:>{d['k']}}", "{xs[0] if xs else None!r}",
)  # fmt: skip
REFUSED = ("{}", "{ }", "{!r}", "{x!z}", "{x", "x}", "{x}}", "{x;1}", "{x!r", "{x:", "{x =")


class Frame:
    f_globals = NAMES
    f_locals = NAMES


@pytest.mark.parametrize("text", ALIKE)
def test_as_python_writes_it(text: str) -> None:
    if "!r }" in text and sys.version_info < (3, 12):
        expected = "3.14159"  # a blank behind a conversion is allowed from 3.12 on
    else:
        expected = eval("f" + repr(text), dict(NAMES))
    assert Template(text)(Frame()) == expected


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_f_string_is_refused(text: str) -> None:
    with pytest.raises(SyntaxError):
        Template(text)
