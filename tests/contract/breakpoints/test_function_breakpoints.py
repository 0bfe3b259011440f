"""Function breakpoints: exact, wherever the function comes from and however it is wrapped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.client import Client, Session
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

Write = Callable[..., Source]

KINDS = """
    import asyncio
    import functools

    def plainly(function):
        @functools.wraps(function)
        def wrapper(*args):
            return function(*args)
        return wrapper

    class K:
        def m(self):
            return "K"  # @m

        @staticmethod
        def s():
            '''Words.'''
            return 1  # @s

        @classmethod
        def c(cls):
            return cls  # @c

        @plainly
        def d(self):
            return 2  # @d

        @property
        def p(self):
            return 3  # @p

        class Inner:
            def m(self):
                return "inner"  # @inner

    class Heir(K):
        pass

    class Other:
        def m(self):
            return "other"

    def m():
        return "module"  # @module

    def outer():
        seen = [1]
        def nested():
            return seen  # @nested
        return nested

    def counting(n):
        while n:  # @counting
            n -= 1
        return n

    def values():
        for i in range(3):  # @values
            yield i

    async def asked():
        await asyncio.sleep(0)  # @asked
        return 5

    Other().m()
    m()
    Heir().m()
    K.s(), K.c(), K().d(), K().p, K.Inner().m()
    outer()()
    counting(3), counting(2)
    list(values())
    asyncio.run(asked())
    print("end")
"""


def set_function(session: Session, function: str, **fields: Any) -> Any:
    return session.post("/breakpoints", {"function": function, **fields}).ok()["breakpoints"][0]


def walk(session: Session, state: Any) -> list[tuple[int, list[str]]]:
    """(line, ids that were hit) of every stop from here to the end."""
    seen = []
    while state["status"] == "paused":
        assert state["stop_reason"] == "breakpoint"
        hit = session.events("stopped")[-1]["body"]["hit_breakpoint_ids"]
        seen.append((state["current_location"]["line"], hit))
        state = session.resume()
    assert (state["status"], state["exit_code"]) == ("terminated", 0), session.status()
    return seen


def test_each_kind_of_function_stops_where_its_body_begins(
    relay: Client, source: Write, python: str
) -> None:
    program = source(KINDS)
    expected = [
        ("m", ["module"]),
        ("K.m", ["m"]),
        ("K.s", ["s"]),
        ("K.c", ["c"]),
        ("K.d", ["d"]),
        ("K.p", ["p"]),
        ("K.Inner.m", ["inner"]),
        ("outer.<locals>.nested", ["nested"]),
        ("counting", ["counting", "counting"]),
        ("values", ["values"]),
        ("asked", ["asked"]),
    ]
    with relay.session(python_path=python) as session:
        ids = [set_function(session, name)["id"] for name, _ in expected]
        assert walk(session, session.launch(program)) == [
            (program[mark], [id])
            for id, (_, marks) in zip(ids, expected, strict=True)
            for mark in marks
        ]
        listed = session.get("/breakpoints").ok()["breakpoints"]
        assert [one["hit_count"] for one in listed] == [len(marks) for _, marks in expected]


def test_it_is_looked_for_and_then_verified(relay: Client, source: Write, python: str) -> None:
    source("def work():\n    return 1\n", "late.py")
    program = source("import late\nlate.work()\n")
    with relay.session(python_path=python) as session:
        before = set_function(session, "late.work")
        assert (before["verified"], before["line"], before["source"]) == (False, None, None)
        assert before["function"] == "late.work"
        assert "is searched in" in before["message"]
        stopped = session.launch(program)
        assert stopped["current_location"]["function"] == "work"
        after = session.get(f"/breakpoints/{before['id']}").ok()
        late = program.path.with_name("late.py")
        assert (after["verified"], after["line"]) == (True, 2)
        assert after["source"] == {"path": str(late)}
        assert after["message"] is None
        new, event = session.events("breakpoint")
        assert (new["body"]["reason"], event["body"]["reason"]) == ("new", "changed")
        told = event["body"]["breakpoint"]
        assert {**after, **told, "hit_count": 1} == after
        assert event["seq"] < session.events("stopped")[0]["seq"]
        assert session.get("/breakpoints", file=str(late)).ok()["total"] == 1


def test_set_while_it_runs_it_is_known_at_once(relay: Client, source: Write, python: str) -> None:
    program = source(
        """
        import functools

        def secret(function):
            return lambda *args: function(*args)

        class K:
            @secret
            def m(self, x):
                return x  # @m

        def here():
            def within():
                return 4  # @within
            return within()

        breakpoint_line = 1  # @stop
        K().m(7)
        here()
        """
    )
    with relay.session(python_path=python) as session:
        session.break_at(program, program["stop"])
        session.launch(program)
        session.delete("/breakpoints").ok()
        for name, mark in (("K.m", "m"), ("here.within", "within")):
            answer = set_function(session, name)
            assert (answer["verified"], answer["line"]) == (True, program[mark]), answer
        assert session.resume()["current_location"]["line"] == program["m"]
        assert session.value("x") == "7"
        assert session.resume()["current_location"]["line"] == program["within"]
        assert session.resume()["exit_code"] == 0


def test_in_modules_that_come_late_it_is_not_missed(
    relay: Client, source: Write, python: str
) -> None:
    """Called right after its definition, and in a file that has another name before."""
    source(
        "def early():\n    return 1\n\nearly()\n\n"
        "class K:\n    def m(self):\n        return 2\n    made = m(None)\n",
        "package/inside.py",
    )
    source("", "package/__init__.py")
    module = source("def work():\n    return 1  # @work\n", "late.py")
    program = source(f"""
        import importlib.util

        def load(name):
            spec = importlib.util.spec_from_file_location(name, {str(module)!r})
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module

        load("early")
        import late
        late.work()
        from package import inside
    """)
    with relay.session(python_path=python) as session:
        names = ("late.work", "package.inside.early", "inside.K.m")
        late, early, method = (set_function(session, name)["id"] for name in names)
        assert walk(session, session.launch(program)) == [
            (module["work"], [late]), (2, [early]), (8, [method]),
        ]  # fmt: skip
        assert session.get(f"/breakpoints/{late}").ok()["verified"] is True


def test_condition_count_log_and_enabled_are_as_for_lines(
    relay: Client, source: Write, python: str
) -> None:
    program = source(
        """
        def work(i):
            return i  # @work
        class K:
            def work(self, i):
                return i  # @method
        for i in range(10):
            work(i)
            K().work(i)
        """
    )
    with relay.session(python_path=python) as session:
        set_function(session, "work", condition="i > 3", hit_condition="%3")
        set_function(session, "K.work", log_message="K {i}", condition="i % 4 == 0")
        off = set_function(session, "program.work", enabled=False)
        state = session.launch(program)
        seen = []
        while state["status"] == "paused":
            seen.append(session.value("i"))
            state = session.resume()
        assert seen == ["6", "9"]
        assert session.printed("console") == "K 0\nK 4\nK 8\n"
        assert [one["hit_count"] for one in session.get("/breakpoints").ok()["breakpoints"]] == [
            6,
            3,
            0,
        ]
        assert off["enabled"] is False


def test_with_a_line_breakpoint_on_its_first_line_both_count(
    relay: Client, source: Write, python: str
) -> None:
    program = source(
        """
        def work(n):
            while n:  # @first
                n -= 1
        def other(n):
            return n  # @other
        work(3)
        work(1)
        for i in range(6):
            other(i)
        """
    )
    with relay.session(python_path=python) as session:
        line = session.break_at(program, program["first"], condition="n != 2")["id"]
        function = set_function(session, "work")["id"]
        other_line = session.break_at(program, program["other"])["id"]
        other = set_function(session, "other")["id"]
        session.launch(program)

        def hit() -> list[str]:
            return list(session.events("stopped")[-1]["body"]["hit_breakpoint_ids"])

        for expected in ([line, function], [line], [line], [line, function], [line]):
            assert (session.line(), hit()) == (program["first"], expected)
            session.resume()
        assert hit() == [other_line, other]
        # The line goes, and the function stays.
        session.delete(f"/breakpoints/{other_line}").ok()
        session.resume()
        assert hit() == [other]
        session.break_at(program, program["other"], enabled=False)
        assert session.resume()["stop_reason"] == "breakpoint"
        session.patch(f"/breakpoints/{other}", {"condition": "n == 4"}).ok()
        session.resume()
        assert session.value("n") == "4"
        session.delete(f"/breakpoints/{other}").ok()
        assert session.resume()["exit_code"] == 0


def test_one_function_has_one_breakpoint(relay: Client, source: Write) -> None:
    program = source("def f():\n    def g():\n        return 1\n    return g()\nf()\nf()\n")
    with relay.session() as session:
        first = set_function(session, "f.<locals>.g", condition="False")
        again = set_function(session, "f.g")
        assert (again["id"], again["updated"]) == (first["id"], True)
        assert again["condition"] is None
        session.launch(program)
        anew = set_function(session, "f.<locals>.g", hit_condition=">0")
        assert (anew["id"], anew["updated"], anew["verified"]) == (first["id"], True, True)
        assert (anew["line"], anew["message"]) == (3, None)
        patched = session.patch(f"/breakpoints/{first['id']}", {"enabled": False}).ok()
        assert (patched["verified"], patched["line"], patched["enabled"]) == (True, 3, False)
        assert patched["function"] == "f.<locals>.g"
        assert session.resume()["exit_code"] == 0


def test_several_names_and_several_places(relay: Client, source: Write, python: str) -> None:
    source("def load():\n    return 1\n", "one.py")
    source("import json\n\ndef load():\n    return json.loads('2')\n", "two.py")
    program = source("import one, two\none.load()\ntwo.load()\n")
    with relay.session(python_path=python) as session:
        every = set_function(session, "load")["id"]
        second = set_function(session, "two.load")["id"]
        library = set_function(session, "json.loads")["id"]
        only = session.post(
            "/breakpoints", {"file": str(program.path.with_name("one.py")), "function": "load"}
        ).ok()["breakpoints"][0]["id"]
        seen = walk(session, session.launch(program))
        # Without its module a name means the program's own functions: json has a load, too.
        assert [hit for _, hit in seen] == [[every, only], [every, second], [library]]
        assert "also in two.load" in session.get(f"/breakpoints/{every}").ok()["message"]


def test_a_name_that_is_nobodys_says_whose_may_be_meant(relay: Client, source: Write) -> None:
    program = source("import json\nclass K:\n    def loads(self):\n        pass\nx = 1\n")
    with relay.session() as session:
        session.break_at(program, 5)
        session.launch(program)
        answer = set_function(session, "loads")
        assert answer["verified"] is False
        assert "json.loads" in answer["suggestion"]
        assert "K.loads" in answer["suggestion"]


def test_a_method_that_is_inherited_stops_for_its_heirs_alone(
    relay: Client, source: Write, python: str
) -> None:
    source(
        """
        class K:
            def m(self):
                return 1  # @m
            @classmethod
            def c(cls):
                return cls  # @c
            @staticmethod
            def s():
                return 3
        """,
        "base.py",
    )
    program = source(
        """
        import base
        base.K().m()
        class Other(base.K):
            pass
        class Sub(base.K):
            pass
        class Deeper(Sub):
            def m(self):
                return super().m()
        for kind in (base.K, Other, Sub, Deeper):
            kind().m()
            kind.c()
        stop = 1  # @stop
        Made = type("Made", (Sub,), {})
        there = 1  # @there
        Made().m()
        """
    )
    with relay.session(python_path=python) as session:
        early = [set_function(session, name)["id"] for name in ("Sub.m", "program.Sub.c")]
        assert session.get(f"/breakpoints/{early[0]}").ok()["verified"] is False
        session.break_at(program, program["stop"])
        session.break_at(program, program["there"])
        state = session.launch(program)
        seen = []
        while state["current_location"]["line"] != program["stop"]:
            hit = session.events("stopped")[-1]["body"]["hit_breakpoint_ids"]
            name = "type(self).__name__" if hit == early[:1] else "cls.__name__"
            seen.append((hit, session.value(name)))
            told = session.get(f"/breakpoints/{hit[0]}").ok()
            assert (told["verified"], told["line"]) == (True, session.line()), told
            assert "base.K." in told["message"]
            state = session.resume()
        assert seen == [
            (early[:1], "'Sub'"),
            (early[1:], "'Sub'"),
            (early[:1], "'Deeper'"),
            (early[1:], "'Deeper'"),
        ]
        late = set_function(session, "Other.m")
        assert (late["verified"], late["line"]) == (True, 3), late
        static = session.get(f"/breakpoints/{set_function(session, 'Sub.s')['id']}").ok()
        assert static["verified"] is False
        assert "base.K.s" in static["message"]
        assert "base.K.s" in static["suggestion"]
        # A class that no class statement makes is found when it is asked for.
        made = set_function(session, "Made.m")["id"]
        session.resume()
        assert session.get(f"/breakpoints/{made}").ok()["verified"] is True
        session.resume()
        hit = session.events("stopped")[-1]["body"]["hit_breakpoint_ids"]
        assert sorted(hit) == sorted([early[0], made])
        assert session.resume()["exit_code"] == 0


def test_code_without_a_file(relay: Client, python: str) -> None:
    with relay.session(python_path=python) as session:
        set_function(session, "work")
        code = "def work(x):\n    return x\nwork(3)\nexec('def other():\\n  return 4\\nother()')\n"
        stopped = session.post("/launch", {"code": code, "wait": 20}).ok()
        assert stopped["current_location"]["line"] == 2
        assert session.value("x") == "3"
        answer = set_function(session, "other")
        assert session.resume()["current_location"]["function"] == "other"
        assert session.get(f"/breakpoints/{answer['id']}").ok()["verified"] is True


def test_calls_are_all_counted_and_the_program_sees_nothing(
    relay: Client, source: Write, python: str
) -> None:
    """Calls of many threads, of recursion and of generators."""
    program = source(
        """
        import gc, sys, threading, weakref

        def work(i):
            return i
        def run():
            for i in range(500):
                work(i)
        threads = [threading.Thread(target=run) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]

        def down(n):
            while n:
                n = down(n - 1)
            return 0
        down(4)

        def echo():
            while True:
                got = yield
        for _ in range(3):
            one, two = echo(), echo()
            for _ in range(3):
                next(one), next(two)

        class Big:
            pass
        def keeps(n):
            while n:
                big = Big()
                kept.append(weakref.ref(big))
                n -= 1
        kept = []
        keeps(2)
        keeps(1)
        gc.collect()
        print([ref() is None for ref in kept[:2]], [n for n in sys.modules if "relay" in n])
        """
    )
    calls = {"work": 2000, "down": 5, "echo": 6}
    with relay.session(python_path=python) as session:
        ids = [
            set_function(session, name, condition="True", hit_condition=">=100000")["id"]
            for name in calls
        ]
        set_function(session, "keeps", condition="False")
        assert session.launch(program)["exit_code"] == 0
        counts = [session.get(f"/breakpoints/{id}").ok()["hit_count"] for id in ids]
        assert counts == [*calls.values()]
        assert session.printed("stdout") == "[True, True] []\n"


def test_a_renamed_module_and_a_reload(relay: Client, source: Write, python: str) -> None:
    late = source("def f():\n    return 1\n", "late.py")
    program = source(
        f"""
        import importlib, late
        late.f()
        open({str(late.path)!r}, "w").write("# moved\\n# down\\ndef f():\\n    return 22\\n")
        importlib.reload(late)
        late.f()
        """
    )
    with relay.session(python_path=python) as session:
        set_function(session, "f")
        lines = [line for line, _ in walk(session, session.launch(program))]
        assert lines == [2, 4]


def test_what_is_no_function_is_refused(relay: Client, source: Write) -> None:
    program = source("x = 1\n")
    with relay.session() as session:
        for body, field in (
            ({"function": "work()"}, "function"),
            ({"function": "a..b"}, "function"),
            ({"function": "f", "line": 3}, "line"),
            ({"function": "f", "file": str(program), "text": "x"}, "text"),
        ):
            error = session.post("/breakpoints", body).refused("INVALID_REQUEST", 400)
            assert field in [one["field"] for one in error["details"]["errors"]]
        body = {"function": "f", "condition": "1 +"}
        session.post("/breakpoints", body).refused("BREAKPOINT_INVALID_CONDITION", 400)
        assert session.get("/breakpoints").ok()["total"] == 0


def test_names_in_any_script(relay: Client, source: Write) -> None:
    program = source("def größe():\n    return 1\ndef ﬁnd():\n    return 2\ngröße()\nﬁnd()\n")
    with relay.session() as session:
        ids = [set_function(session, name)["id"] for name in ("größe", "ﬁnd")]
        assert walk(session, session.launch(program)) == [(2, ids[:1]), (4, ids[1:])]


def test_a_module_that_is_run_by_name(relay: Client, source: Write, tmp_path: Path) -> None:
    source("", "package/__init__.py")
    source("class K:\n    def m(self):\n        return 1\nK().m()\n", "package/tool.py")
    with relay.session() as session:
        ids = [
            set_function(session, name)["id"]
            for name in ("package.tool.K.m", "tool.K.m", "__main__.K.m", "K.m", "other.K.m")
        ]
        state = session.try_launch(module="package.tool", cwd=str(tmp_path)).ok()
        assert walk(session, state) == [(3, ids[:4])]
