"""What two threads ask for at once is one thing, however slowly it is made."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from debug_relay.worker.probe.engine.connection.connect import _OnePerKey


def test_one_thing_for_a_key() -> None:
    both = threading.Barrier(2, timeout=10)

    def make(key: str) -> object:
        both.wait()  # neither has found it
        return [key]

    table = _OnePerKey(make)
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(table.__getitem__, ["*", "*"])
    assert one is other is table["*"]
    assert list(table) == ["*"]
