"""Setting variables, reading source, modules, tasks; completions and hover."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.kit.client import Client, Session
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

PROGRAM = """
    import collections, json

    LIMIT = 3

    class Box:
        __slots__ = ("size",)
        def __init__(self):
            self.size = 1
            self.__secret = 2 if False else None

    class Guarded:
        @property
        def fixed(self):
            return 1

    class Plain:
        pass

    def main(given=1):
        cell = 5
        items, table, fixed = [1, 2, 3], {"a": 1, 2: "b"}, (1, 2)
        plain, guarded = Plain(), Guarded()
        plain.colour = "red"

        def inner():
            return cell

        result = inner()  # @stop
        print(given, items, table, plain.colour, inner(), LIMIT)

    main()
""".replace("            self.__secret = 2 if False else None\n", "")


def reference_of(session: Session, name: str, scope: str = "locals") -> int:
    rows = session.get("/frames/0/variables", scope=scope).ok()["variables"]
    return int(next(row["variables_reference"] for row in rows if row["name"] == name))


def scope_of(session: Session, name: str) -> int:
    scopes = session.get("/scopes").ok()["scopes"]
    return int(next(s["variables_reference"] for s in scopes if s["name"].lower() == name))


def read(session: Session, path: str, **query: Any) -> Any:
    return session.client.get(f"/sessions/{session.id}/source?{urlencode({'path': path, **query})}")


def stopped(session: Session, program: Source, **fields: Any) -> None:
    session.break_at(program, program["stop"])
    assert session.launch(program, **fields)["status"] == "paused"


def set_to(session: Session, reference: int, name: str, value: str) -> Any:
    return session.post(f"/variables/{reference}/set", {"name": name, "value": value})


def test_a_variable_is_set_and_the_program_sees_it(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(PROGRAM)
    with relay.session(python_path=python) as session:
        stopped(session, program)
        there = scope_of(session, "locals")
        done = set_to(session, there, "given", "given + 41").ok()
        assert (done["value"], done["type"]) == ("42", "int")
        set_to(session, there, "cell", "'cell'").ok()
        set_to(session, scope_of(session, "globals"), "LIMIT", "9").ok()
        set_to(session, reference_of(session, "items"), "1", "[given]").ok()
        set_to(session, reference_of(session, "table"), "'a'", "None").ok()
        set_to(session, reference_of(session, "table"), "2", "'two'").ok()
        set_to(session, reference_of(session, "plain"), "colour", "'blue'").ok()
        assert session.locals()["given"] == "42"
        session.delete("/breakpoints")
        assert session.resume()["exit_code"] == 0
        assert session.printed() == "42 [1, [42], 3] {'a': None, 2: 'two'} blue cell 9\n"


# -- one program, which all of these look into


def what_cannot_be_set_is_told(session: Session) -> None:
    there = scope_of(session, "locals")
    set_to(session, there, "nobody", "1").refused("VARIABLE_NOT_FOUND", 404)
    set_to(session, there, "given", "1 +").refused("EVALUATE_ERROR", 400)
    error = set_to(session, there, "given", "1 / 0").refused("EVALUATE_ERROR", 400)
    assert "ZeroDivisionError" in error["message"]
    set_to(session, reference_of(session, "fixed"), "0", "1").refused("EVALUATE_ERROR", 400)
    set_to(session, reference_of(session, "guarded"), "fixed", "1").refused("EVALUATE_ERROR", 400)
    set_to(session, 999_999, "given", "1").refused("VARIABLE_NOT_FOUND", 404)
    assert session.value("given, items, fixed") == "(1, [1, 2, 3], (1, 2))"


def source_of_a_frame_and_of_a_file(session: Session, program: Source) -> None:
    shown = session.get("/source", frame_id=0).ok()
    assert shown["lines"] == program.text.splitlines()
    assert shown["total_lines"] == len(shown["lines"])
    line = program["stop"]
    part = read(session, str(program), start=line, end=line).ok()
    assert part["lines"] == [program.text.splitlines()[line - 1]]
    library = session.value("json.__file__").strip("'")
    assert "JSON" in "".join(read(session, library).ok()["lines"])
    session.get("/source").refused("MISSING_PARAMETER", 400)
    read(session, "/a.py", frame_id=0).refused("INVALID_PARAMETER", 400)
    read(session, str(program), start=10_000).refused("INVALID_PARAMETER", 400)


def modules_by_pages(session: Session, program: Source) -> None:
    page = session.get("/modules", limit=1000).ok()
    names = {item["name"]: item for item in page["items"]}
    assert names["__main__"]["path"] == str(program)
    assert names["__main__"]["is_user_code"] is True
    assert names["json"]["is_user_code"] is False
    assert not any(name.startswith(("pydevd", "debugpy", "_pydev")) for name in names)
    assert page["total"] == len(page["items"])
    first = session.get("/modules", limit=2).ok()
    assert (len(first["items"]), first["has_more"]) == (2, True)


def completions(session: Session) -> None:
    for text, label in (("items.app", "append"), ("giv", "given")):
        items = session.post("/completions", {"text": text}).ok()["items"]
        assert label in [item["label"] for item in items]


def hover_takes_no_statements(session: Session) -> None:
    assert session.post("/hover", {"expression": "items"}).ok()["result"] == "[1, 2, 3]"
    session.post("/hover", {"expression": "x = 1"}).refused("EVALUATE_ERROR", 400)


def test_a_stopped_program_is_looked_at(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(PROGRAM)
    with relay.session(python_path=python) as session:
        stopped(session, program)
        what_cannot_be_set_is_told(session)
        source_of_a_frame_and_of_a_file(session, program)
        modules_by_pages(session, program)
        completions(session)
        hover_takes_no_statements(session)
        # A program without tasks has none.
        assert session.get("/tasks").ok() == {"tasks": [], "total": 0}


def test_only_what_belongs_to_the_program_is_read(
    relay: Client, source: Callable[..., Source], tmp_path: Path
) -> None:
    program = source(PROGRAM)
    root = tmp_path / "root"
    root.mkdir()
    (root / "mine.py").write_text("mine = 1\n")
    (tmp_path / "secret.py").write_text("secret = 1\n")
    (root / "link.py").symlink_to(tmp_path / "secret.py")
    with relay.session(project_root=str(root)) as session:
        assert read(session, "mine.py").ok()["lines"] == ["mine = 1"]
        for path in ("/etc/passwd", str(tmp_path / "secret.py"), "../secret.py", "link.py"):
            read(session, path).refused("INVALID_PARAMETER", 400)
        stopped(session, program)
        read(session, "/etc/passwd").refused("INVALID_PARAMETER", 400)
        assert read(session, str(program)).ok()["lines"]


def test_tasks_with_their_stacks(relay: Client, source: Callable[..., Source], python: str) -> None:
    program = source("""
        import asyncio

        async def deeper():
            await asyncio.sleep(60)  # @sleeping

        async def worker():
            await deeper()

        async def main():
            task = asyncio.ensure_future(worker())
            await asyncio.sleep(0)
            done = 1  # @stop
            task.cancel()

        asyncio.run(main())
    """)
    with relay.session(python_path=python) as session:
        stopped(session, program)
        found = {task["coroutine"]: task for task in session.get("/tasks").ok()["tasks"]}
        assert [frame["name"] for frame in found["worker"]["frames"]][:2] == ["worker", "deeper"]
        assert found["worker"]["frames"][1]["line"] == program["sleeping"]
        assert found["worker"]["state"] == "pending"
        assert found["main"]["state"] == "pending"
        assert [name for name, task in found.items() if task["current"]] == ["main"]


def test_tasks_say_whom_they_wait_for_and_how_they_ended(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source("""
        import asyncio

        async def sleeps():
            await asyncio.sleep(60)

        async def fails():
            raise LookupError("nobody asks")

        async def joins(other):
            await other

        async def gathers(*others):
            await asyncio.gather(*others)

        async def main():
            first = asyncio.ensure_future(sleeps())
            rest = [asyncio.ensure_future(sleeps()) for _ in range(9)]
            ended = asyncio.ensure_future(fails())
            asyncio.ensure_future(joins(first))
            asyncio.ensure_future(gathers(first, *rest))
            asyncio.ensure_future(gathers(*rest, first, joins(first)))
            await asyncio.sleep(0.01)
            done = 1  # @stop

        asyncio.run(main())
    """)
    with relay.session(python_path=python) as session:
        stopped(session, program)
        tasks = session.get("/tasks").ok()["tasks"]
        assert [task["name"] for task in tasks] == [f"Task-{n}" for n in range(1, 17)]
        told = {task["name"]: task for task in tasks}
        assert told["Task-12"]["exception"] == "LookupError('nobody asks')"
        assert told["Task-12"]["state"] == "done"
        assert told["Task-13"]["waiting_for"] == "Task-2 sleeps"
        both = "all of Task-2, Task-3, Task-4, Task-5, Task-6, Task-7, Task-8, Task-9, Task-10"
        assert told["Task-14"]["waiting_for"] == f"{both}, Task-11"
        assert told["Task-15"]["waiting_for"].endswith("Task-11, Task-2, … 1 more")
        assert all(task["exception"] is None for task in tasks if task["name"] != "Task-12")
        shown = session.get("/tasks", format="text").raw.decode().splitlines()
        assert shown[0] == "→ Task-1 main: pending"
        assert "  Task-12 fails: done, raised LookupError('nobody asks')" in shown
        assert "  Task-13 joins: pending, waits for Task-2 sleeps" in shown
        # Nobody has asked for its exception: asyncio still complains of that.
        session.resume()
        assert "Task exception was never retrieved" in session.printed("stderr")


UNWILLING = """
    import time

    class Slow:
        def __init__(self):
            self.seen = 1
        def __dir__(self):
            time.sleep(60)

    class Odd:
        def __dir__(self):
            return ["\\ud800", "a b", "offered"]

    class Refuses:
        own = 1
        def __dir__(self):
            raise ValueError
        def __getattribute__(self, name):
            raise ValueError(name)

    slow, odd, refuses, items, told = Slow(), Odd(), Refuses(), [[1]], []

    def calls():
        told.append(1)
        return items

    print()  # @stop
"""


def test_completions_of_objects_that_will_not_tell(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(UNWILLING)

    def labels(text: str, **more: Any) -> list[str]:
        found = session.post("/completions", {"text": text, **more}).ok()["items"]
        return [item["label"] for item in found]

    with relay.session(python_path=python) as session:
        stopped(session, program)
        assert labels("slow.se") == ["seen"]
        assert session.value("slow.seen") == "1", "nothing hangs behind it"
        assert labels("odd.") == ["offered"]
        assert labels("refuses.ow") == ["own"]
        assert labels("items[0].app") == ["append"]
        assert labels("f(items.app)", column=12) == ["append"]
        assert labels("'x'.jo") == ["join"]
        assert labels("whil") == ["while"]
        assert labels("calls().ap") == []
        assert session.value("told") == "[]"
        (item,) = session.post("/completions", {"text": "x = items.app"}).ok()["items"]
        assert item == {"label": "append", "type": "function", "start": 10, "length": 3}


GENERATED = """
    import dataclasses, linecache

    def leaf(value):
        return value  # @leaf

    @dataclasses.dataclass
    class Point:
        x: int
        def __post_init__(self):
            leaf(self.x)

    names = {"leaf": leaf}
    exec("def bare(x):\\n    y = x\\n    return leaf(y)\\n", names)
    kept = "def kept(x):\\n    return leaf(x)  # kept\\n"
    exec(compile(kept, "<template page.html>", "exec"), names)
    linecache.cache["<template page.html>"] = (len(kept), None, kept.splitlines(True), "")
    names["bare"](1)
    names["kept"](2)
    Point(3)
    eval("leaf(4)")
"""


def test_source_of_code_in_no_file_is_its_text_or_said_to_be_a_guess(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(GENERATED)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["leaf"])
        session.launch(program)
        bare = session.get("/source", frame_id=1).ok()
        assert (bare["path"], bare["decompiled"]) == ("<string>", True)
        assert "return leaf(y)" in bare["lines"]
        assert b"decompiled" in session.get("/source", frame_id=1, format="text").raw
        session.resume()
        kept = session.get("/source", frame_id=1).ok()
        assert kept["lines"] == ["def kept(x):", "    return leaf(x)  # kept"]
        assert kept["decompiled"] is False
        session.resume()
        assert session.get("/stacktrace").ok()["frames"][2]["source"]["path"] == "<string>"
        assert session.get("/source", frame_id=2).ok()["decompiled"] is True
        session.resume()
        # The byte code of one expression is more than pydevd makes out on some versions.
        answer = session.get("/source", frame_id=1)
        if answer.status == 200:
            assert answer.ok()["decompiled"] is True
        else:
            error = answer.refused("INVALID_PARAMETER", 400)
            assert "frame_id=2" in error["details"]["suggestion"]
