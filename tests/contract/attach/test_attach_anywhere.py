"""Attaching to programs that are interrupted where it hurts: none may stand still for it."""

from __future__ import annotations

import resource
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.kit.client import Client, Session
from tests.kit.running import Running
from tests.kit.source import Source, has_monitoring
from tests.kit.statements import python_path

# Its main thread is mostly on its way into the interpreter.
BUSY_THREADS = """
    import threading

    def work(n):
        doubled = n * 2  # @line
        return doubled

    def run():
        n = 0
        while True:
            n = work(n) % 1000

    print("up", flush=True)
    threading.Thread(target=run, daemon=True).start()
    run()
"""
# Its main thread is mostly inside malloc.
ALLOCATES = """
    def work(n):
        doubled = n * 2  # @line
        return doubled

    print("up", flush=True)
    n = 0
    while True:
        n = work(n) % 1000
        blocks = [bytearray(n * 37 % 5000 + 600) for n in range(2000)]
"""
# Its garbage collector comes by all the time and runs what waits, while threads come and go.
COLLECTS = """
    import gc, threading, time, _thread, weakref

    class Node(object):
        pass

    def litter():
        one = Node()
        one.me = one
        return weakref.ref(one, lambda ref: time.sleep(0.0001))

    def work(n):
        refs.append(litter())
        del refs[:-50]
        doubled = n * 2  # @line
        return doubled

    def run():
        while True:
            work(1)
            time.sleep(0.0002)

    def starts():
        while True:
            _thread.start_new_thread(work, (1,))
            thread = threading.Thread(target=work, args=(1,))
            thread.start()
            thread.join()

    refs = []
    gc.set_threshold(3)
    for target in (run, run, starts):
        threading.Thread(target=target, daemon=True).start()
    print("up", flush=True)
    run()
"""
ONE_LINE = """
    n = 0
    print("up", flush=True)
    while True: n += 1  # @line
"""
TWO_LINES = """
    import threading

    def run():
        n = 0
        while True:
            n += 1
            m = n

    threading.Thread(target=run, daemon=True).start()
    n = 0
    print("up", flush=True)
    while True:
        n += 1
        m = n  # @line
"""
# Its main thread rests in a call that nothing ends.
JOINS = """
    import threading, time

    def work(n):
        doubled = n * 2  # @line
        return doubled

    def run():
        n = 0
        while True:
            n = work(n) % 1000
            time.sleep(0.01)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    print("up", flush=True)
    thread.join()
"""
FORKS = """
    import os

    def work(n):
        doubled = n * 2  # @line
        return doubled

    print("up", flush=True)
    while True:
        child = os.fork()
        if child == 0:
            import bisect, fractions, json, socket
            os._exit(work(3) + 1)
        assert os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 7
        work(1)
"""
DEEP = """
    import sys, time

    def work(n):
        doubled = n * 2  # @line
        return doubled

    def deeper(n):
        if n:
            return deeper(n - 1)
        print("up", flush=True)
        while True:
            work(1)
            time.sleep(0.01)

    deeper(sys.getrecursionlimit() - 10)
"""
NOWHERE = """
    import os, tempfile, time

    def work(n):
        doubled = n * 2  # @line
        return doubled

    folder = tempfile.mkdtemp()
    os.chdir(folder)
    os.rmdir(folder)
    print("up", flush=True)
    os.close(0), os.close(1)
    while True:
        work(1)
        time.sleep(0.01)
"""
# Nothing more can be called where its main thread is, half of the time or always.
AT_THE_LIMIT = """
    import sys, time

    def work(n):
        doubled = n * 2  # @line
        return doubled

    def spin(until):
        while time.monotonic() < until:
            {wait}

    def deeper(n, until):
        try:
            return deeper(n - 1, until) if n else spin(until)
        except RecursionError:
            return spin(until)

    print("up", flush=True)
    while True:
        deeper(sys.getrecursionlimit(), time.monotonic() + {seconds})
        until = time.monotonic() + 0.2
        while time.monotonic() < until:
            work(1)
"""
# What is written cannot be run in it (MemoryDenyWriteExecute).
HARDENED = """
    import ctypes, time

    def work(n):
        doubled = n * 2  # @line
        return doubled

    assert ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) == 0
    print("up", flush=True)
    while True:
        {wait}
        work(1)
"""
HAS_ITS_OWN = """
    import sys, time

    sys.monitoring.use_tool_id(sys.monitoring.DEBUGGER_ID, "profiler of mine")
    print("up", flush=True)
    while True:
        time.sleep(0.01)
"""
SUBINTERPRETERS = """
    import time
    import _xxsubinterpreters

    def work(n):
        doubled = n * 2  # @line
        return doubled

    kept = _xxsubinterpreters.create()
    print("up", flush=True)
    while True:
        work(1)
        time.sleep(0.01)
"""
# It ends as soon as the debugger has come, and takes a moment for that.
ENDS = """
    import atexit, sys, time

    atexit.register(time.sleep, 0.1)
    print("up", flush=True)
    while True:
        debugger = sys.modules.get("pydevd")
        current = getattr(debugger, "get_global_debugger", int)()
        if getattr(current, "reader", None) is not None:
            break
        time.sleep(0.0001)
"""
# Beside it stand modules by the names of the library's; it has loaded some of them.
SHADOWS = """
    import queue, sys, threading, time

    def work(n):
        doubled = n * 2  # @line
        return doubled

    def run():
        while True:
            work(1)
            time.sleep(0.01)

    threading.Thread(target=run, daemon=True).start()
    print("up", flush=True)
    for line in sys.stdin:
        import json, string
        print([part.mine for part in (json, queue, string)], flush=True)
"""
CROWDED = """
    import os, resource, time
    held = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (held, 1000))
    print("up", flush=True)
    while True:
        time.sleep(0.01)
"""
WRITES_NO_FILE = """
    import resource, signal, time

    signal.signal(signal.SIGXFSZ, signal.{signal})
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    print("up", flush=True)
    while True:
        time.sleep(0.01)
"""
Start = Callable[..., Running]


def hit_and_leave(session: Session, one: Running) -> None:
    session.break_at(one.program, one.program["line"])
    attached = session.post("/attach", {"pid": one.pid, "connect_timeout": 60, "wait": 30}).ok()
    assert attached["status"] == "paused"
    assert session.line() == one.program["line"]
    assert session.post("/detach").ok()["residue"] is None


def ended(one: Running) -> str:
    """The program's standard error. The program never waits, and would slow down the end of the
    session: so the test ends it here.
    """
    assert one.alive
    one.process.kill()
    one.process.wait()
    return one.stderr()


@pytest.mark.parametrize(
    "text",
    [BUSY_THREADS, ALLOCATES, COLLECTS, FORKS, DEEP, NOWHERE],
    ids=["busy-threads", "allocates", "collects", "forks", "deep", "nowhere"],
)
def test_it_never_stands_still(relay: Client, start: Start, python: str, text: str) -> None:
    one = start(text, python=python)
    with relay.session() as session:
        hit_and_leave(session, one)
        # 3.12 and later warn of every fork beside other threads, and ours are there for a while.
        assert ended(one) == "" or text is FORKS


@pytest.mark.parametrize("loop", [ONE_LINE, TWO_LINES], ids=["one-line", "two-lines"])
def test_a_loop_that_runs_already_and_calls_nothing(
    relay: Client, start: Start, python: str, loop: str
) -> None:
    one = start(loop, python=python)
    with relay.session() as session:
        hit_and_leave(session, one)
        assert ended(one) == ""


@pytest.mark.parametrize(
    ("seconds", "wait"),
    [(0.2, "pass"), (3600, "pass"), (3600, "time.sleep(3600)")],
    ids=["at-times", "always", "at-rest"],
)
def test_one_at_the_limit_of_its_recursion(
    relay: Client, start: Start, python: str, seconds: float, wait: str
) -> None:
    one = start(AT_THE_LIMIT.format(seconds=seconds, wait=wait), python=python)
    with relay.session() as session:
        session.post("/attach", {"pid": one.pid, "connect_timeout": 60}).ok()
        assert session.post("/detach").ok()["residue"] is None
        assert ended(one) == ""


@pytest.mark.parametrize("wait", ["pass", "time.sleep(0.2)"], ids=["busy", "at-rest"])
def test_one_that_runs_nothing_that_was_written(
    relay: Client, start: Start, python: str, wait: str
) -> None:
    one = start(HARDENED.format(wait=wait), python=python)
    with relay.session() as session:
        hit_and_leave(session, one)
        assert ended(one) == ""


def test_one_with_a_debugger_of_its_own(relay: Client, start: Start) -> None:
    one = start(HAS_ITS_OWN, python=python_path("3.12"))
    with relay.session() as session:
        error = session.post("/attach", {"pid": one.pid}).refused("ATTACH_ALREADY_ATTACHED", 409)
        assert "profiler of mine" in error["message"]
    assert one.alive
    assert one.stderr() == ""


@pytest.mark.parametrize("version", ["3.8", "3.11", "3.12"])
def test_one_with_subinterpreters(relay: Client, start: Start, version: str) -> None:
    one = start(SUBINTERPRETERS, python=python_path(version))
    with relay.session() as session:
        if version == "3.12":
            hit_and_leave(session, one)
            return
        error = session.post("/attach", {"pid": one.pid}).refused("ATTACH_UNSUPPORTED", 400)
        assert "subinterpreters" in error["message"]
    assert one.alive
    assert one.stderr() == ""


@pytest.mark.one_python
def test_one_that_ends_meanwhile(relay: Client, start: Start, python: str) -> None:
    one = start(ENDS, python=python)
    with relay.session() as session:
        session.post("/attach", {"pid": one.pid}).refused("ATTACH_NO_SUCH_PROCESS", 404)
        assert session.status()["status"] == "created"


@pytest.mark.slow
def test_one_whose_files_stand_before_the_library(
    relay: Client, start: Start, source: Callable[..., Source], python: str
) -> None:
    for name in ("json", "queue", "string"):
        source("mine = 1\n", f"{name}.py")
    for name in ("socket", "token", "traceback", "binascii", "weakref"):
        source(f"raise SystemError('{name} was run')\n", f"{name}.py")
    one = start(SHADOWS, python=python)
    with relay.session() as session:
        hit_and_leave(session, one)
        assert one.ask("import") == [1, 1, 1]
    assert one.alive
    assert one.stderr() == ""


def test_one_without_room_is_refused_at_once(relay: Client, start: Start) -> None:
    one = start(CROWDED)
    with relay.session() as session:
        error = session.post("/attach", {"pid": one.pid}).refused("ATTACH_UNSUPPORTED", 400)
        assert f"prlimit --pid {one.pid} --nofile=" in error["details"]["suggestion"]
    shown = relay.get(f"/processes/{one.pid}").ok()
    assert (shown["attachable"], shown["code"]) == (False, "ATTACH_UNSUPPORTED")


@pytest.mark.parametrize("signal", ["SIG_IGN", "SIG_DFL"])
def test_one_that_may_write_no_file_is_refused_at_once(
    relay: Client, start: Start, signal: str
) -> None:
    """The kernel ends who does so all the same, unless it is told not to, as by Python."""
    one = start(WRITES_NO_FILE.format(signal=signal))
    with relay.session() as session:
        error = session.post("/attach", {"pid": one.pid}).refused("ATTACH_UNSUPPORTED", 400)
        assert f"prlimit --pid {one.pid} --fsize=unlimited" in error["details"]["suggestion"]
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(one.pid, resource.RLIMIT_FSIZE, unlimited)
        session.post("/attach", {"pid": one.pid, "connect_timeout": 30}).ok()
        session.post("/detach").ok()
    assert one.alive
    assert one.stderr() == ""


def injected_texts(pid: int) -> int:
    """How many copies of the injected code its memory has."""
    found = 0
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb") as memory:
        for line in maps:
            first, last = (int(part, 16) for part in line.split()[0].split("-"))
            if line.split()[1] in ("rw-p", "rwxp") and last - first <= 1 << 20:
                memory.seek(first)
                found += memory.read(last - first).count(b"try: __import__('builtins').exec(")
    return found


def test_one_whose_main_thread_rests(relay: Client, start: Start, python: str) -> None:
    """It is traced as it can be, two sessions ask for it at once, and its memory is given back."""
    one = start(JOINS, python=python)
    body = {"pid": one.pid, "connect_timeout": 60}
    with relay.session() as first, relay.session() as second:
        answer = first.post("/attach", {**body, "tracing": "settrace"})
        if has_monitoring(python):
            answer.refused("ATTACH_UNSUPPORTED", 400)
        else:
            answer.ok()
            assert injected_texts(one.pid) == 0
            assert first.post("/detach").ok()["residue"] is None
        with ThreadPoolExecutor() as pool:
            asked = {one: pool.submit(one.post, "/attach", body) for one in (first, second)}
        answers = {session: call.result() for session, call in asked.items()}
        (winner,) = (one for one, answer in answers.items() if answer.status == 200)
        (loser,) = (answer for one, answer in answers.items() if one is not winner)
        error = loser.refused("ATTACH_ALREADY_ATTACHED", 409)
        assert error["details"]["session_id"] == winner.id
        assert injected_texts(one.pid) == 0
        assert winner.post("/detach").ok()["residue"] is None
        hit_and_leave(first, one)
    assert one.alive
    assert one.stderr() == ""
