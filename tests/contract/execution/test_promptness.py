"""A stopped thread does at once what it is told: nothing waits for it to look by itself."""

from __future__ import annotations

from collections.abc import Callable

from tests.kit.client import Client
from tests.kit.source import Source

# The stopped thread is made slow to see that it was woken: all it is to do has come by then.
# It notes when it has slept its time out although there was something to do.
DOWN = """
    import sys
    import time

    overslept = []

    def dawdle(event, queue):
        once = event.wait

        def wait(timeout):
            waiting, began = queue.qsize(), time.monotonic()
            once(timeout)
            if waiting and time.monotonic() - began >= timeout:
                overslept.append(waiting)
            time.sleep(0.03)

        event.wait = wait

    def all_dawdle():
        db = sys.modules["pydevd"].get_global_debugger()
        for id, event in list(db._thread_events.items()):
            dawdle(event, db._cmd_queue[id])

    def down(n):
        if n:
            return down(n - 1) * 2
        return 1

    while True:
        down(3)  # @call
"""


def test_a_step_is_not_slept_over(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    """A step into is two commands, of which the second one is not to wait 0.2 s for its turn."""
    program = source(DOWN)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["call"])
        session.launch(program)
        session.value("all_dawdle()")
        for _ in range(12):
            assert session.step("into")["completed"] is True
        assert session.value("overslept") == "[]"
