"""Programs whose children are debugged with them: `debug_subprocesses`."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.contract.children.test_children import WAYS, alive
from tests.kit.client import Client, Session
from tests.kit.relay import Relay, eventually
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

Write = Callable[..., Source]


def test_a_child_that_is_started_is_debugged(relay: Client, source: Write, python: str) -> None:
    child = source(
        """
        import sys
        def work(n):
            return n * 2  # @work
        print("child", work(21), sys.argv[1:], flush=True)
        sys.exit(7)
        """,
        "child.py",
    )
    program = source(
        f"""
        import subprocess, sys
        child = subprocess.Popen([sys.executable, {str(child)!r}, "a b"])
        print("code", child.wait())  # @waiting
        """
    )
    with relay.session(python_path=python) as session:
        session.break_at(child, child["work"], condition="n == 21")
        stopped = session.launch(program, debug_subprocesses=True)
        assert (stopped["status"], stopped["stop_reason"]) == ("paused", "breakpoint"), [
            (event["timestamp"], event["body"]) for event in session.events("subprocess")
        ]
        pid = stopped["child_pid"]
        assert pid not in (None, stopped["pid"])
        listed = {row["pid"]: row for row in session.get("/threads").ok()["threads"]}
        assert {pid: row["status"] for pid, row in listed.items()} == {
            stopped["pid"]: "running",
            pid: "paused",
        }
        assert session.status()["stopped_threads"] == [listed[pid]["id"]]
        assert session.get("/stacktrace").ok()["child_pid"] == pid
        assert session.get("/snapshot").ok()["stop"]["thread"]["pid"] == pid
        assert f"child process {pid}" in session.get("/snapshot", format="text").raw.decode()
        assert session.value("n") == "21"
        session.post("/evaluate", {"expression": "n = 4"}).ok()
        out = session.step("out")
        assert (out["child_pid"], out["return_value"]["value"]) == (pid, "8")
        # What is set while it stands holds for the parent, which runs.
        session.break_at(program, program["waiting"])
        ended = session.resume()
        assert (ended["status"], ended["exit_code"]) == ("terminated", 0)
        assert session.printed("stdout") == "child 8 ['a b']\ncode 7\n"
        printed = session.get("/output").ok()["entries"]
        assert [entry["pid"] for entry in printed] == [pid, None]
        started, came, gone = told(session)
        assert [one["reason"] for one in (started, came, gone)] == ["started", "attached", "exited"]
        assert started["pid"] == came["pid"] == gone["pid"] == pid
        assert started["command"] == came["command"]
        assert started["debugged"] is True
        assert gone["exit_code"] == 7


@pytest.mark.slow
def test_every_way_to_start_one(
    relay: Client, shared_relay: Relay, source: Write, python: str
) -> None:
    """All print and return what they do without a debugger, and Python among them is debugged."""
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
        point = session.break_at(program, program["inside"], log_message="in {n}")
        session.launch(program, wait=0, debug_subprocesses=True, stop_on_exception="uncaught")
        eventually(lambda: session.status()["status"] == "terminated", timeout=150)
        ended = session.status()
        assert (ended["status"], ended["exit_code"]) == ("terminated", 0)
        assert session.printed("stdout") == plain.stdout
        assert session.printed("stderr") == plain.stderr
        hits = session.get(f"/breakpoints/{point['id']}").ok()["hit_count"]
        calls = _calls_of_work(plain.stdout)
        assert hits == calls
        assert session.printed("console").count("in ") == calls


def _calls_of_work(stdout: str) -> int:
    """One of each process that says so, four of each pool."""
    lines = stdout.splitlines()
    pools = sum(line.endswith("[0, 2, 4, 6]") for line in lines)
    return 4 * pools + sum(line.startswith(("forked", "process ")) for line in lines)


FAMILY = """
    import os, sys, threading, time
    from multiprocessing import get_context

    def grandchild(path):
        while not os.path.exists(path):
            time.sleep(0.01)  # @grand

    def child(path):
        if os.fork() == 0:
            grandchild(path)
            os._exit(3)
        while not os.path.exists(path):
            time.sleep(0.01)  # @child
        os._exit(os.WEXITSTATUS(os.wait()[1]))

    if __name__ == "__main__":
        process = get_context(sys.argv[1]).Process(target=child, args=(sys.argv[2],))
        process.start()
        while not os.path.exists(sys.argv[2]):
            time.sleep(0.01)  # @root
        process.join()
        print(process.exitcode)
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_stop_and_go_on_each_by_itself(
    relay: Client, source: Write, python: str, tmp_path: Path, method: str
) -> None:
    program = source(FAMILY)
    flag = tmp_path / "go"
    with relay.session(python_path=python) as session:
        launched = session.launch(
            program, wait=0, debug_subprocesses=True, args=[method, str(flag)]
        )
        root = launched["pid"]
        eventually(lambda: len(attached(session)) == 2, timeout=60)
        session.break_at(program, program["child"])
        eventually(lambda: session.status()["status"] == "paused", timeout=30)
        first = session.get("/snapshot").ok()["stop"]["thread"]
        assert first["is_child"]
        assert session.line() == program["child"]
        assert pids_of_threads(session, "paused") == {first["pid"]}
        # A step moves its own process, and the next stop is there.
        assert session.step()["child_pid"] == first["pid"]
        session.delete("/breakpoints").ok()
        # The others are paused too, and one call sends all of them on.
        session.post("/pause", {"wait": 10}).ok()
        eventually(lambda: len(pids_of_threads(session, "paused")) == 3, timeout=30)
        everyone = pids_of_threads(session, "paused")
        assert {root, first["pid"]} < everyone
        for thread in session.get("/threads").ok()["threads"]:
            value = session.value("__import__('os').getpid()", thread_id=thread["id"])
            assert value == str(thread["pid"])
        flag.touch()
        session.resume(wait=0)
        eventually(lambda: session.status()["status"] == "terminated", timeout=30)
        assert session.printed("stdout") == "3\n"
        ends = {e["pid"]: e["exit_code"] for e in told(session) if e["reason"] == "exited"}
        assert ends == dict.fromkeys(everyone - {root}, 3)
        # What is forked shows its parent's command line, which is not told as its own.
        came = [e["command"] for e in told(session) if e["reason"] == "attached"]
        forked = [command[1:] == ["(fork)"] for command in came]
        assert forked == [method == "fork", True]
        assert all(os.path.samefile(command[0], python) for command in came)


SERVED = """
    import multiprocessing, os, sys

    top = os.getpid()  # @top

    def work(n):
        return n * 2  # @work

    if __name__ == "__main__":
        newest = sys.version_info >= (3, 14)  # where it is what one gets
        context = multiprocessing if newest else multiprocessing.get_context("forkserver")
        print(context.get_start_method())
        with context.Pool(1) as pool:
            print(pool.map(work, [1, 2]))
        process = context.Process(target=work, args=(3,))
        process.start()
        process.join()
        print(process.exitcode)
"""


@pytest.mark.slow
def test_a_fork_server_and_what_it_forks(relay: Client, source: Write, python: str) -> None:
    """From Python 3.14 on it imports the main module, and what it forks does not."""
    program = source(SERVED)
    expected = "forkserver\n[2, 4]\n0\n"
    is_newest = python.endswith(("3.14", "3.15"))
    with relay.session(python_path=python) as session:
        session.break_at(program, program["top"], condition="__name__ != '__main__'")
        session.break_at(program, program["work"])
        stopped = session.launch(program, debug_subprocesses=True)
        seen, pids = [], set()
        while stopped["status"] == "paused":
            seen.append("top" if session.line() == program["top"] else session.value("n"))
            pids.add(stopped["child_pid"])
            stopped = session.resume()
        assert seen == (["top", "1", "2", "3"] if is_newest else ["top", "1", "2", "top", "3"])
        assert len(pids) == (3 if is_newest else 2)
        assert None not in pids
        assert (stopped["status"], stopped["exit_code"]) == ("terminated", 0)
        assert (session.printed("stdout"), session.printed("stderr")) == (expected, "")


def test_what_goes_wrong_around_children(
    relay: Client, source: Write, python: str, tmp_path: Path
) -> None:
    """A child is killed while it stands, another is there at the end."""
    program = source(
        """
        import os, signal, subprocess, sys, time
        me = [sys.executable, __file__]
        if len(sys.argv) == 1:
            first = subprocess.Popen([*me, "stand"])
            assert first.wait() == -signal.SIGKILL
            subprocess.run([sys.executable, "-c", "1 +"], check=False)
            subprocess.run([sys.executable, "no such file"], check=False)
            subprocess.run([sys.executable, "-IS", "-c", "print(1)"], check=False)
            subprocess.run([sys.executable, "-"], input=b"print(2)", check=False)
            many = [subprocess.Popen([*me, "stay"]) for _ in range(4)]
            print("go", flush=True)
            os._exit(4)
        print("stood")  # @stood
        time.sleep(1000)
        """
    )
    with relay.session(python_path=python) as session:
        session.break_at(program, program["stood"])
        session.launch(program, wait=0, debug_subprocesses=True)
        eventually(lambda: session.status()["status"] == "paused", timeout=60)
        stopped = session.get("/snapshot").ok()["stop"]["thread"]
        os.kill(stopped["pid"], signal.SIGKILL)
        eventually(lambda: session.status()["status"] == "terminated", timeout=60)
        ended = session.status()
        assert (ended["exit_code"], ended["stopped_threads"]) == (4, [])
        killed = next(e for e in told(session) if e["reason"] == "exited")
        assert (killed["pid"], killed["signal"]) == (stopped["pid"], "SIGKILL")
        assert session.printed("stdout").endswith("1\n2\ngo\n")
        assert "SyntaxError" in session.printed("stderr")
        assert "no such file" in session.printed("stderr")
        started = [e["pid"] for e in told(session) if e["reason"] == "started"]
        session.delete().ok()
        eventually(lambda: not any(alive(pid) for pid in started), what="children gone")


def told(session: Session) -> list[Any]:
    return [event["body"] for event in session.events("subprocess")]


def attached(session: Session) -> set[int]:
    return {body["pid"] for body in told(session) if body["reason"] == "attached"}


def pids_of_threads(session: Session, status: str) -> set[int]:
    threads = session.get("/threads").ok()["threads"]
    return {thread["pid"] for thread in threads if thread["status"] == status}


def test_an_old_python_gets_its_own_words(relay: Client, source: Write, tmp_path: Path) -> None:
    """Python 2 would refuse an option of ours, and with it the command line."""
    old = tmp_path / "python2.7"
    old.write_text('#!/bin/sh\necho "$@"\n')
    old.chmod(0o755)
    (tmp_path / "python").symlink_to(old)
    program = source(
        """
        import os, subprocess, sys
        os.environ["PATH"] = "/nowhere:" + os.environ["OLD"] + ":" + os.environ["PATH"]
        for name in (os.environ["OLD"] + "/python2.7", os.environ["OLD"] + "/python", "python"):
            subprocess.run([name, "script.py", "x"], check=True)
        """
    )
    with relay.session() as session:
        ended = session.launch(program, debug_subprocesses=True, env={"OLD": str(tmp_path)})
        assert ended["exit_code"] == 0
        assert session.printed("stdout") == "script.py x\n" * 3
        assert [e["debugged"] for e in told(session) if e["reason"] == "started"] == [False] * 3


def test_a_pause_reaches_a_program_that_waits_for_its_children(
    relay: Client, source: Write, python: str
) -> None:
    """They stand at once, it sits in a system call."""
    program = source(
        """
        import subprocess, sys, time
        if len(sys.argv) == 1:
            children = [subprocess.Popen([sys.executable, __file__, "x"]) for _ in range(2)]
            print("go", flush=True)
            children[0].wait()
        while True:
            time.sleep(0.01)
        """
    )
    with relay.session(python_path=python) as session:
        session.launch(program, wait=0, debug_subprocesses=True)
        eventually(lambda: len(pids_of_threads(session, "running")) == 3, timeout=30)
        assert session.post("/pause", {"wait": 20}).ok()["status"] == "paused"
        assert len(pids_of_threads(session, "paused")) == 3
        assert pids_of_threads(session, "running") == set()


@pytest.mark.slow
def test_a_child_that_ends_while_it_comes_does_not_run_on(
    relay: Client, source: Write, python: str
) -> None:
    """What a pool terminates, say: it is told to have ended, if it was there at all."""
    program = source(
        """
        import os, signal, time
        there, says_so = os.pipe()
        for halves in range(40):
            child = os.fork()
            if child == 0:
                os.write(says_so, b".")
                time.sleep(1000)
            time.sleep(halves / 2000)  # at another point of its way each time
            if halves == 39:
                os.read(there, 1)  # one at least has come
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        time.sleep(1)
        """
    )
    with relay.session(python_path=python) as session:
        assert session.launch(program, debug_subprocesses=True, wait=60)["exit_code"] == 0
        reasons = [event["reason"] for event in told(session)]
        assert reasons.count("started") == 40
        assert reasons.count("attached") == reasons.count("exited") > 0
        assert "released" not in reasons


def test_a_line_outlives_a_kill_and_processes_are_asked_side_by_side(
    relay: Client, source: Write, python: str
) -> None:
    program = source(
        """
        import os, signal
        for number in range(4):
            pid = os.fork()
            if pid == 0:
                number += 0  # @logs
                os.kill(os.getpid(), signal.SIGKILL)
            os.wait()
        for number in range(2):
            if os.fork() == 0:
                os._exit(number)  # @stands
        os.wait()
        os.wait()
        """
    )
    with relay.session(python_path=python) as session:
        session.break_at(program, program["logs"], log_message="number {number}")
        session.break_at(program, program["stands"])
        session.launch(program, wait=0, debug_subprocesses=True)
        eventually(lambda: len(session.status()["stopped_threads"]) == 2, timeout=60)
        assert [f"number {number}" in session.printed("console") for number in range(4)] == [
            True
        ] * 4
        busy, other = session.status()["stopped_threads"]
        # One blocks in its process for as long as the other one is asked.
        held, release = os.pipe()
        blocking = f"open('/proc/{os.getpid()}/fd/{held}', 'rb').read(1)"
        answers: list[Any] = []
        asking = threading.Thread(
            target=lambda: answers.append(session.value(blocking, thread_id=busy, timeout=50))
        )
        asking.start()
        try:
            assert session.value("number", thread_id=other) in ("0", "1")
            assert answers == []
        finally:
            os.write(release, b".")
            asking.join()
            os.close(held)
            os.close(release)
        assert answers == ["b'.'"]
        assert session.resume()["exit_code"] == 0


def test_a_function_that_each_child_has_too_is_told_once(
    relay: Client, source: Write, python: str
) -> None:
    program = source("""
        import multiprocessing

        def work(n):
            return n  # @work

        if __name__ == "__main__":
            spawn = multiprocessing.get_context("spawn")
            for n in range(2):
                child = spawn.Process(target=work, args=(n,))
                child.start()
                child.join()
    """)
    with relay.session(python_path=python) as session:
        asked = {"function": "work", "log_message": "{n}"}
        id = session.post("/breakpoints", asked).ok()["breakpoints"][0]["id"]
        assert session.launch(program, debug_subprocesses=True)["exit_code"] == 0
        told = session.get(f"/breakpoints/{id}").ok()
        assert (told["line"], told["hit_count"]) == (program["work"], 2)
        assert (told["verified"], told["message"]) == (True, None)
