"""Whether a relay answers others meanwhile, measured so that a busy machine does not count."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.kit.relay import Relay

_PAUSE_SECONDS = 0.005


@dataclass
class Longest:
    """The longest answer of `/health` so far, in seconds."""

    seconds: float = 0.0
    answers: int = 0


@contextmanager
def health_watched(relay: Relay) -> Iterator[Longest]:
    """Asks for `/health` all the while, on a connection of its own.

    What counts of an answer is the processor time that the relay's threads took meanwhile, if that
    is less than the clock's: a relay that is held works, one that the machine does not run waits.
    """
    longest = Longest()
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(relay, longest, over))
    watcher.start()
    try:
        yield longest
    finally:
        over.set()
        watcher.join(60)
    assert longest.answers > 0


def _watch(relay: Relay, longest: Longest, over: threading.Event) -> None:
    client = relay.client
    connection = http.client.HTTPConnection(client.host, client.port, timeout=120)
    while not over.is_set():
        worked, began = _processor_seconds(relay.pid), time.monotonic()
        connection.request("GET", client.prefix + "/health")
        response = connection.getresponse()
        response.read()
        took = min(time.monotonic() - began, _processor_seconds(relay.pid) - worked)
        assert response.status == 200
        longest.seconds = max(longest.seconds, took)
        longest.answers += 1
        time.sleep(_PAUSE_SECONDS)  # it is to watch, and not to be the load
    connection.close()


def _processor_seconds(pid: int) -> float:
    """Of all threads together: one that holds the interpreter lock keeps the loop waiting."""
    total = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((thread / "schedstat").read_text().split()[0])
        except OSError:
            continue  # it has ended
    return total / 1e9
