"""Finds what repeats in a list: the frames of a recursion, the entries of its traceback."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Final

from msgspec import Struct

_LONGEST: Final = 50  # Entries of the longest sequence whose repeats are found.
_TIMES: Final = 3  # Fewer times are no repeat.


class Repeat(Struct, frozen=True):
    """`period` entries, the first time from `first` on, in all `times` after each other."""

    first: int
    period: int
    times: int

    @property
    def end(self) -> int:
        return self.first + self.period * self.times


def repeats_in(entries: Sequence[Hashable]) -> Iterator[Repeat]:
    at = 0
    while at < len(entries):
        found = _repeat_at(entries, at)
        if found is None:
            at += 1
        else:
            yield found
            at = found.end


def _repeat_at(entries: Sequence[Hashable], first: int) -> Repeat | None:
    """The repeat with the shortest period that begins here."""
    for period in range(1, _LONGEST + 1):
        if first + _TIMES * period > len(entries):
            return None
        if entries[first] != entries[first + period]:
            continue
        times = 1
        while _is_again(entries, first, period, times):
            times += 1
        if times >= _TIMES:
            return Repeat(first, period, times)
    return None


def _is_again(entries: Sequence[Hashable], first: int, period: int, times: int) -> bool:
    start = first + times * period
    return entries[start : start + period] == entries[first : first + period]
