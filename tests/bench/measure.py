"""The measuring: every operation on both sides, turn by turn, in one run.

Interleaved, because a shared machine is now fast and now slow: the ratios hold, times alone do not.
What counts as done is in debugpy's favour: for it a step ends with the `stopped` event, for the
relay with a reply that also says where the program stands.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.bench.figures import Row, rows
from tests.bench.raw_dap import Adapter
from tests.bench.relay_calls import Caller, Debugged
from tests.kit.relay import Relay
from tests.kit.source import Source, interpreters

_BURST: Final = 5  # calls of one side in a row, so that none is always the first after a pause
_LOCALS: Final = 50
_TICK_SECONDS: Final = 0.12  # output events come ten a second: faster ones wait for each other

_WIDE: Final = 500
_DEEP: Final = 3000
_SHOWN: Final = 20  # frames of a report

_LOOP: Final = """
import sys
sys.setrecursionlimit(100000)
def loop(depth={depth}):
    if depth:
        return loop(depth - 1)
{locals}
    while True:
        v0 += 1  # @hit
        v1 += 1
        v2 += 1
        v3 += 1
        v4 += 1

def never():
    return 1  # @elsewhere

loop()
"""
# What a breakpoint costs where it does not stop: each side decides by the same condition.
_HOT: Final = """
import time
def work():
    total = 0
    for i in range(1000):
        total += i  # @hit
for _ in range({rounds}):
    began = time.perf_counter()
    work()
    print(repr(time.perf_counter() - began), flush=True)
"""
_CALLED: Final = """
import time
def called(i):
    return i  # @hit
def work():
    for i in range(1000):
        called(i)
for _ in range({rounds}):
    began = time.perf_counter()
    work()
    print(repr(time.perf_counter() - began), flush=True)
"""
# Depths around one: at some of them Python itself gets and frees memory at each call.
_RAISED: Final = """
import time
def leaf():
    raise ValueError
def handled():
    try:
        leaf()
    except ValueError:
        pass
def seconds(depth):
    if depth:
        return seconds(depth - 1)
    began = time.process_time()
    for _ in range(1000):
        handled()
    return time.process_time() - began
for _ in range({rounds}):
    for depths in ((10,), (470, 485, 500)):
        print(repr(min(map(seconds, depths))), flush=True)
"""
_TRACED_ROWS: Final = 10_000
_TRACED: Final = """
def work():
    a = b = 0  # @start
    for i in range(10000):
        a += i
        b = a - i
work()
"""
_NEVER: Final = "i < 0"
_PROGRAMS: Final = 4  # for each side of a row that passes a breakpoint
# CLOCK_MONOTONIC is one for all processes: the program's and ours can be subtracted.
_TICKER: Final = """
import time
for _ in range({ticks}):
    time.sleep({pause})
    print(repr(time.monotonic()), flush=True)
"""


class Bench:
    def __init__(self, relay: Relay, folder: Path, rounds: int) -> None:
        self._relay = relay
        self._rounds = rounds
        self._folder = folder
        self._rows = rows()
        self._loop = self._looping("loop", _LOCALS, 0)
        self._larger = {
            "wide": self._looping("wide", _WIDE, 0),
            "deep": self._looping("deep", _LOCALS, _DEEP),
        }
        ticker = _TICKER.format(ticks=2 * rounds + 2, pause=_TICK_SECONDS)
        self._ticker = Source(folder / "ticker.py", ticker)
        # A frame that stays, and a new one for each hit, which pydevd has to look at first.
        self._passed = {
            "hits": Source(folder / "hot.py", _HOT.format(rounds=rounds)),
            "calls": Source(folder / "called.py", _CALLED.format(rounds=rounds)),
        }
        self._kept = Caller(relay.url, keep_alive=True)
        self._fresh = Caller(relay.url, keep_alive=False)

    def _looping(self, name: str, count: int, depth: int) -> Source:
        lines = "\n".join(f"    v{i} = {i}" for i in range(count))
        return Source(self._folder / f"{name}.py", _LOOP.format(locals=lines, depth=depth))

    def run(self) -> dict[str, Row]:
        try:
            for _ in range(self._rounds):
                self._starts()
                self._commands()
            self._at_a_stop()
            for row in self._larger:
                self._at_a_larger_stop(row)
            self._traced()
            for row, program in self._passed.items():
                # A program lasts 30 ms, and its neighbour on the processor may be busy for as
                # long, so one program a side is not enough.
                for _ in range(min(self._rounds, _PROGRAMS)):
                    self._relay_hits(row, program)
                    self._debugpy_hits(row, program)
            self._raised()
            self._relay_ticks()
            self._debugpy_ticks()
        finally:
            self._kept.close()
        return self._rows

    @contextmanager
    def _timed(self, row: str, side: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self._rows[row].add(side, time.perf_counter() - began)

    # -- starting

    def _starts(self) -> None:
        with self._timed("create", "relay"):
            session = Debugged(self._kept)
        try:
            session.set_breakpoint(self._loop.path, self._loop["hit"])
            with self._timed("first_stop", "relay"):
                session.launch(self._loop.path)
        finally:
            session.end()
        with self._timed("create", "debugpy"):
            adapter = Adapter()
        try:
            with self._timed("first_stop", "debugpy"):
                adapter.launch(self._loop.path, self._loop["hit"])
                adapter.stopped()
        finally:
            adapter.close()

    def _commands(self) -> None:
        """A command that calls the relay, from its start to its end."""
        ours = ("-P", "-m", "debug_relay.supervisor", "sessions", "--url", self._relay.url)
        for side, argv in (("relay", ours), ("debugpy", ("-m", "debugpy", "--version"))):
            with self._timed("command", side):
                quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
                subprocess.run([sys.executable, *argv], check=True, **quiet)

    # -- in a stopped program

    def _at_a_stop(self) -> None:
        session = Debugged(self._kept)
        adapter = Adapter()
        try:
            session.set_breakpoint(self._loop.path, self._loop["hit"])
            session.launch(self._loop.path)
            adapter.launch(self._loop.path, self._loop["hit"])
            thread = adapter.stopped()
            sides = {
                "relay": self._relay_calls(session),
                "relay, new connection": self._relay_calls(session.by(self._fresh)),
                "debugpy": self._debugpy_calls(adapter, thread),
            }
            for row in sides["relay"]:
                for _ in range(self._rounds):
                    for side, calls in sides.items():
                        for _ in range(_BURST):
                            with self._timed(row, side):
                                calls[row]()
        finally:
            adapter.close()
            session.end()

    def _at_a_larger_stop(self, row: str) -> None:
        """Many locals, or many frames: a step and its report."""
        program = self._larger[row]
        session = Debugged(self._kept)
        adapter = Adapter()
        try:
            session.set_breakpoint(program.path, program["hit"])
            session.launch(program.path)
            adapter.launch(program.path, program["hit"])
            thread = adapter.stopped()
            sides = {
                "relay": self._relay_calls(session)["report"],
                "relay, new connection": self._relay_calls(session.by(self._fresh))["report"],
                "debugpy": self._debugpy_calls(adapter, thread)["report"],
            }
            for _ in range(self._rounds):
                for side, step in sides.items():
                    with self._timed(row, side):
                        step()
        finally:
            adapter.close()
            session.end()

    def _relay_calls(self, session: Debugged) -> dict[str, Callable[[], object]]:
        def look() -> None:
            session.get("/stacktrace")
            scopes = session.get("/frames/0/scopes")["scopes"]
            session.get(f"/variables/{scopes[0]['variables_reference']}")

        def breakpoint() -> None:
            session.set_breakpoint(self._loop.path, self._loop["elsewhere"])

        return {
            "step": lambda: session.post("/step-over"),
            "report": lambda: session.post("/step-over", {"snapshot": True}),
            "evaluate": lambda: session.post("/evaluate", {"expression": "v0 + v1"}),
            "look": look,
            "locals": lambda: session.get("/frames/0/variables"),
            "continue": lambda: session.post("/continue", {"wait": 30}),
            "breakpoint": breakpoint,
            "status": lambda: session.get("/status"),
        }

    def _debugpy_calls(self, adapter: Adapter, thread: int) -> dict[str, Callable[[], object]]:
        def frame() -> int:
            shown = adapter.request("stackTrace", threadId=thread, levels=_SHOWN)
            return int(shown["stackFrames"][0]["id"])

        def scope() -> int:
            return int(
                adapter.request("scopes", frameId=frame())["scopes"][0]["variablesReference"]
            )

        def move(command: str) -> None:
            adapter.post(command, threadId=thread)
            adapter.stopped()

        # At the stop that these are measured at; moving on makes new ones.
        known: dict[str, int] = {}

        def at_top(name: str, find: Callable[[], int]) -> int:
            if name not in known:
                known[name] = find()
            return known[name]

        def moved(command: str) -> Callable[[], None]:
            def go() -> None:
                known.clear()
                move(command)

            return go

        def report() -> None:
            known.clear()
            move("next")
            adapter.request("variables", variablesReference=scope())

        lines = (self._loop["hit"], self._loop["elsewhere"])
        return {
            "step": moved("next"),
            "report": report,
            "evaluate": lambda: adapter.request(
                "evaluate", expression="v0 + v1", frameId=at_top("frame", frame), context="repl"
            ),
            "look": lambda: adapter.request("variables", variablesReference=scope()),
            "locals": lambda: adapter.request(
                "variables", variablesReference=at_top("scope", scope)
            ),
            "continue": moved("continue"),
            "breakpoint": lambda: adapter.set_breakpoint(self._loop.path, *lines),
            "status": lambda: adapter.request("threads"),
        }

    # -- passing a breakpoint

    def _relay_hits(self, row: str, program: Source) -> None:
        session = Debugged(self._kept)
        try:
            session.set_breakpoint(program.path, program["hit"], _NEVER)
            session.launch(program.path, wait=60)
            entries = session.get("/output?category=stdout&limit=1000")["entries"]
            for seconds in "".join(entry["output"] for entry in entries).split():
                self._rows[row].add("relay", float(seconds))
        finally:
            session.end()

    def _debugpy_hits(self, row: str, program: Source) -> None:
        adapter = Adapter()
        try:
            adapter.launch(program.path, program["hit"], _NEVER)
            while True:
                name, body = adapter.next_of("output", "terminated")
                if name == "terminated":
                    return
                if body.get("category") == "stdout":
                    for seconds in body["output"].split():
                        self._rows[row].add("debugpy", float(seconds))
        finally:
            adapter.close()

    # -- exceptions that are raised and handled

    def _raised(self) -> None:
        """With `uncaught`, as by default; on a Python with `sys.monitoring` if there is one."""
        found = interpreters()
        python = next((found[v] for v in ("3.13", "3.12") if v in found), sys.executable)
        program = Source(self._folder / "raised.py", _RAISED.format(rounds=self._rounds))
        plain = subprocess.run(
            [python, str(program)], capture_output=True, text=True, check=True, timeout=120
        )
        self._add_raised("plain", plain.stdout)
        session = Debugged(self._kept)
        try:
            session.launch(program.path, wait=120, python=python)
            entries = session.get("/output?category=stdout&limit=1000")["entries"]
            self._add_raised("relay", "".join(entry["output"] for entry in entries))
        finally:
            session.end()
        adapter = Adapter()
        try:
            adapter.launch(program.path, None, python=python, filters=("uncaught",))
            printed = ""
            while (event := adapter.next_of("output", "terminated"))[0] == "output":
                printed += event[1]["output"] if event[1].get("category") == "stdout" else ""
            self._add_raised("debugpy", printed)
        finally:
            adapter.close()

    def _add_raised(self, side: str, printed: str) -> None:
        for at, seconds in enumerate(printed.split()):
            self._rows[("raised_10", "raised_500")[at % 2]].add(side, float(seconds))

    # -- rows of what changes, line by line

    def _traced(self) -> None:
        """10,000 rows in one call; there a step, and the locals of the place that it came to."""
        program = Source(self._folder / "traced.py", _TRACED)
        session = Debugged(self._kept)
        adapter = Adapter()
        try:
            session.set_breakpoint(program.path, program["start"])
            session.launch(program.path)
            asked = {"step": "function", "max_rows": _TRACED_ROWS}
            began = time.perf_counter()
            traced = session.post("/trace", asked)
            taken = time.perf_counter() - began
            assert traced["total"] == _TRACED_ROWS
            self._rows["trace"].add("relay", taken / _TRACED_ROWS)
            adapter.launch(program.path, program["start"])
            thread = adapter.stopped()
            for _ in range(_BURST):
                with self._timed("trace", "debugpy"):
                    adapter.post("next", threadId=thread)
                    adapter.stopped()
                    frames = adapter.request("stackTrace", threadId=thread)["stackFrames"]
                    scopes = adapter.request("scopes", frameId=frames[0]["id"])["scopes"]
                    reference = scopes[0]["variablesReference"]
                    adapter.request("variables", variablesReference=reference)
        finally:
            adapter.close()
            session.end()

    # -- waiting for news

    def _relay_ticks(self) -> None:
        session = Debugged(self._kept)
        try:
            session.launch(self._ticker.path, wait=0)
            cursor, printed = "", 0.0
            while True:
                page = session.get(f"/events?types=output,terminated&timeout=20{cursor}")
                now = time.monotonic()
                cursor = f"&cursor={page['next_cursor']}"
                for event in page["events"]:
                    if event["type"] == "terminated":
                        self._rows["end"].add("relay", now - printed)
                        return
                    printed = float(event["body"]["output"].split()[-1])
                    self._rows["wake"].add("relay", now - printed)
        finally:
            session.end()

    def _debugpy_ticks(self) -> None:
        adapter = Adapter()
        try:
            adapter.launch(self._ticker.path, None)
            printed = 0.0
            while True:
                name, body = adapter.next_of("output", "terminated")
                now = time.monotonic()
                if name == "terminated":
                    self._rows["end"].add("debugpy", now - printed)
                    return
                if body.get("category") == "stdout" and body["output"].strip():
                    printed = float(body["output"].split()[-1])
                    self._rows["wake"].add("debugpy", now - printed)
        finally:
            adapter.close()
