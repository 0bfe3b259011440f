"""`python -m tests.bench.after_detach [PYTHON …]`: how fast a program is after a detach.

One run of a program times the same loop before, while it is attached, and after it was let go at a
breakpoint in the loop; medians of rounds that alternate, and the time an attach takes. Exits with 1
when a program stays more than 10 % slower.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.kit.client import Client
from tests.kit.relay import Relay, eventually
from tests.kit.running import Running
from tests.kit.source import Source

ROUNDS: Final = 5
SLOWER: Final = 1.10
TIMED: Final = """
    import sys, time

    def work(n):
        doubled = n * 2  # @line
        return doubled

    def loop():
        began = time.process_time()
        for n in range(200_000):
            work(n)
        return time.process_time() - began

    print("up", flush=True)
    for line in sys.stdin:
        if line.strip() == "work":
            work(1)
        else:
            print(min(loop() for _ in range(5)), flush=True)
"""


def timed(one: Running) -> float:
    """Processor time, which neighbours on the machine change least."""
    tell(one, "time")
    return float(one.line(120))


def tell(one: Running, word: str) -> None:
    assert one.process.stdin is not None
    one.process.stdin.write(word + "\n")
    one.process.stdin.flush()


def measure(client: Client, folder: Path, python: str) -> tuple[float, float, float, float]:
    one = Running(Source(folder / "timed.py", TIMED), python)
    before: list[float] = []
    attached: list[float] = []
    after: list[float] = []
    milliseconds: list[float] = []
    try:
        assert one.line() == "up"
        timed(one)  # warm
        before += [timed(one), timed(one)]
        for _ in range(ROUNDS):
            with client.session() as session:
                began = time.monotonic()
                session.post("/attach", {"pid": one.pid, "connect_timeout": 60}).ok()
                milliseconds.append((time.monotonic() - began) * 1000)
                attached.append(timed(one))
                session.break_at(one.program, one.program["line"])
                tell(one, "work")
                eventually(lambda s=session: s.status()["status"] == "paused", timeout=30)  # type: ignore[misc]
                session.post("/detach").ok()
            after.append(timed(one))
    finally:
        one.end()
    base = statistics.median(before)
    return (
        statistics.median(milliseconds),
        base,
        statistics.median(attached) / base,
        statistics.median(after) / base,
    )


def main(pythons: list[str]) -> int:
    slow = False
    with tempfile.TemporaryDirectory(prefix="relay-bench-") as folder:
        relay = Relay(Path(folder) / "data").start()
        try:
            print("| python | attach ms | loop s | attached, times | after detach, times |")
            print("| --- | --- | --- | --- | --- |")
            for number, python in enumerate(pythons):
                place = Path(folder) / str(number)
                place.mkdir()
                attach, base, during, left = measure(relay.client, place, python)
                slow = slow or left > SLOWER
                print(f"| {python} | {attach:.0f} | {base:.3f} | {during:.2f} | {left:.2f} |")
        finally:
            relay.stop()
    return int(slow)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or [sys.executable]))
