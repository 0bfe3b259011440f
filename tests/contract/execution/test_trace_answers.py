"""Traces that answer questions: who changed this, what was returned, what were the last rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.relay import eventually
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

Write = Callable[..., Source]
LEDGER = """
    class Account:
        def __init__(self, balance):
            self.balance = balance  # @made

        def deposit(self, amount):
            self.balance += amount  # @deposit
            return self.balance

        def audit(self):
            if self.balance > 100:
                self.balance -= 1  # @steals
            return None

    def price(n):
        try:
            return 100 / n
        except ZeroDivisionError:
            raise ValueError(n)

    def work(account):
        for n in range(5):
            account.deposit(50)  # @loop
            account.audit()
        return account.balance

    def total(rows):
        return sum(row for row in rows)

    def rows(n):
        for row in range(n):
            yield row

    def empty(n):
        while n:
            n -= 1

    account = Account(0)
    print(work(account))
    print(total(rows(3)), empty(3), empty(2))
    for n in (4, 0):
        try:
            price(n)
        except ValueError:
            pass
"""


def run(relay: Client, program: Source, python: str, **spec: Any) -> Any:
    body = {"script": str(program), "python_path": python, "trace": spec}
    return relay.post("/run", body).ok()["trace"]


def test_who_changes_a_value(relay: Client, source: Write, python: str) -> None:
    program = source(LEDGER)
    answer = run(
        relay, program, python, step={"files": [str(program)]}, capture=["self.balance"],
        when="changed",
    )  # fmt: skip
    changes = [
        (row["was"].get("self.balance"), row["values"]["self.balance"], row["after"]["line"])
        for row in answer["rows"]
        if row["was"]
    ]
    deposit, steals = program["deposit"], program["steals"]
    assert changes[:4] == [
        ("0", "50", deposit), ("50", "100", deposit), ("100", "150", deposit),
        ("150", "149", steals),
    ]  # fmt: skip
    assert answer["total"] == len(answer["rows"]) < 12
    # Most lines have no self: that is told once.
    assert len(answer["warnings"]) == 1


RESET = """
    class Counter:
        def __init__(self): self.total = 0  # @made
        def note(self, n):
            self.total += n  # @adds
            if self.total > 3:
                self.total = 0  # @resets

    def main(counter, other):
        for n in (2, 2, 1):
            counter.note(n)
            other.note(1)
        counter.total = 9  # @foreign
        n = 1  # @next
        return n

    main(Counter(), Counter())
"""


def test_the_line_that_changed_it_is_the_one_that_is_named(
    relay: Client, source: Write, python: str
) -> None:
    """Also the last line of a function, and one where the object has another name; and another
    object of the same name has values of its own.
    """
    program = source(RESET)
    answer = run(
        relay, program, python, step={"files": [str(program)]}, capture=["self.total"],
        when="changed", until="self.total > 99",
    )  # fmt: skip
    assert [warning.partition(" raised")[0][-7:] for warning in answer["warnings"]] == [
        "f.total",
        ": until",
    ]
    lines = {program[name]: name for name in ("adds", "resets", "foreign")}
    told = [
        (row["was"]["self.total"], row["values"]["self.total"], lines[row["after"]["line"]])
        for row in answer["rows"]
        if row["was"]
    ]
    assert ("4", "0", "resets") in told
    assert [change[:2] for change in told if change[2] == "adds"] == [
        ("0", "2"), ("0", "1"), ("2", "4"), ("1", "2"), ("0", "1"), ("2", "3"),
    ]  # fmt: skip
    # Of the two counters the last one is known by another name, and that is not the changed one.
    assert not [change for change in told if change[2] == "foreign"]
    text = RESET.replace("for n in (2, 2, 1)", "for n in ()").replace(
        "counter.total", "other.total"
    )
    program = source(text, name="foreign.py")
    rows = run(
        relay, program, python, step={"files": [str(program)]}, capture=["self.total"],
        when="changed",
    )["rows"]  # fmt: skip
    (change,) = [row for row in rows if row["was"]]
    assert change["values"] == {"self.total": "9"}
    assert (change["line"], change["after"]["line"]) == (program["next"], program["foreign"])


def test_places_by_text_and_function_with_labels(relay: Client, source: Write, python: str) -> None:
    program = source(LEDGER)
    at = [
        {"file": str(program), "text": "account.audit()", "label": "before the audit"},
        {"function": "Account.deposit", "label": "entry", "capture": ["amount"]},
        {"file": str(program), "function": "price", "capture": ["n"]},
    ]
    rows = run(relay, program, python, at=at)["rows"]
    entries = [row for row in rows if row["label"] == "entry"]
    assert {row["line"] for row in entries} == {program["deposit"]}
    assert [row["values"] for row in entries] == [{"amount": "50"}] * 5
    assert sum(row["label"] == "before the audit" for row in rows) == 5
    assert [row["values"]["n"] for row in rows if row["function"] == "price"] == ["4", "0"]
    # A function's row is where a call begins: not each time that a loop comes back to its first
    # line, nor in an expression on that line that has a scope of its own.
    names = ["work", "total", "rows", "empty"]
    at = [{"function": name} for name in names]
    rows = run(relay, program, python, at=at)["rows"]
    assert [row["function"] for row in rows] == [*names, "empty"]
    body = {"script": str(program), "trace": {"at": [{"function": "nothing"}]}}
    error = relay.post("/run", body).refused("BREAKPOINT_INVALID_LINE")
    assert "Account.deposit" in error["details"]["functions"]


def test_what_functions_return(relay: Client, source: Write, python: str) -> None:
    program = source(LEDGER)
    at = [{"function": name} for name in ("Account.audit", "price", "work")]
    rows = run(relay, program, python, at=at, returns=True)["rows"]
    returned = [(row["function"], row["returned"]) for row in rows if row["returned"]]
    # `price` raises the second time, which is no return.
    assert returned == [*[("audit", "None")] * 5, ("work", "247"), ("price", "25.0")]


def test_the_last_rows_in_text(relay: Client, source: Write) -> None:
    program = source("""
        for n in range(1000):
            square = n * n  # @body
    """)
    spec = {
        "at": [{"file": str(program), "line": program["body"], "capture": ["n"]}],
        "max_rows": 10_000,
        "until": "n == 700",
        "budget": 400,
    }
    body = {"script": str(program), "trace": spec}
    text = relay.post("/run?format=text", body).raw.decode()
    assert "n = 0" in text
    assert "n = 700" in text
    assert "rows in between are left out" in text
    rows = [line for line in text.splitlines() if line.startswith("  #")]
    assert 250 < sum(map(len, rows)) <= 400
    with relay.session() as session:
        session.break_at(program, program["body"], hit_condition="1")
        session.launch(program)
        session.delete("/breakpoints").ok()
        text = session.post("/trace?format=text", spec).raw.decode()
        assert "n = 700" in text
        rows = [line for line in text.splitlines() if line.startswith("  #")]
        assert 250 < sum(map(len, rows)) <= 400


def test_a_trace_in_the_background(relay: Client, source: Write, python: str) -> None:
    program = source("""
        import time
        n = 0
        while True:
            n += 1  # @body
            time.sleep(0.001)
    """)
    with relay.session(python_path=python) as session:
        session.launch(program, wait=0)
        eventually(lambda: session.status()["status"] == "running")
        spot = {"file": str(program), "line": program["body"], "capture": ["n"]}
        begun = session.post("/trace", {"at": [spot], "background": True}).ok()
        assert (begun["status"], begun["ended"]) == ("running", None)
        session.post("/trace", {"at": [spot]}).refused("INVALID_SESSION_STATE")
        text = session.get("/trace?format=text").raw.decode()
        assert f"GET /api/v1/sessions/{session.id}/trace reads rows" in text
        assert "not stopped yet" not in text
        seen: list[int] = []
        cursor = begun["next_cursor"]
        while len(seen) < 50:
            page = session.get("/trace", cursor=cursor).ok()
            seen += [row["seq"] for row in page["rows"]]
            cursor = page["next_cursor"]
            assert session.status()["status"] == "running"
        assert seen == list(range(seen[0], seen[0] + len(seen)))
        ended = session.delete("/trace").ok()
        assert (ended["ended"], ended["status"]) == ("stopped", "running")
        assert ended["total"] >= len(seen)
        # Another one can begin, and this one is over for whoever ends it again.
        assert session.delete("/trace").ok()["ended"] == "stopped"
        session.post("/trace", {"at": [spot], "max_rows": 3, "then": "continue"}).ok()
