"""The page of deadlines and sizes is as the code is, and every bound says what it bounds."""

from __future__ import annotations

import operator

from tests.meta.bounds import NO_BOUNDS, PAGE, agreements, bounds, page
from tests.meta.documents import ROOT


def test_every_bound_says_what_it_bounds():
    silent = [
        f"{bound.module}: {bound.name}" for bound in bounds() if not bound.sentence.endswith(".")
    ]
    assert silent == [], "write a sentence beside the number, or list it in NO_BOUNDS"


def test_the_page_is_as_the_code_is():
    assert PAGE.read_text(encoding="utf-8") == page(), "regenerate it with: make docs"


def test_bounds_that_must_agree_agree():
    holds = {"<": operator.lt, "<=": operator.le}
    broken = [
        f"{left.name} {relation} {right.name}: {why}"
        for left, relation, right, why in agreements()
        if not holds[relation](left.value, right.value)
    ]
    assert broken == []


def test_what_bounds_nothing_exists():
    """So that the list of exceptions does not outlive them."""
    gone = [
        f"{module}: {name}"
        for module, names in NO_BOUNDS.items()
        for name in names.split()
        if f"{name}: Final = " not in (text := (ROOT / module).read_text(encoding="utf-8"))
        and f"\n{name} = " not in text
    ]
    assert gone == []
