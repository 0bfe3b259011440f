"""`repr: "safe"`: the values of an attached program are shown, and nothing of it runs for that."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.kit.client import Client, Session
from tests.kit.relay import eventually
from tests.kit.running import Running
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

PROGRAM = """
    import collections, time

    ran, armed = [], []

    def telling(name):
        def method(self, *args):
            if armed:
                ran.append(name)
            return 1 if name.endswith(("__len__", "__hash__")) else name
        return method

    SPECIAL = ("__repr__", "__str__", "__len__", "__iter__", "__hash__", "__eq__", "__bool__",
               "__getattr__", "__dir__", "__format__", "__contains__", "__index__", "__reversed__")

    class Meta(type):
        __repr__ = telling("meta repr")
        __getattribute__ = lambda cls, name: (
            ran.append("meta get " + name) if armed else None, type.__getattribute__(cls, name))[1]
        __hash__ = lambda cls: (ran.append("meta hash") if armed else None, type.__hash__(cls))[1]
        __eq__ = lambda cls, it: ran.append("meta eq") if armed else cls is it
        __instancecheck__ = lambda cls, it: ran.append("instancecheck") if armed else False
        __subclasscheck__ = lambda cls, it: ran.append("subclasscheck") if armed else False

    def made(name, *bases):
        return Meta(name, bases, {special: telling(name + special) for special in SPECIAL})

    class Told(made("Told")):
        def __init__(self):
            self.x = 1

        @property
        def asked(self):
            ran.append("property")

        __class__ = property(lambda self: ran.append("__class__") if armed else Told)

    class Descriptor:
        def __get__(self, owner, kind):
            ran.append("descriptor")

        def __set__(self, owner, value):
            pass

    class Owns:
        field = Descriptor()
        __slots__ = ("kept",)

    class Error(ValueError):
        __str__ = __repr__ = telling("error")

    List, Dict, Text, Number, Tuple = (
        made("Of" + base.__name__, base) for base in (list, dict, str, int, tuple)
    )

    def work(n):
        told, owns, error, klass = Told(), Owns(), Error("why", Told()), Told
        owns.kept = told
        items, table, text = List([told, 2]), Dict(a=told), Text("words")
        number, pair = Number(7), Tuple((1, told))
        inside = [told, {"k": told}, (told,), {1: [told]}]
        ordered = collections.OrderedDict([(told, 1), ("k", told)])
        armed.append(1)
        n += 1  # @line
        try:
            raise error
        except ValueError:
            armed.clear()
        return n

    print("up", flush=True)
    n = 0
    while True:
        n = work(n)
        time.sleep(0.02)
"""
Attached = Callable[..., Session]


@pytest.fixture
def attached(relay: Client, source: Callable[..., Source], python: str) -> Iterator[Attached]:
    running: list[Running] = []
    sessions: list[Session] = []

    def attach(**fields: Any) -> Session:
        one = Running(source(PROGRAM), python)
        running.append(one)
        assert one.line() == "up"
        session = relay.session()
        sessions.append(session)
        session.post("/attach", {"pid": one.pid, "connect_timeout": 30, **fields}).ok()
        session.post("/watch", {"expression": "told"}).ok()
        session.break_at(one.program, one.program["line"])
        eventually(lambda: session.status()["status"] == "paused")
        return session

    yield attach
    for session in sessions:
        session.__exit__()
    for one in running:
        one.end()


def opened(session: Session, reference: int, depth: int) -> None:
    """All of it, level by level."""
    page = session.get(f"/variables/{reference}", count=30).ok()
    for row in page["variables"]:
        if row["variables_reference"] and depth:
            opened(session, row["variables_reference"], depth - 1)


def test_everything_is_shown_and_nothing_runs(attached: Attached) -> None:
    session = attached()
    rows = {row["name"]: row for row in session.get("/frames/0/variables").ok()["variables"]}
    shown = {name: row["value"] for name, row in rows.items()}
    assert shown["told"] == "<__main__.Told x=1>"
    assert shown["owns"] == "<__main__.Owns kept=<__main__.Told x=1>>"
    assert shown["klass"] == "<class '__main__.Told'>"
    assert shown["items"] == "<__main__.OfList [<__main__.Told x=1>, 2]>".replace("List", "list")
    assert shown["text"] == "<__main__.Ofstr 'words'>"
    assert shown["error"] == "Error('why', <__main__.Told x=1>)"
    assert rows["items"]["length"] == 2
    report = session.get("/snapshot").ok()["stop"]
    assert {row["name"]: row["value"] for row in report["locals"]} == shown
    (watch,) = session.get("/watch").ok()["watches"]
    assert watch["value"] == "<__main__.Told x=1>"
    opened(session, session.get("/scopes").ok()["scopes"][0]["variables_reference"], 2)
    told = session.get(f"/variables/{rows['told']['variables_reference']}").ok()["variables"]
    asked = next(row for row in told if row["name"] == "asked")
    assert (asked["value"], asked["expandable"]) == ("<property>", False)
    session.get("/history").ok()
    assert session.value("ran") == "[]"
    assert session.value("told") == "<__main__.Told x=1>"


def test_full_asks_the_classes_themselves(attached: Attached) -> None:
    session = attached(repr="full")
    assert session.value("told") == "Told__repr__"
    assert session.locals()["told"] == "Told__repr__"
    assert session.value("'Told__repr__' in ran") == "True"


def test_launched_programs_are_asked(relay: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    with relay.session(python_path=sys.executable) as session:
        session.break_at(program, program["line"])
        session.launch(program)
        assert session.locals()["told"] == "Told__repr__"


def test_what_was_raised_is_told_without_its_own_words(attached: Attached) -> None:
    session = attached()
    session.delete("/breakpoints").ok()
    session.post("/exception-breakpoints", {"types": ["Error"]}).ok()
    session.resume(wait=0)
    eventually(lambda: session.status()["stop_reason"] == "exception")
    assert session.get("/exception").ok()["message"] == "Error('why', <__main__.Told x=1>)"
    assert "error" not in session.value("ran")


def test_objects_that_point_on_are_cut(relay: Client, source: Callable[..., Source]) -> None:
    """Two levels of objects and some 400 characters: the rest is behind the reference."""
    program = source(
        """
        class Node:
            def __init__(self, number, next):
                self.number, self.next = number, next
                self.name = "node number %d of the list" % number
                self.others = [next, next, next]
        node = None
        for number in range(50):
            node = Node(number, node)
        three = (node, node.next, node.next.next)
        print("here")  # @here
        """
    )
    with relay.session() as session:
        session.break_at(program, program["here"])
        session.launch(program)
        for name in ("node", "three"):
            answer = session.post("/evaluate", {"expression": name}).ok()
            assert len(answer["result"]) < 700, answer["result"]
            assert answer["truncated"]
            assert answer["variables_reference"]
        assert "number=49" in session.value("node")
        assert "number=46" not in session.value("node")
