"""`python -m tests.matrix`: attach to every kind of program on every Python; writes a table.

What was tried is kept in the cache, so that the table can be made in pieces: with --python or
--kind only those are tried anew. Rows of the table that the cache does not know stay as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.kit.relay import Relay
from tests.kit.source import interpreters
from tests.matrix import targets
from tests.matrix.environments import environment, minor
from tests.matrix.table import rendered
from tests.matrix.trial import Trial

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "debug-relay-matrix"
TABLE = Path(__file__).parents[2] / "docs" / "guide" / "attach-table.md"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument(
        "--python", action="append", help="an interpreter or a version such as 3.12 (default: all)"
    )
    parser.add_argument("--kind", action="append", choices=targets.KINDS, help="(default: all)")
    parser.add_argument("--cache", type=Path, default=CACHE, help=f"default {CACHE}")
    parser.add_argument("--table", type=Path, default=TABLE, help="where it is written")
    chosen = parser.parse_args(arguments)
    known = interpreters()
    pythons = [known.get(one, one) for one in chosen.python or known]
    results = chosen.cache / "results"
    results.mkdir(parents=True, exist_ok=True)
    troubles = 0
    for python in pythons:
        inside = environment(python, chosen.cache)
        for kind in chosen.kind or targets.KINDS:
            seen = tried(kind, inside)
            troubles += len(seen["troubles"])
            print(minor(python), kind, json.dumps(seen), file=sys.stderr, flush=True)
            name = f"{minor(python)}-{kind.replace(' ', '-')}.json"
            row = {"python": minor(python), "kind": kind, **seen}
            (results / name).write_text(json.dumps(row))
            known_rows = chosen.table.read_text() if chosen.table.exists() else ""
            chosen.table.write_text(rendered(collected(results), known_rows))
    return 1 if troubles else 0


def tried(kind: str, python: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="matrix-") as folder:
        relay = Relay(Path(folder) / "data").start()
        try:
            twin = targets.start(targets.TWIN, python, Path(folder) / "twin")
            try:
                target = targets.start(kind, python, Path(folder) / "target")
                try:
                    return Trial(relay, target, twin).run()
                finally:
                    target.end()
            finally:
                twin.end()
        finally:
            relay.stop()


def collected(results: Path) -> dict[tuple[str, str], dict[str, Any]]:
    rows = (json.loads(path.read_text()) for path in results.iterdir())
    return {(row["python"], row["kind"]): row for row in rows}


if __name__ == "__main__":
    sys.exit(main())
