"""The switch interval: what our threads change at the same time is the program's own afterwards."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator

import pytest

from debug_relay.worker.probe.startup import switch_interval as pace


@pytest.fixture(autouse=True)
def interval() -> Iterator[float]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.004)
    yield 0.004
    assert [name for name in vars(threading) if name.startswith("relay pace")] == []
    sys.setswitchinterval(before)


def now() -> float:
    return pytest.approx(sys.getswitchinterval(), rel=0.01)  # type: ignore[no-any-return]


def test_who_hurries_gives_back_what_was_there(interval: float) -> None:
    with pace.Pace():  # type: ignore[no-untyped-call]
        assert sys.getswitchinterval() < interval
        with pace.Pace(), pace.Undisturbed():  # type: ignore[no-untyped-call]
            assert sys.getswitchinterval() > interval
        assert sys.getswitchinterval() < interval
    assert now() == interval


@pytest.mark.parametrize("comes", [False, True])
def test_one_who_comes_or_goes_while_another_is_undisturbed(interval: float, comes: bool) -> None:
    looks, goes = threading.Event(), threading.Event()

    def look() -> None:
        with pace.Undisturbed():  # type: ignore[no-untyped-call]
            looks.set()
            goes.wait(10)
            time.sleep(0.05)  # the other one is at it meanwhile, and waits

    other = threading.Thread(target=look)
    hurry = pace.Pace()  # type: ignore[no-untyped-call]
    if comes:
        other.start()
        looks.wait(10)
        goes.set()
        hurry.__enter__()  # type: ignore[no-untyped-call]
    else:
        hurry.__enter__()  # type: ignore[no-untyped-call]
        other.start()
        looks.wait(10)
        goes.set()
    assert not comes or sys.getswitchinterval() < interval
    hurry.__exit__()  # type: ignore[no-untyped-call]
    other.join(10)
    assert now() == interval


@pytest.mark.parametrize("kind", ["Pace", "Undisturbed"])
def test_what_the_program_chooses_meanwhile_stays(kind: str) -> None:
    with getattr(pace, kind)():
        sys.setswitchinterval(0.007)
    assert now() == 0.007
