"""Any page of any container, and nothing in it but the program's own values."""

from __future__ import annotations

from collections.abc import Callable

from tests.kit.client import Client
from tests.kit.source import Source

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
        assert [one["indexed_variables"] for one in nested] == [2, 0, None]
        assert [one["length"] for one in nested] == [2, 1, None]
        inner = session.get(f"/variables/{nested[0]['variables_reference']}").ok()
        assert [one["value"] for one in inner["variables"]] == ["1", "2"]
