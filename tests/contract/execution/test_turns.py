"""Several threads that come to breakpoints at once: one stop each, one after the other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kit.client import Client
from tests.kit.source import Source

pytestmark = pytest.mark.one_python


def test_threads_that_come_to_a_breakpoint_at_once_are_shown_one_after_the_other(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(
        """
        import threading

        together = threading.Barrier(6)

        def work(i):
            for turn in range(3):
                together.wait()
                mark = (i, turn)  # @here
        threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        """
    )
    with relay.session(python_path=python) as session:
        breakpoint = session.break_at(program, program["here"])
        result = session.launch(program)
        seen = []
        while result["status"] == "paused":
            assert result["stop_reason"] == "breakpoint"
            assert result["stop_id"] == len(seen) + 1
            seen.append((int(session.value("i")), int(session.value("turn"))))
            result = session.resume()
        assert sorted(seen) == [(i, turn) for i in range(6) for turn in range(3)]
        assert session.get(f"/breakpoints/{breakpoint['id']}").ok()["hit_count"] == 18
        assert session.status()["exit_code"] == 0


@pytest.mark.parametrize("how", ["deleted", "disabled", "suspended"])
def test_a_thread_that_waits_for_its_turn_does_not_stop_at_what_is_gone(
    relay: Client, source: Callable[..., Source], python: str, how: str
) -> None:
    program = source(
        """
        import threading

        together = threading.Barrier(6)

        def work(i):
            for turn in range(3):
                mark = (i, turn)  # @here
        threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        """
    )
    with relay.session(python_path=python) as session:
        # All of them are about to stop before any of them stands.
        condition = "turn == 0 and together.wait() >= 0"
        id = session.break_at(program, program["here"], condition=condition)["id"]
        assert session.launch(program)["stop_reason"] == "breakpoint"
        if how == "deleted":
            session.delete(f"/breakpoints/{id}").ok()
        elif how == "disabled":
            session.patch(f"/breakpoints/{id}", {"enabled": False}).ok()
        else:
            session.patch("", {"breakpoints_suspended": True}).ok()
        assert session.resume()["status"] == "terminated"


def test_threads_that_fail_at_once_are_never_shown_twice(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(
        """
        import threading

        together = threading.Barrier(4)

        def work(i):
            together.wait()
            try:
                raise ValueError(i)
            except ValueError:
                pass
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        """
    )
    with relay.session(python_path=python) as session:
        result = session.launch(program, stop_on_exception="raised")
        seen = []
        while result["status"] == "paused":
            assert result["stop_reason"] == "exception"
            seen.append(int(session.value("i")))
            result = session.resume()
        # pydevd passes over what a thread raises that another one's stop has just halted.
        assert len(seen) == len(set(seen)) >= 1
        assert session.status()["exit_code"] == 0


def test_exceptions_in_threads_that_are_just_halted_are_all_told(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(
        """
        import threading
        together = threading.Barrier(4)
        def fail(n):
            together.wait()
            for i in range(3):
                try:
                    raise ValueError(n, i)
                except ValueError:
                    pass
        threads = [threading.Thread(target=fail, args=(n,)) for n in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        """
    )
    with relay.session(python_path=python) as session:
        session.post("/exception-breakpoints", {"filters": ["raised"]}).ok()
        state, seen = session.launch(program), []
        while state["status"] == "paused":
            assert state["stop_reason"] == "exception"
            seen.append(session.value("(n, i)"))
            state = session.resume()
        assert sorted(seen) == [f"({n}, {i})" for n in range(4) for i in range(3)]
        assert state["exit_code"] == 0
