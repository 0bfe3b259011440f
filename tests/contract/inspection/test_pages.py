"""Any page of any container, and nothing in it but the program's own values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.client import Client, Session
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

PROGRAM = """
    import collections

    class Thing:
        def __init__(self):
            self.x = 1
        def method(self):
            return self.x

    def main():
        big = list(range(10000))
        pair = (1, "two")
        letters = {"a", "b"}
        names = {f"k{n}": n for n in range(2000)}
        queue = collections.deque(range(700))
        thing = Thing()
        nested = [[1, 2], {"a": 1}, thing]
        print(len(big))  # @here

    main()
"""


def test_pages(relay: Client, source: Callable[..., Source], python: str) -> None:
    program = source(PROGRAM)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["here"])
        session.launch(program)
        listed = session.get("/frames/0/variables").ok()["variables"]
        reference = {one["name"]: one["variables_reference"] for one in listed}

        def page(name: str, **query: object) -> dict[str, object]:
            return dict(session.get(f"/variables/{reference[name]}", **query).ok())

        def rows(name: str, **query: object) -> list[tuple[str, str]]:
            return [(one["name"], one["value"]) for one in page(name, **query)["variables"]]

        first = page("big")
        assert (first["total"], first["has_more"]) == (10000, True)
        assert rows("big", start=9998, count=10) == [("9998", "9998"), ("9999", "9999")]
        assert rows("big", start=100, count=1, filter="indexed") == [("100", "100")]
        assert page("big", filter="named")["total"] == 0
        assert rows("pair") == [("0", "1"), ("1", "'two'")]
        assert sorted(value for _, value in rows("letters")) == ["'a'", "'b'"]
        assert rows("names", start=1999) == [("'k1999'", "1999")]
        assert page("names")["total"] == 2000
        assert rows("queue", start=698) == [("698", "698"), ("699", "699")]
        assert rows("thing") == [("x", "1")]
        nested = page("nested")["variables"]
        assert [one["indexed_variables"] for one in nested] == [2, 0, 0]
        assert [one["named_variables"] for one in nested] == [0, 1, None]
        assert [one["length"] for one in nested] == [2, 1, None]
        inner = session.get(f"/variables/{nested[0]['variables_reference']}").ok()
        assert [one["value"] for one in inner["variables"]] == ["1", "2"]


MILLION = 1_000_000
LARGE = """
    import array, collections, enum, types

    class Named(list):
        pass

    class Key:
        def __hash__(self):
            return 1
        def __eq__(self, other):
            raise ValueError
        def __repr__(self):
            return "Key()"

    class Colour(enum.Enum):
        RED = 1

    Point = collections.namedtuple("Point", "x y")

    def outer():
        closed = 5
        return lambda given=1: closed + given

    def main():
        million = 1_000_000
        a_list, a_tuple, a_range = list(range(million)), tuple(range(million)), range(million)
        a_dict, a_set = {n: -n for n in range(million)}, set(range(million))
        a_deque, an_array = collections.deque(range(million)), array.array("l", range(million))
        a_counter, a_proxy = collections.Counter(a_dict), types.MappingProxyType(a_dict)
        ordered = collections.OrderedDict.fromkeys("abc")
        ordered.move_to_end("a")
        named, point, colour = Named([1, 2]), Point(1, 2), Colour.RED
        named.more = 3
        keyed = {Key(): 1, (1, 2): 2, "x" * 5000: 3, b"raw": 4, None: 5}
        function, nothing, error = outer(), [], OSError(2, "none", "file")
        view, frozen = a_dict.keys(), frozenset([1])
        return a_list  # @here

    main()
"""
MAPPINGS = ("a_dict", "a_counter", "a_proxy")
CONTAINERS = ("a_list", "a_tuple", "a_range", "a_set", "a_deque", "an_array", *MAPPINGS)


def any_page_of_a_million(session: Session, rows: dict[str, Any]) -> None:
    for name in CONTAINERS:
        row = rows[name]
        kind = "named" if name in MAPPINGS else "indexed"
        assert (row["length"], row[f"{kind}_variables"]) == (MILLION, MILLION), name
        for start in (0, 5, MILLION // 2 + 1, MILLION - 2, MILLION, 10 * MILLION):
            path = f"/variables/{row['variables_reference']}"
            page = session.get(path, start=start, count=3).ok()
            names = [int(child["name"]) for child in page["variables"]]
            assert names == list(range(start, min(start + 3, MILLION))), (name, start)
            assert page["total"] == MILLION
            assert page["has_more"] is (start + 3 < MILLION)
        values = [int(child["value"]) for child in session.get(path).ok()["variables"]]
        assert values == [-n if kind == "named" else n for n in range(100)], name
    assert session.get(path, count=1, filter="indexed").ok()["total"] == 0


@pytest.mark.slow
def test_large_containers_and_what_else_can_be_opened(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(LARGE)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["here"])
        session.launch(program)
        rows = {row["name"]: row for row in session.get("/frames/0/variables").ok()["variables"]}
        any_page_of_a_million(session, rows)

        def inside(name: str, **query: object) -> dict[str, str]:
            reference = rows[name]["variables_reference"]
            listed = session.get(f"/variables/{reference}", **query).ok()["variables"]
            return {child["name"]: child["value"] for child in listed}

        assert list(inside("ordered")) == ["'b'", "'c'", "'a'"]
        assert rows["ordered"]["value"].index("'b'") < rows["ordered"]["value"].index("'a'")
        assert inside("named") == {"0": "1", "1": "2", "more": "3"}
        assert inside("named", filter="named") == {"more": "3"}
        assert inside("named", start=1, count=1) == {"1": "2"}
        assert inside("point") == {"x": "1", "y": "2"}
        assert inside("colour")["_value_"] == "1"
        keys = list(inside("keyed"))
        assert [key for key in keys if not key.startswith("'x")] == [
            *("Key()", "(1, 2)", "b'raw'", "None"),
        ]
        assert all(len(key) <= 200 for key in keys)
        assert inside("function") == {"__closure__": "(<cell 5>,)", "__defaults__": "(1,)"}
        assert inside("error")["errno"] == "2"
        assert inside("error")["filename"] == "'file'"
        assert (rows["nothing"]["expandable"], rows["nothing"]["length"]) == (False, 0)
        assert inside("frozen") == {"0": "1"}
        assert list(inside("view", count=2)) == ["0", "1"]
        # A key is set by its words; the object by its name.
        for name, key, value in (("keyed", "(1, 2)", "7"), ("named", "more", "8")):
            reference = rows[name]["variables_reference"]
            body = {"name": key, "value": value}
            assert session.post(f"/variables/{reference}/set", body).ok()["value"] == value
            assert inside(name)[key] == value
