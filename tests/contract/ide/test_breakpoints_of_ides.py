"""Breakpoints that IDEs set: where, under which paths, of which kind, beside those of agents."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.client import Client
from tests.kit.ide import Ide
from tests.kit.listening import Listening
from tests.kit.running import Running
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

PROGRAM = """
    # a comment

    def work(n):
        # a second comment
        total = n * 2  # @work
        return total

    def risky(n):
        try:
            return 1 // n  # @raise
        except ZeroDivisionError:
            return None

    for n in range(6):
        work(n)
        risky(0 if n == 3 else 1)
        risky(0 if n == 4 else 1)
"""
TICKS = """
    import time

    def tick(n):
        return n * 2  # @line

    print("up", flush=True)
    n = 0
    while True:
        n += 1
        tick(n)
        time.sleep(0.005)
"""


def test_each_kind(
    relay: Client, source: Callable[..., Source], tmp_path: Path, python: str
) -> None:
    program = source(PROGRAM)
    elsewhere = {"localRoot": "C:\\shop", "remoteRoot": str(tmp_path)}
    path = "C:\\shop\\program.py"
    with relay.session(stop_on_entry=True, python_path=python) as session, Ide(session) as ide:
        session.launch(program)
        ide.join(pathMappings=[elsewhere])
        # A line without code is set where the code is, and the IDE is told the line.
        (moved,) = ide.break_at(path, program["work"] - 1, hitCondition="2")
        assert (moved["verified"], moved["line"]) == (True, program["work"])
        assert moved["source"]["path"] == path
        session.resume()
        stop = ide.event("stopped", reason="breakpoint")
        assert stop["hitBreakpointIds"] == [moved["id"]]
        frames = ide.ask("stackTrace", threadId=stop["threadId"])["stackFrames"]
        assert {frame["source"]["path"] for frame in frames} == {path}
        assert session.value("n") == "1"
        # Sent again as it is, it keeps its count and its id.
        assert ide.break_at(path, program["work"], hitCondition="2") == [moved]
        assert session.get(f"/breakpoints/bp_{moved['id']}").ok()["hit_count"] == 2

        # Log points write, functions stop.
        before = len(ide.messages)
        ide.break_at(path, program["work"], logMessage="total of {n}")
        named = {"name": "risky", "condition": "n == 0"}
        (function,) = ide.ask("setFunctionBreakpoints", breakpoints=[named])["breakpoints"]
        assert function["verified"]
        assert function["line"] == program["raise"] - 1
        session.resume()
        assert session.value("n") == "0"
        output = ide.event("output", before)["output"]
        assert "total of 2" in output
        assert ide.ask("setFunctionBreakpoints", breakpoints=[]) == {"breakpoints": []}
        ide.break_at(path)
        assert session.get("/breakpoints").ok()["total"] == 0


def test_values_are_watched(relay: Client, source: Callable[..., Source], python: str) -> None:
    program = source(
        """
        def work(shop):
            shop["open"] = 1  # @first
            total = 5
            total += 1  # @change
            shop["open"] = 2  # @second
            return total  # @last

        work({})
        """
    )
    with relay.session(python_path=python) as session, Ide(session) as ide:
        session.break_at(program, program["change"])
        session.launch(program)
        ide.join()
        thread = ide.event("stopped")["threadId"]
        frame = ide.ask("stackTrace", threadId=thread)["stackFrames"][0]["id"]
        scope = ide.ask("scopes", frameId=frame)["scopes"][0]["variablesReference"]
        listed = ide.ask("variables", variablesReference=scope)["variables"]
        shop = next(one for one in listed if one["name"] == "shop")["variablesReference"]
        ide.ask("variables", variablesReference=shop)
        key = ide.ask("dataBreakpointInfo", variablesReference=shop, name="'open'")
        assert key["description"] == "shop['open']"
        total = ide.ask("dataBreakpointInfo", variablesReference=scope, name="total")
        rows = [{"dataId": one["dataId"], "accessType": "write"} for one in (key, total)]
        first = ide.ask("setDataBreakpoints", breakpoints=rows)["breakpoints"]
        assert [one["verified"] for one in first] == [True, True]
        session.delete("/breakpoints").ok()
        for line, change in (("second", "total: 5 → 6"), ("last", "shop['open']: 1 → 2")):
            before = len(ide.messages)
            ide.ask("continue", threadId=thread)
            stop, where = ide.stopped(after=before)
            assert (stop["reason"], where) == ("data breakpoint", program[line])
            assert stop["text"] == change
            # Sent again at a later stop, they are the same ones.
            again = ide.ask("setDataBreakpoints", breakpoints=rows)["breakpoints"]
            assert [one["id"] for one in again] == [one["id"] for one in first]
        assert ide.ask("setDataBreakpoints", breakpoints=[]) == {"breakpoints": []}
        assert session.get("/breakpoints").ok()["total"] == 0
        ide.ask("continue", threadId=thread)
        ide.event("exited")


def test_exceptions_of_both(relay: Client, source: Callable[..., Source], python: str) -> None:
    program = source(PROGRAM)
    with relay.session(stop_on_entry=True, python_path=python) as session, Ide(session) as ide:
        session.launch(program)
        asked = {"filters": ["raised"], "condition": "n == 'never'"}
        session.post("/exception-breakpoints", asked).ok()
        ide.join()
        ide.ask("setExceptionBreakpoints", filters=["raised"])
        shown = session.get("/exception-breakpoints").ok()
        assert shown["filters"] == ["raised"]
        assert "ide:test (human) also stops at: raised" in shown["message"]
        # The agent's condition does not hide from the IDE what it asks for.
        assert session.resume()["stop_reason"] == "exception"
        stop = ide.event("stopped", reason="exception")
        assert stop["text"].startswith("ZeroDivisionError")
        info = ide.ask("exceptionInfo", threadId=stop["threadId"])
        assert info["exceptionId"] == "ZeroDivisionError"
        assert "1 // n" in info["details"]["stackTrace"]
        ide.ask("setExceptionBreakpoints", filters=[])
        assert session.get("/exception-breakpoints").ok()["message"] is None
        assert session.resume()["exit_code"] == 0


def test_without_the_probe(relay: Client, source: Callable[..., Source]) -> None:
    """A program that listens with debugpy: its own debugger has one breakpoint for each line."""
    program = source(TICKS.replace('print("up", flush=True)', ""))
    target = Listening(program.path)
    try:
        with relay.session() as session, Ide(session) as ide:
            session.post("/attach", {"port": target.port}).ok()
            session.break_at(program, program["line"], condition="n == 0")
            ide.join({str(program.path): [program["line"]]})
            stop, line = ide.stopped()
            assert (stop["reason"], line) == ("breakpoint", program["line"])
            frame = ide.ask("stackTrace", threadId=stop["threadId"])["stackFrames"][0]
            scope = ide.ask("scopes", frameId=frame["id"])["scopes"][0]
            reference = scope["variablesReference"]
            names = ide.ask("variables", variablesReference=reference)["variables"]
            assert "n" in [one["name"] for one in names]
            watched = ide.ask("dataBreakpointInfo", variablesReference=reference, name="n")
            assert watched["dataId"] is None
            assert "no probe" in watched["description"]
            row = ide.ask("evaluate", expression="list(range(20))", context="repl")
            listed = ide.ask("variables", variablesReference=row["variablesReference"])
            assert listed["variables"][1]["evaluateName"] == "(list(range(20)))[1]"
            before = len(ide.messages)
            ide.ask("stepOut", threadId=stop["threadId"])
            assert ide.stopped(after=before)[1] != line
            ide.break_at(program.path)
            ide.ask("continue", threadId=stop["threadId"])
    finally:
        target.end()


def test_terminate_leaves_an_attached_program(relay: Client, start: Callable[..., Running]) -> None:
    one = start(TICKS)
    with relay.session() as session, Ide(session) as ide:
        session.post("/attach", {"pid": one.pid}).ok()
        ide.join({str(one.program.path): [one.program["line"]]})
        ide.event("stopped")
        ide.ask("terminate")
        ide.event("terminated")
        assert session.status()["status"] == "created"
        assert one.alive
        # It ends under another IDE: what nobody knows is not made up.
        session.post("/lease", {"take_over": True}).ok()
        session.post("/attach", {"pid": one.pid}).ok()
        with Ide(session) as other:
            other.join()
            one.end()
            other.event("terminated")
            assert "exited" not in other.events


def test_a_restart_goes_on(relay: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    with relay.session() as session, Ide(session) as ide:
        session.break_at(program, program["work"])
        session.launch(program)
        ide.join({str(program.path): [program["raise"]]})
        ide.event("stopped")
        before = len(ide.messages)
        session.post("/restart", {"wait": 20}).ok()
        stop, line = ide.stopped(after=before)
        assert (stop["reason"], line) == ("breakpoint", program["work"])
        heard = [m["event"] for m in ide.messages[before:] if m["type"] == "event"]
        assert "terminated" not in heard
        assert heard.index("continued") < heard.index("stopped")
        session.resume()
        assert session.line() == program["raise"]
