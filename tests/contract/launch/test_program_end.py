"""A program's end: at once, silently, and with nothing of what it told lost."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from datetime import datetime

import pytest

from tests.kit.client import Client
from tests.kit.source import Source

COUNTED = """
    import time

    for i in range(30):
        even = i % 2 == 0  # @often
    print(time.time())
"""
ENDS = """
    import atexit, threading, time

    def work():
        time.sleep(0.2)
        print("joined")

    atexit.register(print, "handled")
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    threading.Thread(target=work).start()
"""


@pytest.mark.one_python
def test_hits_are_counted_to_the_end(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(COUNTED)
    with relay.session(python_path=python) as session:
        body = {
            "source": {"path": str(program)},
            "line": program["often"],
            "condition": "i % 2",
            "hit_condition": "10",
        }
        id = session.post("/breakpoints", body).ok()["breakpoints"][0]["id"]
        assert session.launch(program)["status"] == "paused"
        assert session.locals()["i"] == "19"
        ended = session.resume()
        assert (ended["status"], ended["exit_code"]) == ("terminated", 0)
        assert session.get(f"/breakpoints/{id}").ok()["hit_count"] == 15
        assert session.printed("stderr") == ""


def test_the_debugger_does_not_hold_an_ended_program(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(COUNTED)
    told = []
    for _ in range(10):
        with relay.session(python_path=python) as session:
            assert session.launch(program)["status"] == "terminated"
            (ended,) = session.events("terminated")
            at = datetime.fromisoformat(ended["timestamp"].replace("Z", "+00:00"))
            held = at.timestamp() - float(session.printed("stdout"))
        if held < 0.3:  # 0.02 s; 0.6 s before
            return
        # So busy a machine holds a plain program as well, which has a fifth of the work to do.
        printed = subprocess.check_output([python, str(program)], text=True)
        plain = time.time() - float(printed)
        told.append((held, plain))
        if held < 8 * plain:
            return
    pytest.fail(f"held for (seconds; without debugger): {told}")


def test_a_program_ends_as_it_does_alone(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    """After its threads but the daemons, and its handlers."""
    with relay.session(python_path=python) as session:
        ended = session.launch(source(ENDS))
        assert (ended["status"], ended["exit_code"]) == ("terminated", 0)
        assert session.printed("stderr") == ""
        assert session.printed("stdout") == "joined\nhandled\n"
