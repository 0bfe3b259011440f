"""Arrays and tables of numpy and pandas: by shape and head, any page, nothing hostile run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.client import Client, Session
from tests.kit.relay import eventually
from tests.kit.running import Running
from tests.kit.source import Source

for library in ("numpy", "pandas"):
    pytest.importorskip(library, reason=f"{library} is not installed: the extra `numeric` has it")

PROGRAM = """
    import sys, time
    import numpy, pandas

    ran = []

    class Evil:
        def __repr__(self):
            ran.append("repr")
            raise ValueError("no")
        __str__ = __bool__ = __len__ = __repr__
        def __eq__(self, other):
            ran.append("eq")
            raise ValueError
        def __hash__(self):
            return 1

    class Meta(type):
        def __hash__(cls):
            ran.append("hash")
            raise ValueError

    class Made(metaclass=Meta):
        pass

    class Array(numpy.ndarray):
        def __repr__(self):
            ran.append("array")
            return "mine"

    def main():
        line, grid = numpy.arange(1_000_000), numpy.zeros((3, 4))
        number, zero, nothing = numpy.float64(1.5), numpy.array(5), numpy.zeros((0, 3))
        dates = numpy.array(["2020-01-01", "NaT"], dtype="datetime64[D]")
        objects = numpy.empty(3, dtype=object)
        objects[0], objects[1], objects[2] = Evil(), Made(), [objects]
        records = numpy.array([(1, Evil())], dtype=[("a", "i4"), ("o", "O")])
        own = numpy.zeros(3).view(Array)
        frame = pandas.DataFrame({"n": range(1000), "name": ["x"] * 1000})
        wide = pandas.DataFrame(numpy.zeros((2, 2000)))
        hostile = pandas.DataFrame([[1]], columns=pandas.Index([Evil()], dtype=object))
        column, series = frame["n"], pandas.Series([Evil(), 2])
        times = pandas.Series([pandas.Timestamp("2020"), pandas.NaT])
        del ran[:]
        return line  # @here

    if sys.argv[1:]:
        print("up", flush=True)
        while True:
            main()
            time.sleep(0.05)
    main()
"""
PLAIN = {
    "line": "ndarray shape=(1000000,) dtype=int64 [0, 1, 2, 3, 4, …]",
    "zero": "ndarray shape=() dtype=int64 [5]",
    "nothing": "ndarray shape=(0, 3) dtype=float64 []",
    "column": "Series shape=(1000,) dtype=int64 [0, 1, 2, 3, 4, …]",
}


def shown_in(session: Session) -> tuple[dict[str, Any], dict[str, str]]:
    rows = {row["name"]: row for row in session.get("/frames/0/variables").ok()["variables"]}
    shown = {name: row["value"] for name, row in rows.items()}
    for name, value in PLAIN.items():
        assert shown[name] == value
    assert shown["grid"].startswith("ndarray shape=(3, 4) dtype=float64 [0.0, 0.0")
    assert "1.5" in shown["number"]
    assert "datetime64('2020-01-01')" in shown["dates"]
    assert shown["frame"].startswith("DataFrame shape=(1000, 2) ['n': int64, 'name': ")
    assert shown["frame"].endswith("[0, 'x'] [1, 'x'] [2, 'x'] …")
    assert "[<circular: objects>]" in shown["objects"]
    assert "Timestamp('2020-01-01 00:00:00')" in shown["times"]
    assert "NaT" in shown["times"]
    return rows, shown


def test_by_shape_and_head_and_any_page(relay: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    with relay.session(python_path=sys.executable) as session:
        session.break_at(program, program["here"])
        session.launch(program)
        rows, shown = shown_in(session)
        evil = "<__main__.Evil: repr raised ValueError>"
        assert shown["objects"].startswith(f"ndarray shape=(3,) dtype=object [{evil}, <__main__.Ma")
        assert shown["series"] == f"Series shape=(2,) dtype=object [{evil}, 2]"
        assert shown["own"] == "mine"

        def inside(name: str, **query: object) -> dict[str, str]:
            path = f"/variables/{rows[name]['variables_reference']}"
            listed = session.get(path, **query).ok()["variables"]
            return {row["name"]: row["value"] for row in listed}

        assert rows["line"]["length"] == 1_000_000
        ((name, value),) = inside("line", start=999_999, filter="indexed").items()
        assert (name, "999999" in value) == ("999999", True)
        assert list(inside("line", filter="named")) == ["shape", "dtype", "nbytes"]
        assert inside("wide", start=1999, count=2).keys() == {"1999", "shape"}
        assert inside("frame")["'n'"] == shown["column"]
        assert next(iter(inside("hostile"))) == evil
        assert inside("objects")["2"] == "[<circular: objects>]"
        assert inside("records")["0"] == "<numpy.void: repr raised ValueError>"


def test_safe_runs_nothing_of_the_programs(source: Callable[..., Source], relay: Client) -> None:
    program = source(PROGRAM)
    running = Running(program, sys.executable, "loop")
    try:
        assert running.line() == "up"
        with relay.session() as session:
            session.post("/attach", {"pid": running.pid, "connect_timeout": 30}).ok()
            session.break_at(program, program["here"])
            eventually(lambda: session.status()["status"] == "paused")
            rows, shown = shown_in(session)
            assert shown["series"] == "Series shape=(2,) dtype=object [<__main__.Evil>, 2]"
            for row in rows.values():
                if row["variables_reference"]:
                    session.get(f"/variables/{row['variables_reference']}", count=1000).ok()
            assert session.value("ran") == "[]"
    finally:
        running.end()
