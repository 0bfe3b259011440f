"""What handlers of signals raise while the program stands: it comes when the program goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from tests.kit.client import Client, Session
from tests.kit.relay import eventually
from tests.kit.source import Source

PROGRAM = """
    import os, signal, sys, threading, time

    class Rang(Exception):
        pass

    class Rings:
        def __repr__(self):
            os.kill(os.getpid(), signal.SIGALRM)
            return "rung"

    def ring(number, frame):
        print("rang")
        raise Rang("in time")

    def work():
        rings = Rings() if sys.argv[1:] else None
        while True:
            time.sleep(0.01)  # @work

    def after():
        print("after")  # @after

    def other():
        while not done:
            time.sleep(0.01)

    done = []
    thread = threading.Thread(target=other)
    thread.start()
    signal.signal(signal.SIGALRM, ring)
    try:
        work()
    except Rang as rang:
        print("caught", rang)
    # Up to 3.11 Python ends the tracing of a thread in which a tracer raises.
    while sys.version_info < (3, 12) and sys.gettrace() is None:
        time.sleep(0.01)
    after()
    done.append(True)
    thread.join()
"""


def goes_on_as_told(session: Session, program: Source) -> None:
    assert (session.status()["status"], session.line()) == ("paused", program["work"])
    reply = session.resume()
    assert (reply["status"], session.line()) == ("paused", program["after"])
    assert "caught in time" in session.printed("stdout")
    assert session.resume()["exit_code"] == 0
    assert session.printed("stdout") == "rang\ncaught in time\nafter\n"
    assert "disabled" not in session.printed("console")  # as pydevd says, which is not so any more


@pytest.mark.one_python
def test_a_stop_is_not_ended(relay: Client, source: Callable[..., Source], python: str) -> None:
    program = source(PROGRAM)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["work"])
        session.break_at(program, program["after"])
        session.launch(program)
        os.kill(int(session.value("os.getpid()")), signal.SIGALRM)
        eventually(lambda: session.printed("stdout") == "rang\n")
        goes_on_as_told(session, program)


@pytest.mark.one_python
def test_a_look_at_values_does_not_swallow_it(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(PROGRAM)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["work"])
        session.break_at(program, program["after"])
        session.launch(program, args=["ring"])
        shown = session.locals()
        assert shown["rings"] == "<__main__.Rings: repr was interrupted>"
        goes_on_as_told(session, program)
