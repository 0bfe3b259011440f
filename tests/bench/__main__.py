"""`python -m tests.bench`: the relay beside debugpy as shipped, in one run.

Exits with 1 when the relay misses a target by more than the tolerance.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.bench.figures import TOLERANCE, table
from tests.bench.measure import Bench
from tests.kit.relay import Relay


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--rounds", type=int, default=12, help="turns of each side (default 12)")
    chosen = parser.parse_args(arguments)
    if chosen.rounds < 1:
        parser.error("--rounds must be 1 or more")
    with tempfile.TemporaryDirectory(prefix="relay-bench-") as folder:
        relay = Relay(Path(folder) / "data").start()
        try:
            measured = Bench(relay, Path(folder), chosen.rounds).run()
        finally:
            relay.stop()
    if chosen.json:
        print(json.dumps({"rows": [row.public() for row in measured.values()]}, indent=2))
    else:
        print(table(measured))
    return int(any(row.excess > TOLERANCE for row in measured.values()))


if __name__ == "__main__":
    sys.exit(main())
