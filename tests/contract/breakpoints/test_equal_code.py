"""Files that hold the same text: their code objects are equal, and still each is its own file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

Write = Callable[..., Source]

MODULE = """
    def work(n):
        value = n + 1  # @in
        return value

    class K:
        def m(self):
            return 5  # @m

    top = work(0)  # @top
"""
MAIN = """
    import one
    one.work(1); one.K().m()
    import two
    for k in range(3):
        one.work(k); one.K().m()
        two.work(10 + k); two.K().m()
    import three
    three.work(20)
    two.work(30)
"""


def written(source: Write) -> tuple[Source, list[Source]]:
    modules = [source(MODULE, f"{name}.py") for name in ("one", "two", "three")]
    return source(MAIN, "main.py"), modules


def stops(session: Any, main: Source) -> list[str]:
    found = []
    stop = session.launch(main)
    while stop["status"] == "paused":
        module = session.value("__name__").strip("'")
        found.append(f"{module}:{stop['current_location']['line']}")
        stop = session.resume()
    return found


def test_lines_and_conditions_are_of_their_own_file(
    relay: Client, source: Write, python: str
) -> None:
    main, (one, two, three) = written(source)
    with relay.session(python_path=python) as session:
        inside = session.break_at(two, two["in"])["id"]
        session.break_at(two, two["top"])
        session.break_at(three, three["top"])
        session.break_at(one, one["in"], condition="n == 2")
        top, line = two["top"], two["in"]
        assert stops(session, main) == [
            *(f"two:{top}", f"two:{line}"),  # at its import
            *(f"two:{line}", f"two:{line}", f"one:{line}", f"two:{line}"),
            *(f"three:{top}", f"two:{line}"),
        ]
        assert session.get(f"/breakpoints/{inside}").ok()["hit_count"] == 5


def test_a_function_of_one_of_them_and_of_all(relay: Client, source: Write, python: str) -> None:
    main, (_, two, _) = written(source)
    with relay.session(python_path=python) as session:
        for name in ("two.K.m", "two.work", "K.m"):
            session.post("/breakpoints", {"function": name}).ok()
        method, function = two["m"], two["in"]
        each = [f"one:{method}", f"two:{function}", f"two:{method}"]
        assert stops(session, main) == [
            *(f"one:{method}", f"two:{function}"), *each * 3, f"two:{function}",
        ]  # fmt: skip
        listed = session.get("/breakpoints").ok()["breakpoints"]
        assert [one["hit_count"] for one in listed] == [3, 5, 7]


def test_set_while_the_program_runs(relay: Client, source: Write, python: str) -> None:
    main, (_, two, _) = written(source)
    with relay.session(python_path=python) as session:
        session.break_at(main, 6)
        session.launch(main)
        session.delete("/breakpoints").ok()
        session.break_at(two, two["in"], condition="n == 11")
        session.resume()
        assert session.value("__name__, n") == "('two', 11)"


def test_a_trace_tells_whose_line_it_was(relay: Client, source: Write, python: str) -> None:
    main, (one, two, _) = written(source)
    wanted = [{"file": str(file), "line": file["in"], "capture": ["n"]} for file in (one, two)]
    for at in (wanted, wanted[1:]):
        with relay.session(python_path=python) as session:
            session.launch(main, stop_on_entry=True)
            rows = session.post("/trace", {"at": at, "timeout": 20}).ok()["rows"]
        found = [(row["path"], row["values"]["n"]) for row in rows]
        assert [n for path, n in found if path == str(two)] == ["0", "10", "11", "12", "30"]
        ones = [n for path, n in found if path == str(one)]
        assert ones == (["0", "1", "0", "1", "2"] if at is wanted else [])
        assert len(found) == 5 + len(ones), "nothing of the third"
