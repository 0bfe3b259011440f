"""The garbage collector is the program's: it is back whoever comes and goes, also in a child."""

from __future__ import annotations

import gc
import os

from debug_relay.worker.probe.engine.threads.running_frames import Uncollected, in_child


def test_the_last_one_ends_it() -> None:
    first, second = Uncollected(), Uncollected()
    first.__enter__()
    second.__enter__()
    first.__exit__()
    assert not gc.isenabled()
    second.__exit__()
    assert gc.isenabled()


def test_one_that_is_off_stays_off() -> None:
    gc.disable()
    try:
        with Uncollected():
            in_child()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_child_that_is_forked_meanwhile_has_it() -> None:
    with Uncollected():
        pid = os.fork()
        if pid == 0:
            in_child()
            os._exit(0 if gc.isenabled() else 1)
        assert os.waitpid(pid, 0)[1] == 0
    assert gc.isenabled()
