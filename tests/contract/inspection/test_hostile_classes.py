"""Classes, names and sizes that do their worst: one variable has a fallback, the page is whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.client import Client, Session
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

PROGRAM = r"""
    import mmap, reprlib, types, weakref

    class Meta(type):
        def __hash__(cls):
            raise RuntimeError("hash")
        def __eq__(cls, other):
            raise RuntimeError("eq")
        def __instancecheck__(cls, other):
            raise RuntimeError("instance")
        __subclasscheck__ = __instancecheck__
        __name__ = __module__ = __mro__ = property(lambda cls: 1 / 0)

    class Made(metaclass=Meta):
        shared = 1
        def __init__(self):
            self.x = 1

    class Interrupts:
        def __repr__(self):
            raise KeyboardInterrupt

    class Guarded:
        @reprlib.recursive_repr()
        def __repr__(self):
            return "guarded"

    class Negative(list):
        def __len__(self):
            return -5

    class Endless(list):
        def __len__(self):
            return 10 ** 30

    class Hangs:
        def __getattribute__(self, name):
            while True:
                pass

    class Silent(dict):
        def items(self):
            raise ValueError
        __iter__ = __getitem__ = keys = __contains__ = items

    class Removes:
        def __repr__(self):
            self.__dict__.clear()
            return "removed"

    class Gone:
        pass

    Named = type("q\u202e\n", (), {"__module__": "m\x00"})

    async def stream():
        yield 1

    def main():
        made, klass, interrupts, guarded = Made(), Made, Interrupts(), Guarded()
        negative, endless, hangs = Negative([1, 2]), Endless([1]), Hangs()
        silent, removes, dead = Silent(a=1), Removes(), weakref.proxy(Gone())
        long, closed, released = range(10 ** 30), mmap.mmap(-1, 10), memoryview(b"abc")
        view = memoryview(b"abc")
        closed.close()
        released.release()
        proxy, named, unbegun = types.MappingProxyType({"k": [1]}), Named(), stream()
        odd = Gone()
        odd.__dict__.update({"a b": 1, "\ud800": 2, "r\u202e\n": 3, 7: 4})
        nans = {float("nan"): 1, float("nan"): 2}
        after = 1
        return after  # @stop

    try:
        main()
        print("no signal")
    except KeyboardInterrupt:
        print("signal")
"""


def rows(session: Session, reference: int | None = None, **query: Any) -> dict[str, Any]:
    path = "/frames/0/variables" if reference is None else f"/variables/{reference}"
    return {row["name"]: row for row in session.get(path, **query).ok()["variables"]}


def test_each_has_a_fallback_and_the_page_is_whole(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(PROGRAM)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["stop"])
        report = session.launch(program, snapshot=True)["stop"]
        page = rows(session)
        shown = {name: row["value"] for name, row in page.items()}
        assert shown == {row["name"]: row["value"] for row in report["locals"]}
        assert shown["made"] == "<__main__.Made x=1>"
        assert shown["klass"] == "<class '__main__.Made'>"
        assert shown["interrupts"] == "<__main__.Interrupts: repr raised KeyboardInterrupt>"
        assert shown["guarded"] == "guarded"
        assert shown["negative"] == "<__main__.Negative [1, 2]>"
        assert (page["negative"]["length"], page["endless"]["length"]) == (2, 1)
        assert shown["hangs"] == "<__main__.Hangs>"
        assert shown["silent"] == "<__main__.Silent {'a': 1}>"
        assert shown["removes"] == "removed"
        assert shown["long"] == f"range(0, {10**30})"
        assert page["long"]["length"] is None
        assert shown["released"] == "<memory, released>"
        assert shown["view"] == "<memory of 3 bytes: b'abc'>"
        assert shown["proxy"] == "mappingproxy({'k': [1]})"
        assert shown["unbegun"].startswith("<async generator stream at prog")
        assert shown["unbegun"].endswith("not started>")
        assert shown["nans"] == "{nan: 1, nan: 2}"
        assert shown["after"] == "1"
        assert page["named"]["type"] == r"q\u202e\n"
        assert shown["named"].startswith("<m\\x00.")
        opened = {
            name: rows(session, row["variables_reference"], count=3)
            for name, row in page.items()
            if row["variables_reference"]
        }
        assert opened["made"]["x"]["value"] == "1"
        assert opened["klass"]["shared"]["value"] == "1"
        assert list(opened["odd"]) == ["a b", r"r\u202e\n", r"\ud800"]
        assert list(opened["proxy"]) == ["'k'"]
        assert [row["value"] for row in opened["nans"].values()] == ["2"]
        (last,) = rows(session, page["long"]["variables_reference"], start=10**15, count=1).values()
        assert last["value"] == str(10**15)
        session.delete("/breakpoints")
        assert session.resume()["exit_code"] == 0
        assert session.printed() == "no signal\n"


CTRL_C = """
    import os, signal, threading

    class Signalled:
        def __repr__(self):
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(10 ** 7):
                pass
            return "never"

    def main():
        before, signalled, after = 1, Signalled(), 2
        try:
            n = 0  # @stop
            while n < 10 ** 9:
                n += 1
        except KeyboardInterrupt:
            print("interrupted")

    main()
"""


def test_ctrl_c_meanwhile_is_the_programs(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(CTRL_C)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["stop"])
        report = session.launch(program, snapshot=True)["stop"]
        shown = {row["name"]: row["value"] for row in report["locals"]}
        assert shown["signalled"] == "<__main__.Signalled: repr was interrupted>"
        assert (shown["before"], shown["after"]) == ("1", "2")
        session.delete("/breakpoints")
        reply = session.resume() if session.status()["status"] == "paused" else {}
        assert reply.get("exit_code") == 0
        assert "interrupted" in session.printed()


def test_a_module_whose_names_are_in_a_dict_of_its_own_kind(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    """A stop tells where it is without asking it."""
    code = source(
        """
        def f(x):
            return x + 1  # @here

        print(f(3))
    """,
        "made.py",
    )
    program = source(f"""
        class Names(dict):
            def get(self, *_):
                raise ValueError("what is wanted?")

        with open({str(code)!r}) as file:
            exec(compile(file.read(), file.name, "exec"), Names(__name__="made"))
    """)
    with relay.session(python_path=python) as session:
        session.break_at(code, code["here"])
        stop = session.launch(program, snapshot=True)
        assert (stop["stop_reason"], stop["current_location"]["function"]) == ("breakpoint", "f")
        assert [row["name"] for row in stop["stop"]["locals"]] == ["x"]
        [thread] = session.get("/threads").ok()["threads"]
        assert thread["current_location"]["line"] == code["here"]
        assert session.resume()["exit_code"] == 0
        assert session.printed() == "4\n"


def test_a_breakpoint_asks_no_class_for_its_hash(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source("""
        ran, armed = [], []

        class Meta(type):
            def __hash__(cls):
                if armed:
                    ran.append("hash")
                return type.__hash__(cls)

        class Thing(metaclass=Meta):
            pass

        things = [Thing() for _ in range(10)]
        armed.append(1)
        here = 1  # @here
        print(ran)  # @later
    """)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["here"])
        session.launch(program)
        session.break_at(program, program["later"])
        assert session.resume()["current_location"]["line"] == program["later"]
        assert session.value("ran") == "[]"
