"""Programs that start others: children run as without a debugger, are told of, and end with us."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from tests.kit.client import Client
from tests.kit.relay import Relay, eventually
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

Write = Callable[..., Source]

# Every way that Python has, one after the other; what the children say is on one line each.
WAYS = """
    import asyncio
    import concurrent.futures
    import multiprocessing
    import os
    import subprocess
    import sys

    ENDS = [sys.executable, "-c", "import sys; print('child', flush=True); sys.exit(7)"]

    def work(n):
        return n * 2  # @inside

    def ends_with(code):
        os._exit(work(code))

    def status(pid):
        code = os.waitpid(pid, 0)[1]
        return os.WEXITSTATUS(code) if os.WIFEXITED(code) else -os.WTERMSIG(code)

    def fork():
        pid = os.fork()
        if pid == 0:
            print("forked", work(2), flush=True)
            os._exit(7)
        return status(pid)

    def fork_raising():
        pid = os.fork()
        if pid == 0:
            try:
                raise KeyError("caught in the child")
            except KeyError:
                sys.exit(7)
        return status(pid)

    def fork_exec():
        pid = os.fork()
        if pid == 0:
            os.execv(ENDS[0], ENDS)
        return status(pid)

    def pool(method):
        with multiprocessing.get_context(method).Pool(1) as workers:
            return workers.map(work, range(4))

    def process(method):
        child = multiprocessing.get_context(method).Process(target=ends_with, args=(3,))
        child.start()
        child.join()
        return child.exitcode

    def executor():
        with concurrent.futures.ProcessPoolExecutor(1) as workers:
            return list(workers.map(work, range(4)))

    async def asynchronous():
        child = await asyncio.create_subprocess_exec(*ENDS)
        return await child.wait()

    def main():
        for name, way in (
            ("run", lambda: subprocess.run(ENDS).returncode),
            ("shell", lambda: subprocess.run("exit 5", shell=True).returncode),
            ("captured", lambda: subprocess.run(ENDS, stdout=subprocess.PIPE).stdout),
            ("Popen", lambda: subprocess.Popen(ENDS, close_fds=False).wait()),
            ("no environment", lambda: subprocess.Popen(ENDS, env={}).wait()),
            ("system", lambda: os.system("exit 4") >> 8),
            ("posix_spawn", lambda: status(os.posix_spawn(ENDS[0], ENDS, os.environ))),
            ("spawnv", lambda: os.spawnv(os.P_WAIT, ENDS[0], ENDS)),
            ("fork", fork),
            ("fork raising", fork_raising),
            ("fork and exec", fork_exec),
            ("asyncio", lambda: asyncio.run(asynchronous())),
            ("pool fork", lambda: pool("fork")),
            ("pool spawn", lambda: pool("spawn")),
            ("pool forkserver", lambda: pool("forkserver")),
            ("process fork", lambda: process("fork")),
            ("process spawn", lambda: process("spawn")),
            ("process forkserver", lambda: process("forkserver")),
            # In 3.8 it complains at exit as soon as anybody has kept its thread object.
            ("executor", executor if sys.version_info >= (3, 9) else str),
        ):
            print(name, way(), flush=True)

    if __name__ == "__main__":
        main()
"""


def test_children_run_as_without_a_debugger(
    relay: Client, shared_relay: Relay, source: Write, python: str
) -> None:
    program = source(WAYS)
    plain = subprocess.run(
        [python, str(program)],
        env=shared_relay.env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    with relay.session(python_path=python) as session:
        session.break_at(program, program["inside"])
        ended = session.launch(program, wait=60, stop_on_exception=True)
        assert session.printed("stdout") == plain.stdout
        assert session.printed("stderr") == plain.stderr
        assert (ended["status"], ended["exit_code"]) == ("terminated", 0)
        assert session.events("stopped") == []


def test_children_are_told_of(relay: Client, source: Write, python: str) -> None:
    program = source(
        """
        import json, os, signal, subprocess, sys
        quick = [sys.executable, "-c", "pass"]
        pids = {}
        child = subprocess.Popen(quick)
        pids["Popen"] = child.pid
        child.wait()
        pids["posix_spawn"] = os.posix_spawn(quick[0], quick, os.environ)
        pids["fork"] = os.fork()
        if pids["fork"] == 0:
            os._exit(0)
        os.wait()
        os.wait()
        killed = subprocess.Popen(["sleep", "1000"])
        killed.send_signal(signal.SIGKILL)
        assert killed.wait() == -9
        print(json.dumps([pids, quick]))
        """
    )
    with relay.session(python_path=python) as session:
        assert session.launch(program)["exit_code"] == 0
        pids, quick = json.loads(session.printed("stdout"))
        told = [event["body"] for event in session.events("subprocess")]
        by_pid = {body["pid"]: body["command"] for body in told}
        assert len(told) == 4
        assert by_pid[pids["Popen"]] == by_pid[pids["posix_spawn"]] == quick
        assert "fork" in " ".join(by_pid[pids["fork"]])


def test_a_breakpoint_in_the_parent_goes_on_working(
    relay: Client, source: Write, python: str
) -> None:
    program = source(
        """
        import os
        for n in range(2):
            pid = os.fork()
            name = "child" if pid == 0 else "parent"  # @both
            if pid == 0:
                os._exit(n)
            os.waitpid(pid, 0)
        """
    )
    with relay.session(python_path=python) as session:
        session.break_at(program, program["both"])
        session.launch(program)
        for _ in range(2):
            assert session.line() == program["both"]
            assert session.value("pid") != "0"
            ended = session.resume()
        assert ended["exit_code"] == 0


def test_a_child_that_keeps_the_pipes_does_not_hold_back_the_end(
    relay: Client, source: Write
) -> None:
    program = source(
        """
        import subprocess, sys
        child = subprocess.Popen(["sleep", "1000"])
        print(child.pid)
        """
    )
    with relay.session() as session:
        ended = session.launch(program, wait=5)
        assert (ended["status"], ended["exit_code"]) == ("terminated", 0)
        child = int(session.printed("stdout"))
        session.delete().ok()
        eventually(lambda: not alive(child), what="the child gone with its session")


def test_a_daemon_is_gone_with_its_session(relay: Client, source: Write) -> None:
    program = source(
        """
        import os, sys
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.write(writing, str(os.getpid()).encode())
                for fd in (0, 1, 2, reading, writing):
                    os.close(fd)
                os.execvpe("sleep", ["sleep", "1000"], {"PATH": os.environ["PATH"]})
            os._exit(0)
        print(os.read(reading, 100).decode(), flush=True)
        input()
        """
    )
    with relay.session() as session:
        session.launch(program, wait=0)
        session.events("output", timeout=10)
        daemon = int(session.printed("stdout"))
        assert alive(daemon)
        session.delete().ok()
        eventually(lambda: not alive(daemon), what="the daemon gone with its session")


def test_a_program_that_replaces_itself(relay: Client, source: Write, python: str) -> None:
    program = source(
        """
        import os, sys
        print("before", flush=True)
        os.execv(sys.executable, [sys.executable, "-c", "print('after'); raise SystemExit(6)"])
        """
    )
    with relay.session(python_path=python) as session:
        ended = session.launch(program)
        assert (ended["status"], ended["exit_code"]) == ("terminated", 6)
        assert session.printed() == "before\nafter\n"


def alive(pid: int) -> Any:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
