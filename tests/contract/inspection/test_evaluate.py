"""Evaluating in a stopped frame: values, statements, refusals, and what takes too long."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.kit.client import Client, Session
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

PROGRAM = """
    import time

    LIMIT = 10

    def spin():
        while True:
            pass

    def fail():
        raise KeyError("missing")

    def work(a, b):
        c = a + b
        return c  # @here

    answer = work(1, 2)  # @module
    print("answer", answer)
"""


def ask(session: Session, expression: str, **fields: object) -> dict[str, object]:
    answer = session.post("/evaluate", {"expression": expression, **fields}).ok()
    assert isinstance(answer, dict)
    return answer


def values_and_statements(session: Session) -> None:
    assert ask(session, "c * LIMIT") == {
        "result": "30",
        "type": "int",
        "variables_reference": 0,
        "named_variables": 0,
        "indexed_variables": 0,
        "presentation_hint": None,
        "truncated": False,
        "error": None,
        "error_details": None,
    }
    assert session.value("[n * c for n in (a, b)]") == "[3, 6]"
    assert session.value("any(n == c for n in (1, 2, 3))") == "True"
    assert session.value("  c  ") == "3"
    opened = ask(session, "{'k': [c]}")
    page = session.get(f"/variables/{opened['variables_reference']}").ok()
    assert "'k'" in [variable["name"] for variable in page["variables"]]
    # Statements: no value; what they assign and print stays.
    statement = ask(session, "c = 40\nprint('said', c)")
    assert (statement["result"], statement["error"]) == (None, None)
    assert session.value("c") == "40"
    assert "said 40\n" in session.printed("stdout")
    # In the frame that was named.
    assert session.value("answer if 'answer' in globals() else 'none'", frame_id=1) == "'none'"
    session.value("LIMIT", context="watch")
    session.value("LIMIT", context="hover")


def what_does_not_parse_is_refused(session: Session) -> None:
    for expression in ("c +", "for", "(c", "c c"):
        error = session.post("/evaluate", {"expression": expression}).refused("EVALUATE_ERROR", 400)
        assert "SyntaxError" in error["details"]["error_message"]
    for context in ("watch", "hover"):
        error = session.post("/evaluate", {"expression": "c = 5", "context": context}).refused(
            "EVALUATE_ERROR", 400
        )
        assert "repl" in error["details"]["suggestion"]
    assert session.value("c") == "3"
    session.post("/evaluate", {"expression": ""}).refused("INVALID_REQUEST", 400)


def what_raises_is_an_answer(session: Session) -> None:
    answer = ask(session, "fail()")
    assert (answer["result"], answer["type"]) == (None, None)
    assert answer["error"] == "KeyError: 'missing'"
    details = answer["error_details"]
    assert isinstance(details, dict)
    assert (details["type"], details["message"]) == ("KeyError", "'missing'")
    assert 'raise KeyError("missing")' in details["traceback"]
    assert "debugpy" not in details["traceback"]
    assert "<frozen relay" not in details["traceback"]
    assert ask(session, "1 / 0")["error"] == "ZeroDivisionError: division by zero"
    assert str(ask(session, "raise ValueError('said')")["error"]) == "ValueError: said"


def test_what_exits_or_takes_too_long_ends_nothing(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(PROGRAM)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["here"])
        session.launch(program)
        for expression in ("exit()", "exit(3)", "raise SystemExit(4)", "quit()"):
            answer = ask(session, expression)
            assert str(answer["error"]).startswith("SystemExit"), expression
            assert isinstance(answer["error_details"], dict)
            assert answer["error_details"]["type"] == "SystemExit"
            assert session.value("c") == "3"
            assert session.status()["status"] == "paused"
        for expression in (
            "spin()",
            "while True: pass",
            "time.sleep(1000)",
            "[spin() for _ in (1,)]",
        ):
            before = time.monotonic()
            body = {"expression": expression, "timeout": 0.5}
            error = session.post("/evaluate", body).refused("DEBUGPY_TIMEOUT", 504)
            assert 0.5 <= time.monotonic() - before < 5, expression
            assert error["details"]["evaluating"] is False
            assert "0.5" in error["message"]
            # As if nothing had been: same place, same values.
            assert session.value("c") == "3"
            assert session.line() == program["here"]
        # And on to the end.
        assert session.step("out")["return_value"] == {"type": "int", "value": "3"}
        assert session.resume()["exit_code"] == 0
        assert session.printed() == "answer 3\n"


def test_expressions_in_a_stopped_frame(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(PROGRAM)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["here"])
        assert session.launch(program)["stop_reason"] == "breakpoint"
        what_does_not_parse_is_refused(session)
        what_raises_is_an_answer(session)
        a_huge_result_is_cut_and_says_so(session)
        lone_surrogates_survive(session)
        a_slow_repr_is_interrupted_too(session)
        values_and_statements(session)  # last: it assigns


def test_an_interrupt_never_strikes_the_program(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source("""
        import signal, time

        def shut_down(number, frame):
            print("shutting down", flush=True)
            raise SystemExit(9)

        signal.signal(signal.SIGINT, shut_down)

        def work():
            return 1  # @here

        for n in range(200_000):
            pass
        work()
        for n in range(200_000):
            pass
        print("through")
    """)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["here"])
        session.launch(program)
        for _ in range(3):
            session.post("/evaluate", {"expression": "time.sleep(99)", "timeout": 0.1}).refused(
                "DEBUGPY_TIMEOUT", 504
            )
        assert session.resume()["exit_code"] == 0
        assert session.printed() == "through\n"


def a_huge_result_is_cut_and_says_so(session: Session) -> None:
    cut = ask(session, "'x' * 5_000_000")
    assert cut["truncated"] is True
    assert isinstance(cut["result"], str)
    assert 1000 < len(cut["result"]) <= 65536
    assert cut["result"].startswith("'xxx")
    whole = ask(session, "'x' * 1000")
    assert (whole["truncated"], whole["result"]) == (False, repr("x" * 1000))
    assert len(session.value("list(range(3_000_000))")) <= 65536
    assert session.value("c") == "3"


def lone_surrogates_survive(session: Session) -> None:
    assert session.value(r"'a\ud800b'") == r"'a\ud800b'"
    assert session.value(r"c == 3 and '\udcff'") == r"'\udcff'"
    raised = ask(session, r"{}['\ud800']")
    assert "ud800" in str(raised["error"])
    assert session.value("chr(0x1F600)") == "'\U0001f600'"
    assert session.value(r"'nul\0'") == r"'nul\x00'"


def test_many_at_once_are_answered_in_turn(relay: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    with relay.session() as session, ThreadPoolExecutor(10) as pool:
        session.break_at(program, program["here"])
        session.launch(program)
        answers = pool.map(lambda n: session.value(f"c + {n}"), range(20))
        assert list(answers) == [str(3 + n) for n in range(20)]


def a_slow_repr_is_interrupted_too(session: Session) -> None:
    ask(session, "class Slow:\n    def __repr__(self): spin()")
    session.post("/evaluate", {"expression": "Slow()", "timeout": 0.5}).refused(
        "DEBUGPY_TIMEOUT", 504
    )
    assert session.value("c") == "3"
