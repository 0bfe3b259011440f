"""Values that do their worst while they are shown: the stop is told, the report stays in bounds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.client import Client, Session
from tests.kit.relay import eventually
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

HOSTILE = """
    import collections, dataclasses, enum, time

    class Raises:
        def __repr__(self):
            raise RuntimeError("no")

    class Exits:
        def __repr__(self):
            raise SystemExit(3)

    class Huge:
        def __repr__(self):
            return "z" * 10_000_000

    class Prints:
        def __repr__(self):
            print("NOISE")
            return "printed"

    class Recurses:
        def __repr__(self):
            return repr(self)

    class Odd(str):
        def __len__(self):
            raise ValueError
        def __getitem__(self, at):
            raise ValueError

    class Liar:
        __class__ = property(lambda self: 1 / 0)
        __dict__ = property(lambda self: 1 / 0)
        def __getattribute__(self, name):
            raise ValueError(name)
        def __eq__(self, other):
            raise ValueError
        __hash__ = None

    class Meta(type):
        def __repr__(cls):
            raise ValueError
        def __getattribute__(cls, name):
            raise ValueError(name)

    class Made(metaclass=Meta):
        pass

    class NoString:
        def __repr__(self):
            return 7

    class Key:
        def __hash__(self):
            return 1
        def __eq__(self, other):
            raise ValueError

    @dataclasses.dataclass
    class Point:
        x: int
        y: object = None

    Pair = collections.namedtuple("Pair", "left right")

    class Colour(enum.Enum):
        RED = 1

    class Lazy(list):
        def __iter__(self):
            raise ValueError
        def __len__(self):
            raise ValueError

    def main():
        raises, exits, huge, prints = Raises(), Exits(), Huge(), Prints()
        recurses, odd, liar, made, nostring = Recurses(), Odd("text"), Liar(), Made(), NoString()
        keyed = {Key(): 1}
        point, pair, colour, lazy = Point(1), Pair(1, 2), Colour.RED, Lazy([1, 2])
        point.y = point
        million, number, text = list(range(1_000_000)), 10 ** 5000, "\\udc80 and \\u00e4"
        raw, deep = b"\\x00\\xff" * 5000, []
        for _ in range(5000):
            deep = [deep]
        nested = {"a": [raises, huge]}
        loop = [1]
        loop.append({"me": loop})
        return 1  # @stop

    main()
"""


def rows(report: Any) -> dict[str, Any]:
    return {row["name"]: row for row in report["locals"]}


def test_every_one_is_shown_within_bounds(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(HOSTILE)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["stop"])
        report = session.launch(program, snapshot=True)["stop"]
        found = rows(report)
        shown = {name: row["value"] for name, row in found.items()}
        assert shown["raises"] == "<__main__.Raises: repr raised RuntimeError>"
        assert shown["exits"] == "<__main__.Exits: repr raised SystemExit>"
        assert shown["recurses"] == "<__main__.Recurses: repr raised RecursionError>"
        assert shown["nostring"] == "<__main__.NoString: repr raised TypeError>"
        assert shown["prints"] == "printed"
        assert shown["odd"] == "<__main__.Odd 'text'>"
        assert shown["point"] == "Point(x=1, y=<circular: point>)"
        assert shown["pair"] == "Pair(left=1, right=2)"
        assert shown["colour"] == "<Colour.RED: 1>"
        assert shown["lazy"] == "<__main__.Lazy [1, 2]>"
        assert shown["number"] == "<int of 16610 bits>"
        assert shown["text"] == "'\\udc80 and ä'"
        assert shown["million"].endswith("… 999980 more]")
        assert shown["keyed"].startswith("{<__main__.Key>: 1")
        assert shown["nested"].startswith("{'a': [<__main__.Raises: repr raised RuntimeError>")
        assert shown["loop"] == "[1, {'me': <circular: loop>}]"
        assert found["loop"]["circular"] is True
        assert found["million"]["length"] == 1_000_000
        assert found["million"]["truncated"] is True
        assert found["raw"]["base64"].startswith("AP8A/wD/")
        assert (found["raw"]["length"], found["raw"]["type"]) == (10000, "bytes")
        assert all(len(row["value"]) <= 200 for row in report["locals"])
        assert "liar" in shown
        assert "made" in shown
        session.delete("/breakpoints")
        assert session.resume()["exit_code"] == 0
        assert session.printed() == "", "what a repr prints is not what the program prints"


def test_a_slow_repr_holds_back_neither_the_stop_nor_the_session(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source("""
        import time

        class Slow:
            def __repr__(self):
                time.sleep(60)

        class Busy:
            def __repr__(self):
                while True:
                    pass

        def main():
            before, slow, busy, after = 1, Slow(), Busy(), 2
            return after  # @stop

        main()
    """)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["stop"])
        began = time.monotonic()
        stopped = session.launch(program)
        told = time.monotonic() - began
        assert stopped["status"] == "paused"
        assert session.value("after") == "2"
        assert time.monotonic() - began < told + 10
        (report,) = session.get("/history").ok()["items"]
        shown = {name: row["value"] for name, row in rows(report).items()}
        assert (shown["before"], shown["after"]) == ("1", "2")
        assert shown["slow"] == "<__main__.Slow: repr took too long>"
        assert shown["busy"] == "<__main__.Busy>"
        session.delete("/breakpoints")
        assert session.resume()["exit_code"] == 0


# -- pages of variables: the same values, asked for


def listed(session: Session, reference: int | None = None, **query: Any) -> dict[str, Any]:
    path = "/frames/0/variables" if reference is None else f"/variables/{reference}"
    return {row["name"]: row for row in session.get(path, **query).ok()["variables"]}


def test_a_value_reads_the_same_wherever_it_is_shown(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(HOSTILE)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["stop"])
        report = session.launch(program, snapshot=True)["stop"]
        outline = listed(session, summary="true")
        session.post("/evaluate", {"expression": "print('MARK')", "context": "repl"}).ok()
        eventually(lambda: "MARK\n" in session.printed())
        assert "NOISE" not in session.printed()  # none of the program's code has run for it
        page = listed(session)
        assert outline.keys() == page.keys()
        for name, row in outline.items():
            assert row["value"] == "", name
            for fact in ("type", "length", "expandable", "variables_reference"):
                assert row.get(fact) == page[name].get(fact), (name, fact)
        assert outline["million"]["length"] == 1_000_000
        for name in ("raises", "point", "loop", "keyed"):
            assert rows(report)[name].items() <= page[name].items(), name
        for name in ("raises", "exits", "recurses", "odd", "point", "lazy", "colour", "nostring"):
            assert session.value(name) == page[name]["value"], name
        loop = session.post("/evaluate", {"expression": "loop"}).ok()
        assert (loop["circular"], loop["length"], loop["indexed_variables"]) == (True, 2, 2)
        raw = session.post("/evaluate", {"expression": "raw"}).ok()
        assert (raw["length"], raw["base64"][:8]) == (10000, "AP8A/wD/")
        assert len(listed(session)["huge"]["value"]) == 1000
        # What nobody asked for printed nothing; what somebody asks for does.
        eventually(lambda: "NOISE\n" in session.printed())
        session.delete("/breakpoints")
        assert session.resume()["exit_code"] == 0


WAYS = """
    class Node:
        def __init__(self, name):
            self.name = name

    def main():
        root = {}
        child = {"parent": root, "n": 1}
        root["child"] = child
        one, two = Node("one"), Node("two")
        one.other, two.other = two, one
        shared = [1]
        pair = [shared, shared]
        print(root is child["parent"], pair)  # @stop

    main()
"""


def test_what_refers_back_says_to_what(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(WAYS)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["stop"])
        session.launch(program)
        top = listed(session)
        inside = listed(session, top["root"]["variables_reference"])["'child'"]
        assert inside["value"] == "{'parent': <circular: root>, 'n': 1}"
        back = listed(session, inside["variables_reference"])["'parent'"]
        assert (back["value"], back["circular"]) == ("<circular: root>", True)
        assert back["variables_reference"] == top["root"]["variables_reference"]
        # By another way it is not inside of itself.
        other = listed(session, top["child"]["variables_reference"])["'parent'"]
        assert other["value"] == "{'child': <circular: child>}"
        two = listed(session, top["one"]["variables_reference"])["other"]
        one = listed(session, two["variables_reference"])["other"]
        assert (one["value"], one["circular"]) == ("<circular: one>", True)
        deeper = listed(session, one["variables_reference"])["other"]
        assert deeper["variables_reference"] == two["variables_reference"]
        # The same thing twice is no circle.
        pair = listed(session, top["pair"]["variables_reference"])
        assert [row["value"] for row in pair.values()] == ["[1]", "[1]"]
        assert "circular" not in pair["0"]


PROPERTIES = """
    import functools, time

    class Base:
        colour = "red"

    class Thing(Base):
        __slots__ = ("slot", "unset")
        count = 3

        def __init__(self):
            self.x, self.slot = 1, 2

        @property
        def loud(self):
            print("RUN")
            return [7]

        @property
        def broken(self):
            raise ValueError("no")

        @property
        def endless(self):
            while True:
                pass

        @functools.cached_property
        def cached(self):
            return 5

        def method(self):
            pass

    def main():
        thing = Thing()
        print("now")  # @stop

    main()
"""


def test_properties_run_when_they_are_opened(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(PROPERTIES)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["stop"])
        session.launch(program)
        thing = listed(session, listed(session)["thing"]["variables_reference"])
        assert list(thing) == [
            *("broken", "cached", "endless", "loud", "slot", "x", "class attributes"),
        ]
        assert thing["loud"]["value"] == "<property>"
        assert thing["loud"]["presentation_hint"] == {"kind": "property", "lazy": True}
        assert session.printed() == ""
        loud = listed(session, thing["loud"]["variables_reference"])["loud"]
        assert (loud["value"], loud["type"]) == ("[7]", "list")
        assert list(listed(session, loud["variables_reference"])) == ["0"]
        eventually(lambda: session.printed() == "RUN\n")
        broken = listed(session, thing["broken"]["variables_reference"])["broken"]
        assert broken["value"] == "<property raised ValueError>"
        began = time.monotonic()
        endless = listed(session, thing["endless"]["variables_reference"])["endless"]
        assert endless["value"] == "<property took too long>"
        assert time.monotonic() - began < 10
        assert listed(session, thing["cached"]["variables_reference"])["cached"]["value"] == "5"
        assert listed(session, thing["class attributes"]["variables_reference"]).keys() == {
            "colour",
            "count",
        }
        again = listed(session, listed(session)["thing"]["variables_reference"])
        assert again["loud"] == thing["loud"]
        reference = thing["class attributes"]["variables_reference"]
        body = {"name": "colour", "value": "'blue'"}
        assert session.post(f"/variables/{reference}/set", body).ok()["value"] == "'blue'"
        assert session.value("Base.colour") == "'blue'"
        session.delete("/breakpoints")
        assert session.resume()["exit_code"] == 0


@pytest.mark.slow
def test_a_thread_that_hangs_in_a_repr_is_told_by_another(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source("""
        import threading

        gate = threading.Lock()
        gate.acquire()

        class Hangs:
            def __repr__(self):
                gate.acquire()
                return "through"

        def work():
            before, hangs, plain = 1, Hangs(), [1, 2]
            return before  # @stop

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    """)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["stop"])
        session.launch(program)
        began = time.monotonic()
        page = session.get("/frames/0/variables").ok()
        assert time.monotonic() - began < 10
        assert page["evaluating"] is True
        shown = {row["name"]: row["value"] for row in page["variables"]}
        assert shown == {"before": "1", "hangs": "<__main__.Hangs>", "plain": "[1, 2]"}
        reference = next(
            r["variables_reference"] for r in page["variables"] if r["name"] == "plain"
        )
        assert [row["value"] for row in listed(session, reference).values()] == ["1", "2"]
        error = session.post("/evaluate", {"expression": "before", "timeout": 0.2})
        assert error.refused("DEBUGPY_TIMEOUT", 504)["details"]["evaluating"] is True
