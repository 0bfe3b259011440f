"""Watchpoints: a stop after the line that has changed a value, and what it was before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.client import Client, Session
from tests.kit.relay import eventually
from tests.kit.running import Running
from tests.kit.source import Source, version_of

Write = Callable[..., Source]
BANK = """
    import time

    class Account:
        def __init__(self, balance):
            self.balance = balance
            self.log = []

        def deposit(self, amount):
            self.log.append(amount)  # @logs
            self.balance += amount  # @deposit
            self.log.append(self.balance)  # @after

        def fee(self):
            self.balance -= 1  # @fee

    def idle(n):
        return n + 1

    def work(account, other):
        account.deposit(50)
        idle(1)
        other.deposit(7)
        account.fee()  # @calls_fee
        account.deposit(0)  # @nothing
        return account.balance  # @returns

    print("up", flush=True)
    for _ in range(2):
        ann, bob = Account(100), Account(5)
        print(work(ann, bob))  # @work
    print("end")
"""


def watch(session: Session, expression: str, **fields: Any) -> Any:
    point = {"watch": expression, **fields}
    return session.post("/breakpoints", {"breakpoints": [point]}).ok()["breakpoints"][0]


def changes(session: Session) -> list[tuple[str, str, int | None]]:
    """(before, after, the line that made the change if it is known) of each stop until the end, or
    until a stop without a change.
    """
    found = []
    while True:
        stop = session.resume(snapshot=True)
        if stop["status"] != "paused" or not stop["stop"]["value_changes"]:
            return found
        (change,) = stop["stop"]["value_changes"]
        line = change["location"]["line"] if change["location"] else None
        found.append((change["before"], change["after"], line))


def test_who_changes_an_attribute(relay: Client, source: Write, python: str) -> None:
    program = source(BANK)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["work"])
        session.launch(program)
        point = watch(session, "self.balance", **{"in": {"files": [str(program)]}})
        assert point["verified"] is True
        assert "more" in point["message"]
        # Each object has a value of its own: that of `bob` is changed by the same line.
        assert changes(session) == [
            ("100", "150", program["deposit"]),
            ("5", "12", program["deposit"]),
            ("150", "149", program["fee"]),
        ]
        assert session.line() == program["work"]
        session.delete("/breakpoints").ok()
        in_one_function_alone(session, program)
        assert session.printed() == "up\n149\n149\nend\n"


def in_one_function_alone(session: Session, program: Source) -> None:
    """The stop is at the line behind the one that made the change."""
    watch(session, "self.balance", **{"in": {"function": "Account.deposit"}})
    stop = session.resume(snapshot=True)
    assert stop["current_location"]["line"] == program["after"]
    assert stop["stop_reason"] == "breakpoint"
    text = session.get("/snapshot", format="text").raw.decode()
    assert f"self.balance: 100 → 150, by {program}:{program['deposit']} in deposit" in text
    assert session.value("self.balance") == "150"
    session.step()
    (listed,) = session.get("/breakpoints").ok()["breakpoints"]
    assert (listed["hit_count"], listed["in"]["function"]) == (1, "Account.deposit")
    assert listed["change"]["after"] == "150"
    # `fee` is not watched: its change is seen later, and no watched line is blamed for it.
    assert changes(session) == [("5", "12", program["deposit"]), ("150", "149", None)]
    text = session.get("/breakpoints", format="text").raw.decode()
    assert "last 150 → 149 by code that is not watched" in text


@pytest.mark.one_python
def test_the_object_of_a_frame(relay: Client, source: Write, python: str) -> None:
    program = source(BANK)
    with relay.session(python_path=python) as session:
        logs = session.break_at(program, program["logs"], condition="amount == 7")["id"]
        session.launch(program)
        session.delete(f"/breakpoints/{logs}").ok()
        beside = session.break_at(program, program["deposit"], condition="False")
        failing = "(_ for _ in ()).throw(type('Mute', (Exception,), {'__str__': None})())"
        assert "in its frame: Mute" in watch(session, failing, frame_id=0)["message"]
        point = watch(session, "self.balance", frame_id=0)
        assert point["in"]["files"] == [str(program)]
        session.delete(f"/breakpoints/{beside['id']}").ok()
        assert changes(session) == [("5", "12", program["deposit"])]


@pytest.mark.one_python
def test_a_variable_that_has_a_condition(relay: Client, source: Write, python: str) -> None:
    program = source("""
        def count(limit):
            total = 0
            for n in range(limit):
                total += n  # @adds
            return total

        print(count(10))
    """)
    with relay.session(python_path=python) as session:
        scope = {"in": {"function": "count", "file": str(program)}}
        watch(session, "total", condition="total > 30", **scope)
        stop = session.launch(program, snapshot=True)
        (change,) = stop["stop"]["value_changes"]
        assert (change["before"], change["after"]) == ("28", "36")
        assert change["location"]["line"] == program["adds"]
        assert session.value("n") in ("8", "9")


def test_threads_that_change_a_value_at_once(relay: Client, source: Write, python: str) -> None:
    program = source("""
        import threading

        class Box:
            owner = None

        def work():
            for n in range(8):
                Box.owner = "%s %d" % (threading.current_thread().name, n)  # @set
                n += 1

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    """)
    with relay.session(python_path=python) as session:
        scope = {"in": {"function": "work", "file": str(program)}}
        watch(session, "Box.owner", **scope)
        stop, seen = session.launch(program, snapshot=True, wait=30), []
        while stop["status"] == "paused":
            (change,) = stop["stop"]["value_changes"]
            thread = stop["stop"]["thread"]["name"]
            assert change["after"].startswith(f"'{thread} ")
            assert change["location"]["line"] == program["set"]
            seen.append(change["after"])
            stop = session.resume(snapshot=True, wait=30)
        assert len(set(seen)) == len(seen) >= 25


def test_in_an_attached_program_and_nothing_is_left(
    start: Callable[..., Running], relay: Client, python: str
) -> None:
    running = start(
        """
        import time

        class Box:
            count = 0

        def tick(box):
            box.count += 1  # @tick
            time.sleep(0.005)

        box = Box()
        print("up", flush=True)
        while True:
            tick(box)
        """,
        python=python,
    )
    with relay.session() as session:
        session.post("/attach", {"pid": running.pid, "connect_timeout": 30}).ok()
        scope = {"in": {"function": "tick", "file": str(running.program)}}
        watch(session, "box.count", **scope)
        eventually(lambda: session.status()["status"] == "paused")
        (change,) = session.get("/snapshot").ok()["stop"]["value_changes"]
        assert int(change["after"]) == int(change["before"]) + 1
        assert change["location"]["line"] == running.program["tick"]
        session.resume(wait=0)
        # The thread goes on to change the value, and stops no more.
        assert session.post("/detach").ok()["residue"] is None
    assert running.alive


def test_a_program_that_monitors_itself(relay: Client, source: Write, python: str) -> None:
    program = source("""
        import sys

        for tool in range(6) if hasattr(sys, "monitoring") else ():
            if sys.monitoring.get_tool(tool) is None:
                sys.monitoring.use_tool_id(tool, "its own")
        total = 0  # @here
        total += 1
        print(total)
    """)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["here"])
        session.launch(program)
        point = watch(session, "total", **{"in": {"files": [str(program)]}})
        if version_of(python) < (3, 12):
            assert point["verified"] is True
        else:
            assert point["verified"] is False
            assert "are taken: " in point["message"]
            assert "4 (its own), 5 (its own)" in point["message"]
            assert session.resume()["status"] == "terminated"


def test_beside_a_breakpoint_and_a_step(relay: Client, source: Write, python: str) -> None:
    """All of them need a number of `sys.monitoring`, from 3.12 on."""
    program = source("""
        def fails(total):
            total += 1
            raise ValueError(total)  # @raise

        def main(total):
            try:
                fails(total)  # @call
            except ValueError:  # @handler
                total = 5  # @change
            return total  # @after

        main(1)
    """)
    with relay.session(python_path=python) as session:
        watch(session, "total", **{"in": {"function": "main", "file": str(program)}})
        session.break_at(program, program["raise"])
        stop = session.launch(program)
        assert stop["current_location"]["line"] == program["raise"]
        stop = session.step("over")
        if stop["current_location"]["line"] == program["call"]:  # up to 3.11
            stop = session.step("over")
        assert stop["current_location"]["line"] == program["handler"]
        assert stop["exception"]["type"] == "ValueError"
        assert changes(session) == [("1", "5", program["change"])]


@pytest.mark.one_python
def test_what_cannot_be_watched(relay: Client, source: Write, python: str) -> None:
    program = source(BANK)
    with relay.session(python_path=python) as session:
        files = {"files": [str(program)]}
        for bad in (
            {"watch": "self.balance"},
            {"watch": "1 +", "in": files},
            {"watch": "x", "in": {"function": "nothing", "file": str(program)}},
            {"watch": "x", "in": files, "line": 3},
            {"watch": "x", "frame_id": 0},
            {"line": 3, "file": str(program), "in": files},
        ):
            session.post("/breakpoints", {"breakpoints": [bad]}).refused("INVALID_REQUEST", 400)
        assert session.get("/breakpoints").ok()["breakpoints"] == []
