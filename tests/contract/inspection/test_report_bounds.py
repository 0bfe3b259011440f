"""A reply is never above its bound, whatever the program holds: random object graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kit.client import Client
from tests.kit.source import Source

PROGRAM = """
    import collections, itertools, random

    class Node:
        pass

    class Slotted:
        __slots__ = ("left", "right")

    class Odd(dict):
        def __repr__(self):
            raise KeyError("no repr") if len(self) % 2 else RecursionError()

    Pair = collections.namedtuple("Pair", "left right")
    ATOMS = (0, -1, 2.5, True, None, 10 ** 300, "", "text", "\\x00\\u2028\\ud800", b"\\xff")

    def make(seed):
        chance = random.Random(seed)
        made, count = [], itertools.count()

        def atom():
            kind = chance.randrange(4)
            if kind == 0:
                return chance.choice("\\x00ab\\u00e4\\ud800\\U0001f600") * chance.randrange(3000)
            if kind == 1:
                return bytes(chance.randrange(3000))
            return chance.choice(ATOMS)

        def node(depth):
            if made and chance.random() < 0.15:
                return chance.choice(made)  # shared, or its own ancestor
            kind = chance.randrange(9) if depth and next(count) < 300 else 0
            size = chance.randrange(chance.choice((2, 5, 40)))
            if kind <= 1:
                return atom()
            if kind == 7:
                return Pair(node(depth - 1), node(depth - 1))
            if kind == 8:
                return collections.deque(node(depth - 1) for _ in range(size))
            new = {2: list, 3: dict, 4: Node, 5: Slotted, 6: Odd}[kind]()
            made.append(new)
            if kind == 2:
                new.extend(node(depth - 1) for _ in range(size))
            elif kind == 3:
                new.update((str(n) * n, node(depth - 1)) for n in range(size))
            elif kind == 4:
                new.__dict__.update(("a%d" % n, node(depth - 1)) for n in range(size))
            elif kind == 5:
                new.left = node(depth - 1)
            else:
                new.update((n, node(depth - 1)) for n in range(size))
            return new

        return {"v%d" % n: node(4) for n in range(chance.randrange(60))}

    seed = 0
    while True:
        globals().update(make(seed))
        print("x" * (seed % 9000))
        seed += 1  # @stop
"""


def test_a_reply_is_never_above_its_bound(relay: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    with relay.session() as session:
        session.break_at(program, program["stop"])
        session.launch(program)

        @settings(
            max_examples=50,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(
            most=st.integers(1024, 40_000),
            bounds=st.fixed_dictionaries(
                {},
                optional={
                    "frames": st.integers(0, 1000),
                    "locals": st.integers(0, 1000),
                    "source_lines": st.integers(0, 100),
                    "output_bytes": st.integers(0, 65536),
                },
            ),
        )
        def check(most: int, bounds: dict[str, int]) -> None:
            wanted: dict[str, Any] = {**bounds, "max_bytes": most}
            answer = session.post("/continue", {"wait": 20, "snapshot": wanted})
            data = answer.ok()
            assert data["status"] == "paused"
            assert len(answer.raw) <= most
            report = data["stop"]
            if report is not None:
                assert report["stop_id"] == data["stop_id"]
                assert all(len(row["value"]) <= 200 for row in report["locals"])
                assert len(report["locals"]) <= bounds.get("locals", 50)

        check()
