"""Python warns of forks in a program with threads: with and without a debugger the same ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.running import Running
from tests.kit.source import Source

FORKS = """
    import json, multiprocessing, os, pty, sys, threading, warnings

    def end(pid):
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)

    def forks():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            end(os.fork())  # @fork
            end(pty.fork()[0])
            process = multiprocessing.get_context("fork").Process(target=len, args=("",))
            process.start()
            process.join()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            end(os.fork())
        return [[os.path.basename(one.filename), one.lineno, one.category.__name__,
                 str(one.message).replace(str(os.getpid()), "PID")] for one in caught]

    def told():
        alone = forks()
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        return json.dumps([alone, forks()])
"""


def judge(program: Source, told: str, python: str) -> None:
    alone, threaded = json.loads(told)
    assert alone == []
    if not any(older in python for older in ("3.8", "3.9", "3.10", "3.11")):
        text = "This process (pid=PID) is multi-threaded, use of %s() may lead to deadlocks"
        text += " in the child."
        own: list[Any] = ["program.py", program["fork"], "DeprecationWarning", text % "fork"]
        assert threaded[0] == own
        assert [row[0] for row in threaded] == ["program.py", "pty.py", "popen_fork.py"]
        assert threaded[1][3] == text % "forkpty"
    else:
        assert threaded == []


@pytest.mark.slow
@pytest.mark.parametrize("family", [False, True])
def test_a_launched_program_is_warned_of_its_own_threads(
    relay: Client, source: Callable[..., Source], python: str, family: bool
) -> None:
    program = source(FORKS + "\n    print(told())\n")
    with relay.session(python_path=python) as session:
        assert session.launch(program, debug_subprocesses=family)["exit_code"] == 0
        assert session.printed("stderr") == ""
        judge(program, session.printed("stdout"), python)


@pytest.mark.slow
def test_an_attached_program_is_warned_of_its_own_threads(
    relay: Client, start: Callable[..., Running], python: str
) -> None:
    one = start(
        FORKS
        + """
    print("up", flush=True)
    input()
    print(told(), flush=True)
    """,
        python=python,
    )
    stdin = one.process.stdin
    assert stdin is not None
    with relay.session() as session:
        session.post("/attach", {"pid": one.pid, "connect_timeout": 30}).ok()
        stdin.write("\n")
        stdin.flush()
        judge(one.program, one.line(), python)
        assert one.stderr() == ""
