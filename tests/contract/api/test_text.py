"""Text for a language model or a person, from every kind of call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.client import Answer, Client, Session
from tests.kit.source import Source

PROGRAM = """
    def total(prices):
        amount = 0
        for price in prices:
            amount += price  # @here
        return amount

    print("total:", total([5, -3, 4]))
"""
TEXT = {"Accept": "text/plain"}


def said(answer: Answer, status: int = 200) -> str:
    assert answer.status == status, answer.raw.decode()
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.headers["X-Request-ID"]
    return answer.raw.decode()


@pytest.fixture
def stopped(relay: Client, source: Callable[..., Source]) -> Any:
    program = source(PROGRAM)
    with relay.session() as session:
        session.break_at(program, program["here"], condition="price < 0")
        answer = session.post("/launch", {"script": str(program), "wait": 20}, headers={**TEXT})
        yield session, program, said(answer)


def test_a_launch_that_stops_shows_the_place_and_the_values(
    stopped: tuple[Session, Source, str],
) -> None:
    _, program, shown = stopped
    lines = shown.splitlines()
    assert lines[0] == "paused (breakpoint, stop 1)"
    assert f"{program}:{program['here']} in total" in lines
    assert any(line.startswith(f"→ {program['here']}") and "+= price" in line for line in lines)
    assert "price: int = -3" in lines
    assert "hit: bp_1" in lines


def test_a_step_with_its_changes_is_short(stopped: tuple[Session, Source, str]) -> None:
    session, program, _ = stopped
    shown = said(session.post("/step-over", headers=TEXT))
    assert len(shown) <= 600
    assert "amount: int = 2  ← was 5" in shown.splitlines()
    assert f"→ {program['here'] - 1}" in shown


def test_every_read_of_a_stopped_program(stopped: tuple[Session, Source, str]) -> None:
    session, program, _ = stopped
    stack = said(session.get("/stacktrace", format="text")).splitlines()
    assert stack[1] == f"#0 total at {program}:{program['here']}"
    assert any(line.startswith("→") for line in stack)
    assert "price: int = -3" in said(session.get("/frames/0/variables", format="text"))
    assert "Locals  [3 variables]  (ref " in said(session.get("/scopes", format="text"))
    assert "→ 1 MainThread: paused" in said(session.get("/threads", format="text"))
    assert "bp_1" in said(session.get("/breakpoints", format="text"))
    assert "paused (breakpoint" in said(session.get("/status", format="text"))
    assert session.id in said(session.get(format="text"))
    assert "stopped: breakpoint bp_1, stop 1" in said(session.get("/events", format="text"))
    evaluated = session.post("/evaluate", {"expression": "amount + price"}, headers=TEXT)
    assert said(evaluated) == "int = 2\n"
    raised = session.post("/evaluate", {"expression": "1 / 0"}, headers=TEXT)
    assert said(raised).startswith("raised ZeroDivisionError: division by zero\n")
    assert "terminated (exit code 0" in said(session.post("/continue", {"wait": 20}, headers=TEXT))
    assert "stdout:\n| total: 6\n" in said(session.get("/output", format="text"))


@pytest.mark.parametrize("path", ["/health", "/info", "/config", "/sessions"])
def test_reads_of_the_relay(relay: Client, path: str) -> None:
    assert not said(relay.get(path, format="text")).startswith("{")


def test_errors_of_both_sides(relay: Client) -> None:
    with relay.session() as session:
        unknown = said(relay.call("GET", "/nowhere", headers=TEXT), 404)
        assert unknown.startswith("error NOT_FOUND: ")
        assert "\nnext: " in unknown
        wrong = said(session.post("/launch", {"script": 7, "x": 1}, headers=TEXT), 400)
        assert "script: expected" in wrong
        assert "x: unknown field" in wrong
        early = said(session.post("/step-over", headers=TEXT), 409)
        assert early.startswith("error INVALID_SESSION_STATE: ")
        missing = said(session.post("/launch", {"script": "/no/such.py"}, headers=TEXT), 400)
        assert missing.startswith("error LAUNCH_SCRIPT_NOT_FOUND: ")
        assert "\nnext: " in missing


def test_markdown_fences_the_source(relay: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    with relay.session() as session:
        session.break_at(program, program["here"])
        body = {"script": str(program), "wait": 20}
        answer = session.post("/launch", body, headers={"Accept": "text/markdown"})
        assert answer.headers["Content-Type"] == "text/markdown; charset=utf-8"
        assert "\n```python\n" in answer.raw.decode()


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("*/*", "application/json"),
        ("application/json, text/plain", "application/json"),
        ("text/plain, application/json", "text/plain"),
        ("text/plain;q=0.5, application/json", "application/json"),
        ("text/plain; q=0", "application/json"),
        ("text/html, */*;q=0.8", "application/json"),
        ("image/png", "application/json"),
        ("text/*", "text/plain"),
        ("TEXT/MARKDOWN;q=nonsense, text/plain;q=0.1", "text/plain"),
        (",;q=,", "application/json"),
    ],
)
def test_what_accept_decides(relay: Client, accept: str, kind: str) -> None:
    answer = relay.call("GET", "/health", headers={"Accept": accept})
    assert answer.headers["Content-Type"] == f"{kind}; charset=utf-8"


def test_the_parameter_wins_and_is_checked(relay: Client) -> None:
    assert relay.call("GET", "/health?format=json", headers=TEXT).ok()["status"] == "healthy"
    error = relay.get("/health", format="yaml").refused("INVALID_PARAMETER", 400)
    assert "format=text" in error["details"]["suggestion"]


def test_large_and_strange_values_stay_short(relay: Client, source: Callable[..., Source]) -> None:
    program = source(
        """
        text = "x" * 1_000_000
        wide = "ä\\ud800\\x1b[31m"
        many = list(range(100_000))
        here = 1  # @here
        """
    )
    with relay.session() as session:
        session.break_at(program, program["here"])
        shown = said(session.post("/launch", {"script": str(program), "wait": 20}, headers=TEXT))
        assert len(shown) < 4000
        assert "\x1b" not in shown
        assert "many: list = " in shown
        # The relay cuts a value that has parts, and a reference leads to them; a text has no parts.
        shown = said(session.post("/evaluate?format=text", {"expression": "many"}))
        assert len(shown) < 470
        assert "[100000 items]  (ref " in shown
        assert len(said(session.post("/evaluate?format=text", {"expression": "text"}))) > 4000
        shown = said(session.post("/evaluate?format=text", {"expression": "many[-1] / 0"}))
        assert shown.splitlines() == ["raised ZeroDivisionError: division by zero"]


def test_a_long_step_is_short_all_the_same(relay: Client, source: Callable[..., Source]) -> None:
    words = "first and 'a text of some length' and " * 5
    program = source(
        f"""
        def main():
            first = 1  # @first
            x = ({words} [1] * 90)
            y = [{words} n for n in x]
            z = ({words} 0)
            w = ({words} 0)

        main()
        """,
        name="packages/of/some/service/that_lies_deep/in_the_project/program.py",
    )
    with relay.session() as session:
        session.break_at(program, program["first"])
        session.launch(program)
        for _ in range(3):
            shown = said(session.post("/step-over", headers=TEXT))
            assert f"{program}:" in shown
            assert "→" in shown
            assert len(shown) <= 600, shown


def test_what_a_reader_must_not_have_to_guess(relay: Client, source: Callable[..., Source]) -> None:
    """Which thread, what came in with a call, who drives, whatever is left out."""
    program = source("""
        import threading

        def work(item, factor=2):
            made = item * factor  # @made
            return made

        def main():
            work(5)  # @call

        threading.Thread(target=main, name="Worker-7").start()
    """)
    with relay.session() as session:
        session.break_at(program, program["call"])
        launched = {"script": str(program), "wait": 20}
        assert ", thread 2 Worker-7" in said(session.post("/launch", launched, headers=TEXT))
        entered = said(session.post("/step-into", headers=TEXT)).splitlines()
        assert {"item: int = 5", "factor: int = 2"} <= set(entered)
        assert not any("unchanged" in line for line in entered), "they were never shown before"
        session.post("/lease", {"holder": "ann", "ttl": 60}).ok()
        assert "\ndriven by ann until " in said(session.get(format="text"))
        past = said(session.get("/history", format="text")).splitlines()
        assert "→ made = item * factor  # @made" in past
        assert "no asyncio tasks" in said(session.get("/tasks", format="text"))
        assert f"__main__ {program}" in said(session.get("/modules", format="text", limit=1000))


def test_what_is_cut_is_more_than_what_says_so(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source("""
        import os
        almost = "x" * 110
        much = "y" * 300
        import sys
        here = 1  # @here
    """)
    with relay.session() as session:
        session.launch(program, stop_on_entry=True)
        body = {"file": str(program), "line": program["here"]}
        shown = said(session.post("/run-to", body, headers=TEXT)).splitlines()
        assert f"almost: str = '{'x' * 110}'  ← new" in shown
        assert any(line.startswith(f"much: str = '{'y' * 99}…  [300 char") for line in shown)
        # What has just come is told with its value, not once more among the others.
        assert any(line.startswith("sys: module = <module 'sys'") for line in shown)
        assert "(and os, sys)" not in shown
