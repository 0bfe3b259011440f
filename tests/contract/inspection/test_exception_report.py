"""GET …/exception and the stop's own words: whole, bounded, whatever the exception does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.client import Client, Session
from tests.kit.source import Source, version_of

pytestmark = pytest.mark.one_python

Write = Callable[..., Source]

CRASH = """
    class AppError(ValueError):
        pass

    def inner(price):
        raise AppError("negative: %d" % price)  # @raise

    def outer():
        inner(-3)  # @outer

    outer()  # @call
"""


def stopped_at(session: Session, program: Any, choice: str = "uncaught", **fields: Any) -> Any:
    state = session.launch(program, stop_on_exception=choice, **fields)
    assert state["stop_reason"] == "exception", (state, session.printed())
    return session.get("/exception").ok()


def test_what_it_is_and_how_it_came(relay: Client, source: Write, python: str) -> None:
    program = source(CRASH)
    with relay.session(python_path=python) as session:
        told = stopped_at(session, program)
        assert (told["type"], told["full_type_name"]) == ("AppError", "__main__.AppError")
        assert (told["message"], told["break_mode"]) == ("negative: -3", "unhandled")
        assert told["frames"] == [
            {"path": str(program), "line": program["call"], "function": "<module>",
             "text": "outer()  # @call"},
            {"path": str(program), "line": program["outer"], "function": "outer",
             "text": "inner(-3)  # @outer"},
            {"path": str(program), "line": program["raise"], "function": "inner",
             "text": 'raise AppError("negative: %d" % price)  # @raise'},
        ]  # fmt: skip
        lines = told["traceback"].splitlines()
        assert lines[0] == "Traceback (most recent call last):"
        assert lines[1] == f'  File "{program}", line {program["call"]}, in <module>'
        assert lines[-1] == "AppError: negative: -3"
        assert (told["chain"], told["members"], told["notes"]) == ([], [], [])

        body = session.events("stopped")[-1]["body"]
        assert body["text"] == "AppError: negative: -3"
        assert body["exception_info"] == {
            "exception_id": "AppError",
            "description": "negative: -3",
            "break_mode": "unhandled",
            "details": {
                "type_name": "AppError",
                "full_type_name": "__main__.AppError",
                "message": "negative: -3",
                "stack_trace": told["traceback"],
            },
        }
        state = session.get().ok()["exception"]
        assert state["traceback"] == told["traceback"]


def test_causes_and_contexts(relay: Client, source: Write, python: str) -> None:
    program = source(
        """
        def first():
            raise KeyError("first")  # @first
        def second():
            try:
                first()
            except KeyError as error:
                raise OSError("second") from error
        def third():
            try:
                second()
            except OSError:
                [][5]
        def fourth():
            try:
                third()
            except IndexError:
                raise RuntimeError("hidden context") from None
        def fifth(hide):
            try:
                fourth() if hide else third()
            except Exception:
                raise ValueError("top")
        import threading
        hides = threading.Thread(target=fifth, args=(True,))
        hides.start()
        hides.join()
        fifth(False)
        """
    )
    with relay.session(python_path=python) as session:
        told = stopped_at(session, program)
        assert [one["message"] for one in told["chain"]] == ["hidden context"]
        assert told["chain_truncated"] is False
        assert session.resume()["stop_reason"] == "exception"
        told = session.get("/exception").ok()
        chain = [(one["relation"], one["type"], one["message"]) for one in told["chain"]]
        assert chain == [
            ("context", "IndexError", "list index out of range"),
            ("context", "OSError", "second"),
            ("cause", "KeyError", "'first'"),
        ]
        assert told["chain"][-1]["frames"][-1]["line"] == program["first"]
        assert told["chain"][-1]["traceback"].startswith("Traceback (most recent call last):\n")
        text = told["traceback"]
        assert text.startswith("Traceback (most recent call last):\n")
        places = [text.index(words) for words in ("'first'", "direct cause", "OSError: second")]
        places += [text.index("During handling", places[-1]), text.index("ValueError: top")]
        assert places == sorted(places)


def test_chains_in_a_circle_and_without_end(relay: Client, source: Write, python: str) -> None:
    program = source(
        """
        import threading
        def endless():
            first = last = ValueError(0)
            for n in range(1, 5000):
                last.__context__ = ValueError(n)
                last = last.__context__
            raise first
        thread = threading.Thread(target=endless)
        thread.start()
        thread.join()
        first, second = ValueError("a"), ValueError("b")
        first.__cause__, second.__context__ = second, first
        raise first
        """
    )
    with relay.session(python_path=python) as session:
        told = stopped_at(session, program)
        assert [one["message"] for one in told["chain"]] == [str(n) for n in range(1, 21)]
        assert told["chain_truncated"] is True
        assert session.resume()["stop_reason"] == "exception"
        told = session.get("/exception").ok()
        assert [one["message"] for one in told["chain"]] == ["b"]
        assert told["chain_truncated"] is False


def test_a_deep_stack_is_cut_in_the_middle(relay: Client, source: Write, python: str) -> None:
    program = source("def down(n):\n    return down(n - 1) if n else [][1]\ndown(700)\n")
    with relay.session(python_path=python) as session:
        told = stopped_at(session, program)
        assert len(told["frames"]) == 100
        assert told["frames_omitted"] == 602
        assert told["frames"][0]["function"] == "<module>"
        assert f"[{told['frames_omitted']} more frames]" in told["traceback"]


def test_notes_and_groups(relay: Client, source: Write, python: str) -> None:
    if version_of(python) < (3, 11):
        pytest.skip("notes and groups came with Python 3.11")
    program = source(
        """
        def made(error):
            try:
                raise error
            except Exception as raised:
                return raised
        inner = ExceptionGroup("inner", [made(KeyError("k"))])
        many = [ValueError(n) for n in range(30)]
        error = ExceptionGroup("several", [made(OSError("disk full")), inner, *many])
        error.add_note("look at the disk")
        error.add_note("and the keys")
        raise error
        """
    )
    with relay.session(python_path=python) as session:
        told = stopped_at(session, program)
        assert told["message"] == "several (32 sub-exceptions)"
        assert told["notes"] == ["look at the disk", "and the keys"]
        assert (len(told["members"]), told["members_omitted"]) == (10, 22)
        first, second = told["members"][:2]
        assert (first["type"], first["message"]) == ("OSError", "disk full")
        assert first["frames"][0]["function"] == "made"
        assert second["members"][0]["type"] == "KeyError"
        assert "  | OSError: disk full" in told["traceback"]
        assert "look at the disk" in told["traceback"]


HOSTILE = """
    import sys, time

    class Meta(type):
        def __getattribute__(cls, name):
            raise RuntimeError("a metaclass that refuses " + name)

    class Words(str):
        def __getitem__(self, at):
            raise SystemExit(9)
        def __len__(self):
            raise SystemExit(9)
        encode = isascii = __iter__ = __getitem__

    class Raising(Exception):
        def __str__(self):
            raise SystemExit(3)

    class Slow(Exception):
        def __str__(self):
            while True:
                pass

    class Sleeping(Exception):
        def __str__(self):
            time.sleep(60)

    class Stubborn(Exception):
        def __str__(self):
            while True:
                try:
                    while True:
                        pass
                except BaseException:
                    return "let go"

    class Large(Exception):
        def __str__(self):
            return "x" * 50_000_000

    class Lying(Exception):
        __cause__ = __context__ = property(lambda self: sys.exit(4))
        __notes__ = property(lambda self: sys.exit(4))
        def __str__(self):
            return Words("lies")

    class NoText(Exception):
        def __str__(self):
            return 5

    class Odd(Exception):
        def __str__(self):
            return "\\ud800 \\x00 and a tail"

    class Bad:
        def __repr__(self):
            while True:
                pass

    bad = Bad() if "bad" in sys.argv else None
    for name in sys.argv[1:]:
        kind = getattr(sys.modules["__main__"], name, None)
        try:
            if kind:
                raise kind("words")
        except Exception:
            pass
"""


# Classes of exceptions, and the message that the report shows for each.
WORDS = {
    "Raising": "<no message: str() raised SystemExit>",
    "Slow": "<no message: str() took too long>",
    "Lying": "lies",
    "Large": "x" * 16384,
    "Sleeping": "<no message: str() took too long>",
    "Stubborn": "let go",
    "NoText": "<no message: str() raised TypeError>",
    "Odd": "\\ud800 \x00 and a tail",
}


@pytest.mark.parametrize("kinds", [[*WORDS][:4], [*WORDS][4:]], ids="-".join)
def test_hostile_words_neither_hang_nor_break_it(
    relay: Client, source: Write, python: str, kinds: list[str]
) -> None:
    program = source(HOSTILE)
    with relay.session(python_path=python) as session:
        state = session.launch(program, stop_on_exception="raised", args=kinds)
        for kind in kinds:
            assert state["stop_reason"] == "exception", (kind, session.printed())
            answer = session.get("/exception")
            told = answer.ok()
            assert (told["type"], told["message"]) == (kind, WORDS[kind])
            assert len(answer.raw) < 200_000
            assert told["frames"][-1]["text"] == 'raise kind("words")'
            assert session.get().ok()["exception"]["message"] == WORDS[kind]
            assert session.value("1 + 1") == "2"
            assert session.locals()["kind"]
            state = session.resume()
        assert state["exit_code"] == 0


def test_beside_a_local_that_hangs(relay: Client, source: Write, python: str) -> None:
    with relay.session(python_path=python) as session:
        told = stopped_at(session, source(HOSTILE), "raised", args=["Raising", "bad"])
        assert told["type"] == "Raising"
        assert told["frames"]


def test_no_exception_here(relay: Client, source: Write, python: str) -> None:
    program = source("x = 1\nint('abc')\n")
    with relay.session(python_path=python) as session:
        session.get("/exception").refused("INVALID_SESSION_STATE", 409)
        session.break_at(program, 1)
        session.launch(program)
        error = session.get("/exception").refused("INVALID_SESSION_STATE", 409)
        assert "breakpoint" in error["message"]
        assert "exception-breakpoints" in error["details"]["suggestion"]
        assert session.resume()["stop_reason"] == "exception"
        told = session.get("/exception").ok()
        assert (told["type"], told["full_type_name"]) == ("ValueError", "builtins.ValueError")
        assert told["message"] == "invalid literal for int() with base 10: 'abc'"
        session.get("/exception", thread_id=99).refused("THREAD_NOT_FOUND", 404)


def test_of_another_thread_and_by_its_number(relay: Client, source: Write, python: str) -> None:
    program = source(
        """
        import threading
        def fail():
            raise ValueError("in a thread")
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
        """
    )
    with relay.session(python_path=python) as session:
        told = stopped_at(session, program)
        assert told["message"] == "in a thread"
        assert told["thread_id"] == session.status()["stopped_thread_id"]
        assert [f["function"] for f in told["frames"]][-1] == "fail"
        others = [t["id"] for t in session.get("/threads").ok()["threads"] if not t["is_current"]]
        session.get("/exception", thread_id=others[0]).refused("INVALID_SESSION_STATE", 409)


def test_without_the_probe(relay: Client, source: Write) -> None:
    program = source(CRASH)
    with relay.session() as session:
        told = stopped_at(session, program, env={"DEBUG_RELAY_PROBE": "off"})
        assert (told["type"], told["message"]) == ("AppError", "negative: -3")
        lines = told["traceback"].splitlines()
        assert lines[0] == "Traceback (most recent call last):"
        assert lines[1].endswith("in <module>")
        assert lines[-1] == "AppError: negative: -3"
