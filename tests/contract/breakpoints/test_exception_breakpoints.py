"""Exception breakpoints: filters, types, conditions; one stop for each exception."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.kit.client import Client, Session
from tests.kit.relay import eventually
from tests.kit.source import Source

Write = Callable[..., Source]

TYPES = """
    import json

    class AppError(ValueError):
        pass

    class Deep(AppError):
        pass

    def fail(kind):
        raise kind("words")  # @raise

    def fails():
        for kind in (KeyError, ValueError, AppError, Deep, OSError):
            try:
                try:
                    fail(kind)
                finally:
                    kept = kind
            except Exception:
                pass
        try:
            json.loads("{")
        except ValueError:
            pass
        int("7")

    while True:
        fails()  # @round
"""
# Which types are asked for, and what stops of one round: types, or the file of the library's raise.
ASKED_TYPES = (
    (["KeyError"], ["KeyError"]),
    (["__main__.AppError"], ["AppError", "Deep"]),
    (["builtins.ValueError"], ["ValueError", "AppError", "Deep", "decoder.py"]),
    (["OSError", "Deep"], ["Deep", "OSError"]),
    (["json.decoder.JSONDecodeError", "NoSuch"], ["decoder.py"]),
)


def ask(session: Session, **fields: Any) -> Any:
    return session.post("/exception-breakpoints", fields).ok()


def walk(session: Session, state: Any, show: str = "kind.__name__") -> list[str]:
    """A value at every stop from here to the end; each stop is at an exception."""
    seen = []
    while state["status"] == "paused":
        assert state["stop_reason"] == "exception", state
        seen.append(session.value(show))
        state = session.resume()
    assert state["status"] == "terminated"
    return seen


def test_they_are_set_shown_and_cleared(relay: Client) -> None:
    with relay.session() as session:
        assert session.get("/exception-breakpoints").ok()["filters"] == ["uncaught"]
        answer = ask(session, filters=["raised", "raised"], types=["ValueError", "pkg.Error"])
        assert answer["filters"] == ["raised"]
        assert answer["types"] == ["ValueError", "pkg.Error"]
        assert (answer["condition"], answer["raised_in"]) == (None, None)
        assert answer["unknown_types"] == ["pkg.Error"]
        assert "pkg.Error" in answer["message"]
        assert session.get("/exception-breakpoints").ok() == answer
        # POST replaces; what is left out is at its default.
        assert ask(session, raised_in="all")["filters"] == []
        # What is left out is told as it holds: here for the types, else for the filters.
        for types, left_out in ((["ValueError"], "all"), ([], "user")):
            assert ask(session, types=types)["raised_in"] == left_out
            for said in ("user", "all"):
                answer = ask(session, filters=["raised"], types=types, raised_in=said)
                assert answer["raised_in"] == said
                assert session.get("/exception-breakpoints").ok() == answer
        # What was said for types too is not lost on the way into another session.
        mixed = ask(session, filters=["raised"], types=["ValueError"])
        said = ask(session, types=["ValueError"], raised_in="user")
        exported = session.get("/export").ok()
        assert (mixed["raised_in"], said["raised_in"]) == (None, "user")
        imported = Session(relay, relay.post("/sessions/import", exported).ok(201)["session_id"])
        with imported:
            assert imported.get("/exception-breakpoints").ok() == said
        assert "never" in ask(session, types=["SystemExit"])["message"]
        cleared = session.delete("/exception-breakpoints").ok()
        assert (cleared["filters"], cleared["types"]) == ([], [])


def test_types_stop_at_the_raise_once(relay: Client, source: Write, python: str) -> None:
    program = source(TYPES)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["round"])
        session.launch(program)
        for types, expected in ASKED_TYPES:
            ask(session, types=types)
            seen = []
            while session.resume()["stop_reason"] == "exception":
                body = session.events("stopped")[-1]["body"]
                assert body["exception_info"]["break_mode"] == "always"
                file = Path(body["current_location"]["path"]).name
                is_own = session.line() == program["raise"]
                seen.append(body["exception_info"]["exception_id"] if is_own else file)
            assert seen == expected, types


# Exceptions that a library raises for itself and for the program, and one of the program's own.
RAISED_IN = """
    import json, os

    def library():
        os.makedirs(os.getcwd(), exist_ok=True)  # raises FileExistsError, and handles it

    def text():
        json.loads("{")  # @loads

    def own():
        raise FileExistsError("own")  # @own

    while True:
        for work in (library, text, own):  # @round
            try:
                work()
            except (ValueError, OSError):
                pass
"""


def test_raised_in_user_and_in_all(relay: Client, source: Write, python: str) -> None:
    """An exception of a library stops the program where it reaches the program's own code."""
    program = source(RAISED_IN)
    own = ["loads", "own"]
    everywhere = ["os.py", "decoder.py", "own"]
    types = ["FileExistsError", "ValueError"]
    asked: tuple[tuple[dict[str, Any], list[str]], ...] = (
        ({"filters": ["raised"], "raised_in": "user"}, own),
        ({"filters": ["raised"], "raised_in": "all"}, everywhere),
        ({"types": types, "raised_in": "user"}, own),
        ({"types": types, "raised_in": "all"}, everywhere),
        ({"types": types}, everywhere),
    )
    marks = {line: mark for mark, line in program.marks.items()}
    with relay.session(python_path=python) as session:
        session.break_at(program, program["round"], hit_condition="% 4")
        session.launch(program)
        for fields, expected in asked:
            ask(session, **fields)
            places = []
            while (state := session.resume())["stop_reason"] == "exception":
                here = state["current_location"]
                is_own = here["path"] == str(program)
                places.append(marks[here["line"]] if is_own else Path(here["path"]).name)
            # How often a library raises and handles what it needs is its own affair.
            assert list(dict.fromkeys(places)) == expected, fields
            assert places.count("loads") + places.count("decoder.py") == 1


CONDITIONS = """
    def check(n):
        if n % 2:
            raise ValueError(n)

    def checks():
        for n in range(8):
            try:
                check(n)
            except ValueError:
                pass

    def fail(n):
        raise KeyError(n)

    checks()
    checks()  # @again
    fail(3)  # @fails
"""


def test_conditions(relay: Client, source: Write, python: str) -> None:
    """They see the exception and its frame. One that raises is reported once and never stops."""
    program = source(CONDITIONS)
    of_check = "type(exc) is ValueError and exc.args == (n,) and any(n > x for x in [3])"
    with relay.session(python_path=python) as session:
        for mark in ("again", "fails"):
            session.break_at(program, program[mark])
        ask(session, filters=["raised"], condition=of_check)
        state, seen = session.launch(program), []
        while state["stop_reason"] == "exception":
            seen.append(session.value("n"))
            state = session.resume()
        assert seen == ["5", "7"]
        ask(session, filters=["raised"], condition="exc.no_such")
        assert session.resume()["current_location"]["line"] == program["fails"]
        assert session.printed("console").count("AttributeError") == 1
        assert "no_such" in session.get("/exception-breakpoints").ok()["message"]
        # A condition holds for what nothing catches, too.
        ask(session, filters=["uncaught"], condition="n == 3 and isinstance(exc, KeyError)")
        assert session.resume()["stop_reason"] == "exception"
        session.resume()
        session.delete("/breakpoints").ok()
        ask(session, filters=["uncaught"], condition="n == 4 and isinstance(exc, KeyError)")
        assert session.post("/restart", {"wait": 20}).ok()["status"] == "terminated"


def test_bad_ones_are_refused_and_change_nothing(relay: Client) -> None:
    with relay.session() as session:
        path = "/exception-breakpoints"
        error = session.post(path, {"filters": ["raised"], "condition": "exc ="}).refused(
            "BREAKPOINT_INVALID_CONDITION", 400
        )
        assert error["details"]["condition"] == "exc ="
        error = session.post(path, {"types": ["ok.Error", "no name"]}).refused(
            "INVALID_REQUEST", 400
        )
        assert error["details"]["errors"][0]["field"] == "types[1]"
        session.post(path, {"filters": ["caught"]}).refused("INVALID_REQUEST", 400)
        assert session.get(path).ok()["filters"] == ["uncaught"]


def test_changed_while_the_program_runs(relay: Client, source: Write, python: str) -> None:
    program = source(
        """
        import time
        def once(n):
            try:
                raise ValueError(n)
            except ValueError:
                pass
        n = 0
        while n < 100_000:
            once(n)
            n += 1
            time.sleep(0.002)
        """
    )
    with relay.session(python_path=python) as session:
        session.launch(program, wait=0.1)
        assert session.status()["status"] == "running"
        cursor = session.get("/events").ok()["next_cursor"]
        ask(session, filters=["raised"])
        assert session.events("stopped", cursor=cursor, timeout=20)
        assert session.status()["stop_reason"] == "exception"
        assert session.resume()["stop_reason"] == "exception"
        session.delete("/exception-breakpoints").ok()
        assert session.resume(wait=0.3)["status"] == "running"
        known = ask(session, types=["ValueError", "not_there.Error"])
        assert known["unknown_types"] == ["not_there.Error"]
        eventually(lambda: session.status()["status"] == "paused")
        assert session.status()["stop_reason"] == "exception"


def test_types_that_are_not_there_yet(relay: Client, source: Write, python: str) -> None:
    """A type that is imported later counts from then on; a failed import stops like any raise."""
    source("class Late(Exception):\n    pass\n", "late_errors.py")
    program = source(
        """
        stop_here = 1  # @stop
        try:
            import no_such_module_at_all  # @import
        except ImportError:
            pass
        import late_errors
        try:
            raise late_errors.Late("now")  # @raise
        except late_errors.Late:
            pass
        """
    )
    with relay.session(python_path=python) as session:
        session.break_at(program, program["stop"])
        session.launch(program, stop_on_exception=False)
        types = ["late_errors.Late", "ModuleNotFoundError"]
        assert ask(session, types=types)["unknown_types"] == ["late_errors.Late"]
        for mark in ("import", "raise"):
            state = session.resume()
            assert (state["stop_reason"], session.line()) == ("exception", program[mark])
        assert session.get("/exception-breakpoints").ok()["unknown_types"] == []
        assert session.resume()["exit_code"] == 0


def test_launch_changes_them_only_with_stop_on_exception(relay: Client, source: Write) -> None:
    program = source("try:\n    1 / 0\nexcept ZeroDivisionError:\n    pass\n")
    with relay.session() as session:
        ask(session, filters=["raised"])
        assert session.launch(program)["stop_reason"] == "exception"
    with relay.session() as session:
        ask(session, filters=["raised"], types=["KeyError"])
        assert session.launch(program, stop_on_exception="uncaught")["exit_code"] == 0
        shown = session.get("/exception-breakpoints").ok()
        assert (shown["filters"], shown["types"]) == (["uncaught"], [])


def test_one_stop_for_each_exception_in_each_thread(
    relay: Client, source: Write, python: str
) -> None:
    program = source(
        """
        import contextlib, os, threading
        def raising(n):
            try:
                raise KeyError(n)  # @raise
            finally:
                with contextlib.suppress(OSError):
                    os.stat("/no/such/file")
                os.makedirs("/", exist_ok=True)
        def middle(n):
            try:
                raising(n)
            except KeyError:
                raise
        def outer(n):
            with contextlib.suppress(ZeroDivisionError):
                middle(n)
        def caught(n):
            try:
                outer(n)
            except KeyError:
                pass
        caught(0)
        for n in (1, 2):
            thread = threading.Thread(target=caught, args=(n,))
            thread.start()
            thread.join()
        outer(9)
        """
    )
    with relay.session(python_path=python) as session:
        ask(
            session,
            filters=["raised", "uncaught", "user_unhandled"],
            condition="'stat' not in str(exc) and type(exc) is KeyError",
        )
        assert walk(session, session.launch(program), "n") == ["0", "1", "2", "9"]


def test_exits_and_loops_never_stop(relay: Client, source: Write, python: str) -> None:
    program = source(
        """
        import sys, asyncio
        list(iter(range(3)))
        def values():
            yield 1
        for _ in values():
            pass
        async def main():
            async def each():
                yield 1
            async for _ in each():
                pass
        asyncio.run(main())
        generator = values()
        next(generator)
        generator.close()
        sys.exit(4)
        """
    )
    with relay.session(python_path=python) as session:
        filters = ["raised", "uncaught", "user_unhandled"]
        ask(session, filters=filters, types=["SystemExit", "StopIteration", "GeneratorExit"])
        assert session.launch(program)["exit_code"] == 4
        assert session.events("stopped") == []


PYTEST = """
    import pytest

    def value():
        return {"price": -3}

    def test_fails():
        found = value()
        assert found["price"] > 0  # @assert

    def test_handled():
        with pytest.raises(KeyError):
            value()["none"]
        try:
            int("x")
        except ValueError:
            pass

    def test_error():
        local = 5
        raise RuntimeError("on purpose")  # @error
"""


def test_a_failing_test_stops_in_the_test(relay: Client, source: Write, tmp_path: Path) -> None:
    tests = source(PYTEST, "test_shop.py")
    with relay.session(python_path=sys.executable) as session:
        ask(session, filters=["user_unhandled", "uncaught"])
        state = session.try_launch(
            module="pytest",
            args=["-q", "-p", "no:cacheprovider", str(tests)],
            cwd=str(tmp_path),
            env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # ours import for seconds
            wait=60,
        ).ok()
        assert (state["stop_reason"], state["current_location"]["line"]) == (
            "exception",
            tests["assert"],
        ), session.printed()
        assert session.locals()["found"] == "{'price': -3}"
        body = session.events("stopped")[-1]["body"]
        assert body["exception_info"]["break_mode"] == "userUnhandled"
        assert body["exception_info"]["exception_id"] == "AssertionError"
        state = session.resume()
        assert state["current_location"]["line"] == tests["error"]
        assert session.locals()["local"] == "5"
        ended = session.resume()
        assert (ended["status"], ended["exit_code"]) == ("terminated", 1), session.status()
        assert "2 failed, 1 passed" in session.printed()


UNITTEST = """
    import contextlib, unittest

    @contextlib.contextmanager
    def passing(kind):
        try:
            yield
        except kind:
            pass

    @contextlib.contextmanager
    def opened(value):
        held = [value]
        try:
            yield held
        finally:
            held.clear()

    class Shop(unittest.TestCase):
        def test_expected(self):
            with self.assertRaises(KeyError):
                {}["price"]
            with self.assertRaises(KeyError), opened(1):
                {}["price"]

        def test_suppressed(self):
            with contextlib.suppress(KeyError):
                {}["price"]
            with passing(KeyError), opened(1):
                {}["price"]

        def test_within(self):
            price = -4
            with opened(3) as held, opened(4):
                raise ValueError(held)  # @within

        def test_wrong(self):
            price = -3
            raise ValueError(price)  # @wrong

    unittest.main()
"""


def test_what_a_with_statement_handles_is_no_failure(
    relay: Client, source: Write, python: str
) -> None:
    """And where one of the program's own lets it through, the test's line is where it stops."""
    program = source(UNITTEST)
    with relay.session(python_path=python) as session:
        ask(session, filters=["user_unhandled"])
        state = session.launch(program)
        for mark, price in (("within", "-4"), ("wrong", "-3")):
            assert state["stop_reason"] == "exception", session.printed()
            assert session.line() == program[mark]
            assert session.value("price") == price
            state = session.resume()
        assert (state["status"], state["exit_code"]) == ("terminated", 1)
        assert "errors=2" in session.printed()
