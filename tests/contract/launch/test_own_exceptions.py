"""What the program raises is its own: no mark on it, no price for it, told only where nobody
catches it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.relay import eventually
from tests.kit.running import Running
from tests.kit.source import Source

Write = Callable[..., Source]

RAISES = """
    import copy, os, pickle, sys, threading

    class Slotted(ValueError):
        __slots__ = ("kept",)

    class Sealed(Exception):
        def __setattr__(self, name, value):
            raise TypeError(name)

    class Watched(Exception):
        @property
        def __dict__(self):
            looked.append(sys._getframe(1).f_code.co_name)
            return {}

    def leaf(kind):
        raise kind("words")

    def caught(kind):
        try:
            leaf(kind)
        except Exception as error:
            return error

    def in_thread():
        found.extend(map(caught, (ValueError, OSError)))

    looked = []
    found = [caught(kind) for kind in (KeyError, Slotted, Sealed, Watched)]
    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
    print(looked)
    for error in found:
        print(type(error).__name__, vars(error), dir(error) == dir(type(error)("words")))
        print(vars(copy.copy(error)), vars(copy.deepcopy(error)))
    with open(sys.argv[1], "wb") as file:
        pickle.dump([found[0], found[-1], found[-2]], file)
    tools = getattr(sys, "monitoring", None)
    if tools:
        taken = [number for number in range(6) if tools.get_tool(number)]
        print(len(taken) <= 1, tools.get_tool(tools.DEBUGGER_ID))
    print(sys.excepthook, threading.excepthook)
"""
READS = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb')))"


@pytest.mark.parametrize(
    "asked",
    [
        {"filters": ["uncaught"]},
        {"filters": ["raised", "uncaught", "user_unhandled"], "condition": "exc is None"},
    ],
    ids=["uncaught", "all"],
)
def test_they_bear_no_mark(
    relay: Client, source: Write, tmp_path: Path, python: str, asked: dict[str, Any]
) -> None:
    program, pickled = source(RAISES), tmp_path / "pickled"
    arguments = [str(pickled)]
    plain = subprocess.run(
        [python, str(program), *arguments], capture_output=True, text=True, timeout=30, check=True
    )
    with relay.session(python_path=python) as session:
        session.post("/exception-breakpoints", asked).ok()
        assert session.launch(program, args=arguments)["exit_code"] == 0
        printed = session.printed("stdout")
    assert printed == plain.stdout
    read = subprocess.run(
        [sys.executable, "-I", "-c", READS, *arguments], capture_output=True, text=True, timeout=30
    )
    assert read.stdout == "[KeyError('words'), OSError('words'), ValueError('words')]\n", read


COSTS = """
    import sys, time

    def leaf(kind):
        raise kind(1)

    def caught(kind):
        try:
            leaf(kind)
        except kind:
            pass

    def seconds(depth, kind):
        if depth:
            return seconds(depth - 1, kind)
        taken = []
        for _ in range(20):
            began = time.process_time()
            for _ in range(50):
                caught(kind)
            taken.append(time.process_time() - began)
        return min(taken)

    # Of several depths: at one of them Python itself may have to get more memory for each call.
    deep = min(seconds(depth, ValueError) for depth in (470, 485, 500))
    shallow = seconds(5, ValueError)
    print(deep / shallow, shallow / seconds(5, KeyError))
"""


def test_they_cost_the_same_at_any_depth(relay: Client, source: Write, python: str) -> None:
    with relay.session(python_path=python) as session:
        assert session.launch(source(COSTS))["exit_code"] == 0
        # Looking through the whole stack for each of them, pydevd takes some 30 times as long.
        assert float(session.printed("stdout").split()[0]) < 6


def test_a_condition_that_is_false_prepares_no_stop(
    relay: Client, source: Write, python: str
) -> None:
    with relay.session(python_path=python) as session:
        asked = {"types": ["ValueError"], "condition": "exc is None"}
        session.post("/exception-breakpoints", asked).ok()
        assert session.launch(source(COSTS))["exit_code"] == 0
        # Where nobody asks for the type it is one; with a stop prepared 15 and more (3.12+).
        assert float(session.printed("stdout").split()[1]) < 8


KINDS = """
    import _thread, asyncio, concurrent.futures, os, sys, threading, time

    def fail(name):
        raise ValueError(name)  # @fail

    class Own(threading.Thread):
        def run(self):
            fail("own run")

    class Further(threading.Thread):
        def run(self):
            super().run()

    async def task():
        fail("task")

    async def main():
        await asyncio.gather(asyncio.ensure_future(task()), return_exceptions=True)
        await asyncio.sleep(0)
        fail("coroutine")

    def raw(name):
        begun.append(name)
        fail(name)

    def run():
        try:
            fail("called by a run of its own")
        except ValueError:
            pass

    print("up", flush=True)
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.005)
    run()
    for thread in (
        threading.Thread(target=fail, args=("function",)),
        Own(),
        Further(target=fail, args=("base run",)),
        threading.Timer(0, fail, ["timer"]),
    ):
        thread.start()
        thread.join()
    begun, count = [], _thread._count()
    _thread.start_new_thread(raw, ("raw",))
    while not begun or _thread._count() > count:
        time.sleep(0.005)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert pool.submit(fail, "pool").exception() is not None
    asyncio.run(main())
"""
TOLD = ["function", "own run", "base run", "timer", "raw", "coroutine"]


@pytest.mark.parametrize("how", ["script", "module", "pid"])
def test_each_that_nobody_catches_stops_once_where_it_is_raised(
    relay: Client,
    source: Write,
    start: Callable[..., Running],
    tmp_path: Path,
    python: str,
    how: str,
) -> None:
    program, go = source(KINDS), tmp_path / "go"
    one = start(KINDS, str(go), python=python) if how == "pid" else None
    with relay.session(python_path=python) as session:
        if one is not None:
            session.post("/attach", {"pid": one.pid, "connect_timeout": 30}).ok()
            go.touch()
            eventually(lambda: session.status()["status"] == "paused")
            state = session.status()
        else:
            go.touch()
            asked = {"script": str(program)} if how == "script" else {"module": "program"}
            fields = {"cwd": str(tmp_path), "args": [str(go)], **asked}
            state = session.try_launch(**fields).ok()
        told = []
        while state["status"] == "paused":
            told.append(session.get("/exception").ok()["message"])
            assert session.line() == program["fail"]
            state = session.resume()
        assert told == TOLD
        assert state["status"] == "terminated"
