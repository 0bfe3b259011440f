"""`python -m tests.bench.watchpoints [PYTHON …]`: what a watchpoint costs.

One program times a loop in a watched function and one in another function: without a debugger,
debugged, and with the watchpoint; the fastest of rounds that alternate. Exits with 1 when a watched
line takes more than `MOST_MICROSECONDS`, or other code from 3.12 on is slowed at all.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.kit.client import Client
from tests.kit.relay import Relay
from tests.kit.source import Source, has_monitoring, interpreters

ROUNDS: Final = 3
MOST_MICROSECONDS: Final = 20.0  # A watched line, on a machine that others use too.
SLOWER: Final = 1.3  # Other code with the watchpoint, against the debugged program.
TIMED: Final = """
    import time

    class Account:
        def __init__(self):
            self.balance = 0

    def watched(account, count):
        total = 0
        for n in range(count):
            total += n
            total -= 1
            total += account.balance
        return total

    def other(count):
        total = 0
        for n in range(count):
            total += n
        return total

    def seconds(work, *args):
        began = time.process_time()
        work(*args)
        return time.process_time() - began

    print(seconds(watched, Account(), 5_000) / 20_000, seconds(other, 1_000_000) / 2_000_000)
"""
MODES: Final = ("plain", "debugged", "watched")


def measure(client: Client, program: Source, python: str) -> dict[str, tuple[float, float]]:
    """Microseconds of a line in the watched function and in the other, by mode."""
    found: dict[str, list[tuple[float, float]]] = {mode: [] for mode in MODES}
    for _ in range(ROUNDS):
        for mode in MODES:
            if mode == "plain":
                said = _plain(program, python)
            else:
                said = _debugged(client, program, python, watched=mode == "watched")
            inside, outside = said.split()
            found[mode].append((float(inside) * 1e6, float(outside) * 1e6))
    return {
        mode: (min(one for one, _ in times), min(other for _, other in times))
        for mode, times in found.items()
    }


def _plain(program: Source, python: str) -> str:
    return subprocess.run([python, str(program)], capture_output=True, text=True, check=True).stdout


def _debugged(client: Client, program: Source, python: str, *, watched: bool) -> str:
    scope = {"function": "watched", "file": str(program)}
    point: dict[str, Any] = {"watch": "account.balance", "in": scope}
    with client.session(python_path=python) as session:
        if watched:
            session.post("/breakpoints", {"breakpoints": [point]}).ok()
        session.launch(program, wait=120)
        return session.printed()


def main(arguments: list[str]) -> int:
    chosen = {name: path for name, path in interpreters().items() if name in arguments}
    missed = False
    print("microseconds a line: plain, debugged, with the watchpoint; watched function | other")
    with tempfile.TemporaryDirectory(prefix="relay-bench-") as folder:
        program = Source(Path(folder) / "timed.py", TIMED)
        relay = Relay(Path(folder) / "data").start()
        try:
            for name, python in (chosen or interpreters()).items():
                times = measure(relay.client, program, python)
                inside, outside = zip(*(times[mode] for mode in MODES), strict=True)
                row = [" ".join(f"{one:7.3f}" for one in part) for part in (inside, outside)]
                print(f"{name:5} {row[0]} | {row[1]}", flush=True)
                missed |= inside[2] > MOST_MICROSECONDS
                missed |= has_monitoring(python) and outside[2] > outside[1] * SLOWER
        finally:
            relay.stop()
    return int(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
