"""pdb and `breakpoint()` under the relay: `breakpoint()` stops here, and pdb works as ever."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kit.client import Client, Session
from tests.kit.relay import eventually
from tests.kit.running import Running
from tests.kit.source import Source, has_monitoring, interpreters

pytestmark = pytest.mark.one_python

Write = Callable[..., Source]
Start = Callable[..., Running]

BOTH = """
    import pdb

    def work(n):
        breakpoint()
        m = n + 1  # @relay
        pdb.set_trace()
        k = m + 1  # @pdb
        return k + 1  # @later

    def called(n):
        return n * 2  # @called

    print(work(1))
    print(pdb.Pdb().runcall(called, 21))
"""


def at_prompt(session: Session) -> None:
    eventually(lambda: session.status()["prompt"] == "(Pdb) ", what="pdb asks")


def typed(session: Session, line: str) -> None:
    session.post("/input", {"input": f"{line}\n"}).ok()


def test_breakpoint_stops_here_and_pdb_asks_as_without_us(
    relay: Client, source: Write, python: str
) -> None:
    program = source(BOTH)
    with relay.session(python_path=python) as session:
        stopped = session.launch(program)
        assert (stopped["status"], session.line()) == ("paused", program["relay"])
        assert session.step()["current_location"]["line"] == program["relay"] + 1
        session.resume(wait=0)
        at_prompt(session)
        typed(session, "p 'the n is', n")
        typed(session, "n")
        at_prompt(session)
        typed(session, "c")
        at_prompt(session)  # of runcall, at its first line
        typed(session, "p 'called with', n")
        typed(session, "c")
        eventually(lambda: session.status()["status"] == "terminated", what="its end")
        assert session.status()["exit_code"] == 0
        said = session.printed("stdout")
        assert "('the n is', 1)" in said
        assert "('called with', 21)" in said
        assert session.printed("stderr") == ""


def test_python_m_pdb_and_breakpoints_of_the_relays(
    relay: Client, source: Write, python: str
) -> None:
    program = source(
        """
        def work(n):
            m = n + 1  # @first
            return m * 2  # @line

        print(work(20))
        """
    )
    expected = 1 if has_monitoring(python) else 0  # a thread has one tracer there, and it is pdb
    with relay.session(python_path=python) as session:
        point = session.break_at(program, program["line"])["id"]
        session.try_launch(None, module="pdb", args=[str(program)], wait=0).ok()
        at_prompt(session)
        typed(session, f"b {program['first']}")
        typed(session, "c")
        eventually(lambda: "m = n + 1" in session.printed("stdout"), what="pdb's own breakpoint")
        typed(session, "c")
        if expected:
            eventually(lambda: session.status()["status"] == "paused", what="the relay's")
            assert session.value("m") == "21"
            session.resume(wait=0)
        eventually(lambda: "will be restarted" in session.printed("stdout"), what="the end of it")
        assert "\n42\n" in session.printed("stdout").replace("(Pdb) ", "\n")
        assert session.get(f"/breakpoints/{point}").ok()["hit_count"] == expected


ASKED = """
    import pdb, sys

    def work(n):
        breakpoint()
        return n  # @relay

    def stands(n):
        pdb.set_trace()
        return n

    print("up", flush=True)
    for line in sys.stdin:
        if line == "breakpoint\\n":
            work(1)
        else:
            stands(2)
        print("done", flush=True)
"""


def test_an_attached_program(relay: Client, start: Start, python: str) -> None:
    one = start(ASKED, python=python)
    stdin = one.process.stdin
    assert stdin is not None

    def write(line: str) -> None:
        stdin.write(f"{line}\n")
        stdin.flush()

    with relay.session() as session:
        session.post("/attach", {"pid": one.pid}).ok()
        write("breakpoint")
        eventually(lambda: session.status()["status"] == "paused", what="breakpoint()")
        assert session.line() == one.program["relay"]
        session.resume(wait=0)
        assert one.line() == "done"
        for line in ("pdb", "c"):
            write(line)
        while (said := one.line()) != "(Pdb) done":
            assert said is not None
        assert session.post("/detach").ok()["residue"] is None
    assert one.stderr() == ""


@pytest.mark.parametrize("version", ["3.14", "3.15"])
def test_a_program_that_is_in_pdb_is_left_to_it(relay: Client, start: Start, version: str) -> None:
    """From 3.14 on pdb takes the one place for debuggers of sys.monitoring."""
    python = interpreters().get(version)
    if python is None:
        pytest.skip(f"no CPython {version} on this machine")
    one = start(ASKED, python=python)
    stdin = one.process.stdin
    assert stdin is not None
    stdin.write("pdb\n")
    stdin.flush()
    while one.line() != "-> pdb.set_trace()":
        pass
    before = one.counts()
    with relay.session() as session:
        refused = session.post("/attach", {"pid": one.pid}).refused("ATTACH_ALREADY_ATTACHED")
        assert "pdb has the place for debuggers" in refused["message"]
        assert "continue" in refused["details"]["suggestion"]
        assert session.status()["status"] == "created"
        assert one.counts() == before
        stdin.write("c\n")
        stdin.flush()
        assert one.line() == "(Pdb) done"
        session.post("/attach", {"pid": one.pid}).ok()
        assert session.post("/detach").ok()["residue"] is None
    assert one.stderr() == ""
