"""Test runners, pools, greenlets and kernels as users have them, under the debugger."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from debug_relay.worker.attach.behind_port import processes_behind
from tests.kit.client import Client
from tests.kit.listening import Listening
from tests.kit.notebook import CELL, CELL_LINE, Kernel
from tests.kit.relay import eventually
from tests.kit.source import Source

Write = Callable[..., Source]
# The packages are installed beside the relay; of their plug-ins none is wanted.
OWN = {"python_path": sys.executable}
BARE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


# -- tests


def test_the_suite_of_a_third_party_package(relay: Client, tmp_path: Path) -> None:
    suite = ["-q", "-p", "no:cacheprovider", "--pyargs", "toolz.tests.test_dicttoolz"]
    plain = subprocess.run(
        [sys.executable, "-m", "pytest", *suite],
        cwd=tmp_path,
        env={**os.environ, **BARE},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    with relay.session(**OWN) as session:
        ended = session.launch(module="pytest", args=suite, env=BARE, cwd=str(tmp_path), wait=60)
        # pytest leaves by sys.exit(0), which is no crash.
        assert (ended["status"], ended["exit_code"]) == ("terminated", 0)
        assert counts(session.printed()) == counts(plain.stdout)


def counts(printed: str) -> list[tuple[str, str]]:
    found = re.findall(r"(\d+) (passed|failed|skipped|error)", printed)
    assert found, printed
    return found


FAILING = """
    import unittest

    def double(n):
        return n * 3  # @double

    class UnitTests(unittest.TestCase):
        def setUp(self):
            self.n = 4

        def test_double(self):
            self.assertEqual(double(self.n), 8)  # @unit
    """


def test_unittest(relay: Client, source: Write) -> None:
    tests = source(FAILING, "test_doubles.py")
    with relay.session(**OWN) as session:
        session.break_at(tests, tests["double"])
        folder = str(tests.path.parent)
        stopped = session.launch(module="unittest", args=["-q", "test_doubles"], cwd=folder)
        assert (stopped["stop_reason"], session.line()) == ("breakpoint", tests["double"])
        session.step("out")
        assert session.line() == tests["unit"]
        assert session.value("self.n") == "4"
        assert session.resume()["exit_code"] == 1
        assert "FAILED (failures=1)" in session.printed("stderr")


# -- pools

POOLS = """
    import concurrent.futures
    import multiprocessing
    import sys
    import time

    def double(n):
        doubled = n * 2  # @double
        return doubled

    def rounds(pool, times):
        for _ in range(times):
            total = sum(pool.map(double, range(8)))
            time.sleep(0.02)  # @between
        return total

    if __name__ == "__main__":
        kind, times = sys.argv[1], int(sys.argv[2])
        context = multiprocessing.get_context(kind)
        with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
            first = list(pool.map(double, range(8)))
            print("up", flush=True)
            print(sum(first), rounds(pool, times))
        with context.Pool(2) as pool:
            print(rounds(pool, 1))
    """


@pytest.mark.parametrize("kind", ["fork", "spawn", "forkserver"])
def test_pools_work_beside_a_breakpoint(relay: Client, source: Write, kind: str) -> None:
    program = source(POOLS)
    with relay.session(**OWN) as session:
        session.break_at(program, program["double"])  # inherited by fork; nobody must wait there
        ended = session.launch(program, args=[kind, "1"], wait=30, cwd=str(program.path.parent))
        assert (ended["status"], ended["exit_code"]) == ("terminated", 0), session.printed()
        assert session.printed("stdout") == "up\n56 56\n56\n"
        assert session.events("subprocess")


@pytest.fixture
def pool(source: Write) -> Iterator[subprocess.Popen[str]]:
    program = source(POOLS)
    process = subprocess.Popen(
        [sys.executable, str(program), "fork", "1000000"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    yield process
    # Its workers have each other's ends of their queue: none would notice that it is gone.
    for each in (
        psutil.Process(process.pid),
        *psutil.Process(process.pid).children(recursive=True),
    ):
        each.kill()
    process.wait()
    process.stdout.close()


def test_a_pool_and_its_worker_are_attached_to(
    relay: Client, pool: subprocess.Popen[str], tmp_path: Path
) -> None:
    program = Source(tmp_path / "program.py", POOLS)
    children = Path(f"/proc/{pool.pid}/task/{pool.pid}/children")
    worker = int(children.read_text().split()[0])
    for pid, mark, name in ((pool.pid, "between", "total"), (worker, "double", "n")):
        with relay.session() as session:
            session.post("/attach", {"pid": pid, "connect_timeout": 30}).ok()
            session.break_at(program, program[mark])
            eventually(lambda session=session: session.status()["status"] == "paused")
            assert session.line() == program[mark]
            assert int(session.value(name)) >= 0
            session.post("/detach").ok()
    assert pool.poll() is None


# -- gevent

GREENLETS = """
    from gevent import monkey
    monkey.patch_all()
    import gevent
    import threading
    import time

    def double(name, n):
        doubled = n * 2  # @double
        return doubled

    def loop(name):
        n = 0
        while n < 1000000:
            n += 1
            double(name, n)
            time.sleep(0.01)  # @sleep

    print("up", flush=True)
    threading.Thread(target=loop, args=("thread",), daemon=True).start()
    gevent.joinall([gevent.spawn(loop, name) for name in "ab"])
    """


def test_greenlets_are_debugged_where_they_are_launched(relay: Client, source: Write) -> None:
    program = source(GREENLETS)
    with relay.session(**OWN) as session:
        breakpoint = session.break_at(program, program["double"])
        assert session.launch(program)["status"] == "paused"
        seen = set()
        for _ in range(6):
            seen.add(session.value("name"))
            assert session.step("over")["current_location"]["line"] == program["double"] + 1
            assert session.step("out")["current_location"]["function"] == "loop"
            assert session.resume()["status"] == "paused"
        assert seen == {"'a'", "'b'", "'thread'"}
        late = session.post("/evaluate", {"expression": "[0 for _ in iter(int, 1)]", "timeout": 1})
        late.refused("DEBUGPY_TIMEOUT", 504)
        session.delete(f"/breakpoints/{breakpoint['id']}").ok()
        assert session.resume(wait=0)["status"] == "running"
        assert session.post("/pause", {"wait": 10}).ok()["status"] == "paused"
        assert session.printed("stderr") == ""


def test_greenlets_that_nobody_expected_are_told_of(relay: Client, source: Write) -> None:
    source(GREENLETS, "hidden.py")
    program = source("import hidden")
    with relay.session(**OWN) as session:
        session.launch(program, wait=0)
        told = eventually(lambda: session.printed("console"), 30)  # to import gevent takes long
        assert '/restart with {"env": {"GEVENT_SUPPORT": "True"}}' in str(told)
        session.post("/restart", {"env": {"GEVENT_SUPPORT": "True"}, "wait": 0}).ok()
        eventually(lambda: session.printed("stdout").endswith("up\n"), 30)
        assert session.post("/pause", {"wait": 10}).ok()["status"] == "paused"
        assert session.printed("stderr") == ""


def test_greenlets_are_not_attached_to(relay: Client, source: Write) -> None:
    program = source(GREENLETS)
    process = subprocess.Popen(
        [sys.executable, str(program)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "up\n"
        told = relay.get(f"/processes/{process.pid}").ok()
        assert (told["greenlets"], told["attachable"]) == ("gevent", False)
        with relay.session() as session:
            error = session.post("/attach", {"pid": process.pid}).refused("ATTACH_UNSUPPORTED", 400)
            assert "GEVENT_SUPPORT=True" in error["details"]["suggestion"]
            assert told["code"] == error["code"]
            assert told["suggestion"] == error["details"]["suggestion"]
            assert told["reason"] == f"The threads of process {process.pid} are greenlets of gevent"
            assert error["message"].startswith(told["reason"])
            assert session.status()["status"] == "created"
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_greenlets_are_joined_where_their_debugger_knows_of_them(
    relay: Client, source: Write
) -> None:
    is_up = 'open(__file__ + ".up", "w").close()'
    program = source(GREENLETS.replace('print("up", flush=True)', is_up))
    unknown = Listening(program.path)
    try:
        eventually(Path(f"{program.path}.up").exists, timeout=20)
        with relay.session() as session:
            body = {"port": unknown.port}
            error = session.post("/attach", body).refused("ATTACH_UNSUPPORTED", 400)
            assert "GEVENT_SUPPORT=True" in error["details"]["suggestion"]
            # The debugger hangs there at times. One that is stopped tells not even its pid.
            unknown.process.send_signal(signal.SIGSTOP)
            assert unknown.process.pid in processes_behind(unknown.port)
            body["connect_timeout"] = 1
            assert session.post("/attach", body).refused("ATTACH_UNSUPPORTED", 400) == error
        unknown.process.send_signal(signal.SIGCONT)
        assert unknown.process.poll() is None
    finally:
        unknown.end()
    known = Listening(program.path, GEVENT_SUPPORT="True")
    try:
        with relay.session() as session:
            session.break_at(program, program["double"])
            session.post("/attach", {"port": known.port, "wait": 20}).ok()
            assert session.step("over")["current_location"]["line"] == program["double"] + 1
    finally:
        known.end()


# -- notebooks


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    found = Kernel(tmp_path)
    yield found
    found.end()


def test_a_function_of_a_notebooks_cell(relay: Client, kernel: Kernel) -> None:
    place = kernel.run(CELL)
    with relay.session() as session:
        session.post("/attach", {"pid": kernel.pid, "connect_timeout": 30}).ok()
        session.post("/breakpoints", {"function": "double"}).ok()
        session.break_at(place, CELL_LINE + 1)
        cell = kernel.begin("print(double(4))")
        eventually(lambda: session.status()["status"] == "paused")
        assert session.status()["current_location"]["path"] == place
        assert (session.line(), session.value("n")) == (CELL_LINE, "4")
        assert session.resume()["current_location"]["line"] == CELL_LINE + 1
        assert session.value("doubled") == "8"
        session.post("/detach").ok()
        assert kernel.finish(cell) == "8"
        assert kernel.run("print(double(1))") == "2"
    assert kernel.alive
