"""A program's files may be called as they like: like those that the debugger passes over, too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.client import Client
from tests.kit.source import Source

Write = Callable[..., Source]

MODULE = """
def work(n):
    half = n / 2  # @half
    return half
"""


def test_modules_that_are_called_like_the_debuggers(
    relay: Client, source: Write, python: str
) -> None:
    names = ("queue", "socket", "django_debug")
    modules = [source(MODULE, f"shop/{name}.py") for name in names]
    main = source("""
        from shop import queue, socket, django_debug
        for module in (queue, socket, django_debug):
            module.work(2)  # @call
            try:
                module.work("x")
            except TypeError:
                pass
    """)
    with relay.session(python_path=python) as session:
        ids = [session.break_at(main, main["call"])["id"]]
        ids += [session.break_at(module, module["half"])["id"] for module in modules]
        ids += [session.post("/breakpoints", {"function": "work"}).ok()["breakpoints"][0]["id"]]
        session.post("/exception-breakpoints", {"types": ["TypeError"]}).ok()
        stop = session.launch(main)
        for module in modules:
            assert stop["current_location"]["line"] == main["call"], module
            assert session.step("into")["current_location"]["path"] == str(module)
            second = session.resume()
            assert second["current_location"]["line"] == module["half"]
            assert second["stop_reason"] == "breakpoint"
            raised = session.resume()
            assert raised["stop_reason"] == "exception"
            assert raised["current_location"]["path"] == str(module)
            stop = session.resume()
        assert stop["exit_code"] == 0
        told = session.get("/breakpoints").ok()["breakpoints"]
        hits = {one["id"]: one["hit_count"] for one in told}
        assert [hits[id] for id in ids] == [3, 2, 2, 2, 6]


@pytest.mark.one_python
def test_what_the_debugger_uses_itself_is_said_to_be_passed_over(
    relay: Client, source: Write, python: str
) -> None:
    main = source("""
        import queue
        jobs = queue.Queue()  # @first
        jobs.put(1)
        print(queue.__file__)
    """)
    with relay.session(python_path=python) as session:
        session.break_at(main, main["first"])
        function = session.post("/breakpoints", {"function": "queue.Queue.put"}).ok()
        session.launch(main)
        used = Path(session.value("queue.__file__").strip("'"))
        asked = {"file": str(used), "text": "self.mutex = threading.Lock()"}
        line = session.post("/breakpoints", asked).ok()["breakpoints"][0]
        ids = [line["id"], function["breakpoints"][0]["id"]]
        for told in [line, *(session.get(f"/breakpoints/{id}").ok() for id in ids)]:
            assert told["verified"] is False
            assert "the debugger uses this file" in told["message"]
            assert told["suggestion"]
        refused = session.post("/run-to", {"file": str(used), "line": line["line"]})
        assert "the debugger uses" in refused.refused("BREAKPOINT_INVALID_LINE")["message"]
        assert session.resume()["exit_code"] == 0
