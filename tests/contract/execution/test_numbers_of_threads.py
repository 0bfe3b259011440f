"""The program's threads have the numbers that they have without a debugger."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kit.client import Client
from tests.kit.running import Running
from tests.kit.source import Source

pytestmark = pytest.mark.one_python


def test_the_first_thread_of_a_launched_program(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(
        """
        import threading
        for _ in range(2):
            one = threading.Thread(target=len, args=("",))
            print(one.name.split()[0])
        one = 1  # @here
        """
    )
    with relay.session(python_path=python) as session:
        session.break_at(program, program["here"])
        session.launch(program)
        assert session.printed("stdout") == "Thread-1\nThread-2\n"
        assert session.resume()["exit_code"] == 0


def test_threads_of_a_program_that_was_attached_to(
    relay: Client, start: Callable[..., Running], python: str
) -> None:
    one = start(
        """
        import threading
        print("up", flush=True)
        while input() != "over":
            print(threading.Thread(target=len, args=("",)).name.split()[0], flush=True)
        """,
        python=python,
    )
    stdin = one.process.stdin
    assert stdin is not None

    def named() -> str:
        stdin.write("\n")
        stdin.flush()
        return one.line()

    with relay.session() as session:
        assert named() == "Thread-1"
        for number in (2, 4):
            session.post("/attach", {"pid": one.pid, "connect_timeout": 30}).ok()
            assert named() == f"Thread-{number}"
            session.post("/detach").ok()
            assert named() == f"Thread-{number + 1}"
