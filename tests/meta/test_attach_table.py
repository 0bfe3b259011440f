"""The table of attaching is as its generator writes it, and is made anew row by row."""

from __future__ import annotations

from tests.matrix.__main__ import TABLE
from tests.matrix.table import rendered
from tests.matrix.targets import KINDS

SEEN = {
    "attach_ms": 12.3, "hit": True, "detach": True, "free": True, "speed": 1.0, "again": 10,
    "children": {"fork": 0}, "killed": True, "free_killed": True, "speed_killed": 1.0,
    "children_killed": {"fork": 0}, "after_killed": True,
}  # fmt: skip


def test_it_is_as_it_is_written() -> None:
    assert rendered({}, TABLE.read_text()) == TABLE.read_text()


def test_a_row_takes_the_place_of_its_former_one() -> None:
    slow = {**SEEN, "troubles": ["it was slow"]}
    former = rendered({("3.9", KINDS[0]): slow, ("3.15", KINDS[0]): slow})
    assert former.count("it was slow") == 2
    anew = rendered({("3.15", KINDS[0]): {**SEEN, "troubles": []}}, former)
    assert anew == rendered({("3.9", KINDS[0]): slow, ("3.15", KINDS[0]): {**SEEN, "troubles": []}})
