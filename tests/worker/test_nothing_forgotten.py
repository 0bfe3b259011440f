"""Who is woken in the program to do what was posted does all of it, whenever it was posted."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any

from debug_relay.worker.probe.engine.connection.connect import _CommandEvent, _ThreadEvent

LONG = 10.0


def seconds_of(wait: Any) -> float:
    began = time.monotonic()
    wait(LONG)
    return time.monotonic() - began


def test_what_was_posted_before_the_clear_is_not_forgotten() -> None:
    signal = _CommandEvent()
    signal.wait(0)  # and then it looks what there is
    signal.set()
    signal.clear()
    assert seconds_of(signal.wait) < LONG / 2
    began = time.monotonic()
    signal.wait(0.02)  # there is nothing more
    assert time.monotonic() - began >= 0.02


def test_what_was_posted_before_anyone_waited_is_found() -> None:
    signal = _CommandEvent()
    signal.set()
    signal.clear()
    assert seconds_of(signal.wait) < LONG / 2


def test_all_who_wait_are_woken() -> None:
    signal, taken = _CommandEvent(), []

    def take() -> None:
        signal.wait(0)
        ready.wait()
        taken.append(seconds_of(signal.wait))

    ready = threading.Barrier(3, timeout=LONG)
    threads = [threading.Thread(target=take) for _ in range(2)]
    for thread in threads:
        thread.start()
    ready.wait()
    signal.set()
    for thread in threads:
        thread.join(LONG * 3)
    assert len(taken) == 2
    assert max(taken) < LONG / 2


def test_a_second_command_wakes_like_the_first() -> None:
    posted: queue.Queue[str] = queue.Queue()
    event = _ThreadEvent(threading.Event(), posted)
    for command in ("what is to be done before a step", "the step"):
        posted.put(command)
        event.set()
    for _ in range(2):  # one at a time, as pydevd does
        assert seconds_of(event.wait) < LONG / 2
        event.clear()
        posted.get(False)
    event.wait(0.01)
    event.clear()
    began = time.monotonic()
    event.wait(0.02)
    assert time.monotonic() - began >= 0.02
