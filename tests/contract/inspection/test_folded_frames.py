"""Frames of libraries are folded, and a thread that waits is shown at the program's own frame."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.client import Client
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

HOOKED = """
    import json
    def hook(pairs):
        return pairs  # @hook
    def main():
        words = json.loads('{"a": 1}', object_hook=hook)  # @loads
        json.loads("{")  # @raises
    main()
"""
WAITS = """
    import queue, threading
    def main(jobs):
        print("waiting", flush=True)
        while True:
            try:
                jobs.get(timeout=0.05)  # @wait
            except queue.Empty:
                pass
    main(queue.Queue())
"""


def test_between_frames_of_the_program(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(HOOKED)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["hook"])
        report = session.launch(program, snapshot=True)["stop"]
        assert [frame["name"] for frame in report["frames"]] == ["hook", "main", "<module>"]
        [fold] = report["folded"]
        assert (fold["first"], fold["libraries"]) == (1, ["json"])
        assert report["frames"][1]["id"] == 1 + fold["count"]
        assert report["cut"] == []
        whole = session.get("/snapshot", frames="all").ok()["stop"]
        assert [frame["id"] for frame in whole["frames"]] == list(range(whole["total_frames"]))
        assert whole["folded"] == []
        shown = session.get("/snapshot", format="text").raw.decode().splitlines()
        assert f"  … {fold['count']} frames of json" in shown
        stack = session.get("/stacktrace", format="text").raw.decode()
        assert f"… {fold['count']} frames of json" in stack.splitlines()
        whole_stack = session.get("/stacktrace", format="text", frames="all").raw.decode()
        assert "/json/decoder.py" in whole_stack
        # A stop inside a library shows that library's frames.
        session.post("/exception-breakpoints", {"filters": ["uncaught"]}).ok()
        raised = session.resume(snapshot=True)["stop"]
        assert raised["frames"][0]["id"] == 0
        assert raised["frame_id"] == 0
        last = raised["exception"]["traceback"]
        assert last.count('  File "') == 1
        assert "as in frames" in last
        shown = session.get("/exception", format="text").raw.decode()
        assert "frames of json" in shown


def test_a_thread_that_waits(relay: Client, source: Callable[..., Source], python: str) -> None:
    program = source(WAITS)
    with relay.session(python_path=python) as session:
        session.launch(program, wait=0)
        session.events("output", timeout=20)
        (thread,) = session.get("/threads").ok()["threads"]
        assert thread["current_location"]["path"] == str(program)
        paused = session.post("/pause", {"wait": 20, "snapshot": True}).ok()
        report = paused["stop"]
        assert report["frames"][0]["name"] == "main"
        assert report["frames"][0]["id"] == report["frame_id"]
        if report["frame_id"]:  # else it was stopped between two waits
            assert report["folded"][0]["first"] == 0
            assert report["source"]["path"] == str(program)
        assert [local["name"] for local in report["locals"]] == ["jobs"]


def test_an_installed_command_is_a_library(relay: Client, source: Callable[..., Source]) -> None:
    """Its frame only calls its package; frames of its functions would be the program's own."""
    called = source("""
        def main():
            raise ValueError(7)  # @raises
    """)
    folder = Path(str(called)).parent
    (folder / "bin").mkdir()
    command = folder / "bin" / "tool"
    text = f"import sys\nsys.path.insert(0, {str(folder)!r})\nimport program\nprogram.main()\n"
    command.write_text(text)
    crash = relay.post("/run", {"script": str(command)}).ok()["exception"]
    assert [frame["name"] for frame in crash["frames"]] == ["main"]
    assert crash["folded"][0]["libraries"] == ["tool"]
    with relay.session() as session:
        session.break_at(called, called["raises"])
        report = session.launch(command, snapshot=True)["stop"]
        assert [frame["name"] for frame in report["frames"]] == ["main"]
        assert "… 1 frame of tool" in session.get("/stacktrace", format="text").raw.decode()
