"""Threads and processes as an IDE sees them, where they stop one by one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.contract.execution.test_threads_alone import COUNTERS
from tests.kit.client import Client
from tests.kit.ide import Ide
from tests.kit.relay import eventually
from tests.kit.source import Source

Write = Callable[..., Source]


def names(ide: Ide) -> dict[str, Any]:
    return {one["name"]: one["id"] for one in ide.ask("threads")["threads"]}


def test_threads_stop_alone(relay: Client, source: Write) -> None:
    program = source(COUNTERS)
    path = str(program.path)
    with relay.session(stop_all=False) as session, Ide(session) as ide:
        session.break_at(program, program["first"])
        session.launch(program)
        ide.join()
        stop, _ = ide.stopped()
        assert stop["allThreadsStopped"] is False
        first = names(ide)["first"]
        assert stop["threadId"] == first
        running = ide.refused("stackTrace", threadId=names(ide)["second"])
        assert running["message"] == "notStopped"
        before = len(ide.messages)
        ide.break_at(path, program["second"])
        second = ide.event("stopped", before)["threadId"]
        assert second == names(ide)["second"]
        # Each goes its own way: the one resumes, and the other stays where it is.
        answer = ide.ask("continue", threadId=second)
        assert answer == {"allThreadsContinued": False}
        ide.event("stopped", len(ide.messages) - 1, threadId=second)
        assert ide.ask("stackTrace", threadId=first)["stackFrames"][0]["line"] == program["first"]
        before = len(ide.messages)
        ide.ask("next", threadId=first)
        after = ide.event("stopped", before, threadId=first)
        assert after["reason"] == "step"
        # An agent resumes one of them: the IDE hears which.
        session.delete("/breakpoints").ok()
        ide.break_at(path)
        session.post("/lease", {"take_over": True}).ok()
        before = len(ide.messages)
        session.post("/continue", {"thread_id": first, "wait": 0}).ok()
        assert ide.event("continued", before) == {
            "threadId": first,
            "allThreadsContinued": False,
        }
        frame = ide.ask("stackTrace", threadId=second)["stackFrames"][0]["id"]
        ide.ask("evaluate", expression="over.set()", frameId=frame, context="repl")
        ide.ask("evaluate", expression="%takeover", context="repl")
        ide.ask("continue", threadId=second)
        assert ide.event("exited") == {"exitCode": 0}


def test_children_are_of_the_session(relay: Client, source: Write) -> None:
    child = source("def work(n):\n    return n * 2  # @work\nwork(21)\n", "child.py")
    program = source(
        f"""
        import subprocess, sys
        sys.exit(subprocess.run([sys.executable, {str(child)!r}]).returncode)
        """
    )
    with relay.session(stop_on_entry=True) as session, Ide(session) as ide:
        session.launch(program, debug_subprocesses=True)
        ide.join({str(child.path): [child["work"]]})
        parent = ide.event("stopped")["threadId"]
        before = len(ide.messages)
        ide.ask("continue", threadId=parent)
        stop, line = ide.stopped(after=before)
        assert line == child["work"]
        assert stop["allThreadsStopped"] is False
        listed = names(ide)
        pid = session.get("/stacktrace").ok()["child_pid"]
        assert listed[f"MainThread (pid {pid})"] == stop["threadId"]
        assert listed["MainThread"] == parent
        assert ide.ask("evaluate", expression="n", context="repl")["result"] == "21"
        ide.ask("continue", threadId=stop["threadId"])
        assert ide.event("exited") == {"exitCode": 0}


def test_a_program_that_answers_nobody(relay: Client, source: Write) -> None:
    """It is in a call in C that keeps the GIL, until it gets its input."""
    program = source(
        """
        import ctypes
        buffer = ctypes.create_string_buffer(1)
        print("reading", flush=True)
        ctypes.PyDLL(None).read(0, buffer, 1)
        input(), input()  # the rest of that line, and another
        print("next")  # @next
        print("last")  # @last
        """
    )
    with relay.session(stop_on_entry=True) as session, Ide(session) as ide:
        session.launch(program)
        ide.join()
        ide.ask("setExceptionBreakpoints", filters=["raised"])
        thread = ide.event("stopped")["threadId"]
        ide.ask("continue", threadId=thread)
        ide.event("output", output="reading\n")
        assert list(names(ide).values()) == [thread]
        # Breakpoints are pending until the program takes them; nobody waits long for that.
        begun = time.monotonic()
        agents = session.break_at(program, program["next"])
        assert (agents["verified"], "does not answer" in agents["message"]) == (False, True)
        (listed,) = session.get("/breakpoints", verified="false").ok()["breakpoints"]
        assert listed["message"] == agents["message"]
        assert session.get("/breakpoints", verified="true").ok()["total"] == 0
        # An IDE that leaves now leaves nothing behind.
        with Ide(session) as other:
            other.join({str(program.path): [program["next"], program["last"]]})
            rows = other.break_at(program.path, program["last"], program["next"])
            rows += other.ask("setExceptionBreakpoints", filters=["raised"])["breakpoints"]
            assert [row["verified"] for row in rows] == [False] * 3
            assert all("does not answer" in row["message"] for row in rows)
            session.delete(f"/breakpoints/{agents['id']}").ok()
            other.break_at(program.path, program["last"])
            other.ask("setExceptionBreakpoints", filters=[])
            assert time.monotonic() - begun < 20
            ide.close()
            eventually(lambda: session.get().ok()["lease"] is None)
            filters = "/exception-breakpoints"
            eventually(lambda: "also stops" not in (session.get(filters).ok()["message"] or ""))
            session.post("/input", {"input": "x\n"}).ok()
            other.event("breakpoint", reason="changed")
            eventually(lambda: session.get(filters).ok()["message"] is None)
            (taken,) = session.get("/breakpoints", verified="true").ok()["breakpoints"]
            assert (taken["line"], taken["message"]) == (program["last"], None)
            session.post("/input", {"input": "x\n"}).ok()
            stop, line = other.stopped()
            assert line == program["last"]
            other.ask("continue", threadId=stop["threadId"])
            assert other.event("exited") == {"exitCode": 0}
