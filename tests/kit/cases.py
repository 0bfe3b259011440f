"""One test over many cases, where a test for each would take longer than what it asserts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def in_one_test(cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """A decorator: the test calls the function with each case; a failure names the case."""
    every = [case if isinstance(case, tuple) else (case,) for case in cases]

    def decorate(check: Callable[..., None]) -> Callable[[], None]:
        def test() -> None:
            assert every
            for case in every:
                try:
                    check(*case)
                except Exception as error:
                    error.add_note(f"In the case {case!r:.500}")
                    raise

        test.__name__, test.__doc__, test.__module__ = (
            check.__name__,
            check.__doc__,
            check.__module__,
        )
        return test

    return decorate
