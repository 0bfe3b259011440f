"""Exception breakpoints: filters, types, conditions; one stop for each exception."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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

    for kind in (KeyError, ValueError, AppError, Deep, OSError):
        try:
            try:
                fail(kind)
            finally:
                kept = kind
        except Exception:
            pass
    try:
        json.loads("{")  # @library
    except ValueError:
        pass
    int("7")
    print("end")
"""


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


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (["KeyError"], ["KeyError"]),
        (["__main__.AppError"], ["AppError", "Deep"]),
        (["builtins.ValueError"], ["ValueError", "AppError", "Deep"]),
        (["OSError", "Deep"], ["Deep", "OSError"]),
        (["json.decoder.JSONDecodeError", "NoSuch"], []),
    ],
)
def test_types_stop_at_the_raise_once(
    relay: Client, source: Write, python: str, types: list[str], expected: list[str]
) -> None:
    program = source(TYPES)
    with relay.session(python_path=python) as session:
        ask(session, types=types)
        state = session.launch(program)
        seen = []
        while state["status"] == "paused" and session.line() == program["raise"]:
            info = session.events("stopped")[-1]["body"]["exception_info"]
            assert info["break_mode"] == "always"
            seen.append(info["exception_id"])
            state = session.resume()
        assert seen == expected
        if "json" in str(types) or "builtins.ValueError" in types:
            # Asked for by name it stops where it is raised, inside the library.
            assert state["current_location"]["path"].endswith("json/decoder.py")
            state = session.resume()
        assert state["status"] == "terminated"


def test_raised_in_user_and_in_all(relay: Client, source: Write, python: str) -> None:
    program = source(
        """
        import json, os
        def text():
            json.loads("{")  # @loads
        for _ in range(2):
            try:
                text()
            except ValueError:
                pass
        os.makedirs(os.getcwd(), exist_ok=True)
        print("end")
        """
    )
    for raised_in in ("user", "all"):
        with relay.session(python_path=python) as session:
            ask(session, filters=["raised"], raised_in=raised_in)
            state = session.launch(program)
            places = []
            while state["status"] == "paused":
                places.append(Path(state["current_location"]["path"]).name)
                state = session.resume()
            if raised_in == "user":
                assert places == ["program.py", "program.py"]
            else:
                assert places.count("decoder.py") == 2
                assert "os.py" in places
                assert "program.py" not in places


@pytest.mark.parametrize("raised_in", ["user", "all", None])
def test_types_that_are_raised_in_user_code(
    relay: Client, source: Write, python: str, raised_in: str | None
) -> None:
    """What a library raises stops where it comes to the program's code, if it does."""
    program = source(
        """
        import json, os
        os.makedirs(os.getcwd(), exist_ok=True)  # raises FileExistsError, and handles it
        def text():
            json.loads("{")  # @loads
        def own():
            raise FileExistsError("own")  # @own
        for work in (text, own):
            try:
                work()
            except (ValueError, OSError):
                pass
        """
    )
    with relay.session(python_path=python) as session:
        ask(session, types=["FileExistsError", "ValueError"], raised_in=raised_in)
        state, places = session.launch(program), []
        while state["status"] == "paused":
            here = state["current_location"]
            places.append((Path(here["path"]).name, here["line"]))
            state = session.resume()
    own = ("program.py", program["own"])
    if raised_in == "user":
        assert places == [("program.py", program["loads"]), own]
    else:
        assert [name for name, _ in places] == ["os.py", "decoder.py", "program.py"]
        assert places[-1] == own


def test_a_condition_sees_the_exception_and_the_frame(
    relay: Client, source: Write, python: str
) -> None:
    program = source(
        """
        def check(n):
            if n % 2:
                raise ValueError(n)  # @raise
        for n in range(8):
            try:
                check(n)
            except ValueError:
                pass
        """
    )
    with relay.session(python_path=python) as session:
        ask(
            session,
            filters=["raised"],
            condition="type(exc) is ValueError and exc.args == (n,) and any(n > x for x in [3])",
        )
        assert walk(session, session.launch(program), "n") == ["5", "7"]


def test_a_condition_that_raises_is_told_once_and_never_stops(
    relay: Client, source: Write, python: str
) -> None:
    program = source(
        "for i in range(3):\n    try:\n        [][i]\n    except IndexError:\n        pass\n"
    )
    with relay.session(python_path=python) as session:
        ask(session, filters=["raised"], condition="exc.no_such")
        assert session.launch(program)["exit_code"] == 0
        assert session.printed("console").count("AttributeError") == 1
        assert "no_such" in session.get("/exception-breakpoints").ok()["message"]


def test_a_condition_holds_for_what_nobody_catches(
    relay: Client, source: Write, python: str
) -> None:
    program = source("def f(n):\n    raise KeyError(n)\nf(3)\n")
    for wanted, status in (("n == 3", "paused"), ("n == 4", "terminated")):
        with relay.session(python_path=python) as session:
            ask(session, filters=["uncaught"], condition=f"{wanted} and isinstance(exc, KeyError)")
            assert session.launch(program)["status"] == status


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


def test_a_type_that_comes_later_counts(relay: Client, source: Write, python: str) -> None:
    source("class Late(Exception):\n    pass\n", "late_errors.py")
    program = source(
        """
        stop_here = 1  # @stop
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
        assert ask(session, types=["late_errors.Late"])["unknown_types"] == ["late_errors.Late"]
        assert session.resume()["stop_reason"] == "exception"
        assert session.line() == program["raise"]
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


def test_one_stop_while_it_travels_and_others_come_and_go(
    relay: Client, source: Write, python: str
) -> None:
    program = source(
        """
        import contextlib, os
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
        for n in range(3):
            try:
                outer(n)
            except KeyError:
                pass
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


@pytest.mark.parametrize("filters", [["raised"], ["uncaught"], ["user_unhandled"]])
def test_exits_and_loops_never_stop(
    relay: Client, source: Write, python: str, filters: list[str]
) -> None:
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
        ask(session, filters=filters, types=["SystemExit", "StopIteration", "GeneratorExit"])
        assert session.launch(program)["exit_code"] == 4
        assert session.events("stopped") == []


def test_an_import_that_fails(relay: Client, source: Write, python: str) -> None:
    program = source("try:\n    import no_such_module_at_all\nexcept ImportError:\n    pass\n")
    with relay.session(python_path=python) as session:
        ask(session, types=["ModuleNotFoundError"])
        state = session.launch(program)
        assert (state["stop_reason"], state["current_location"]["line"]) == ("exception", 2)
        assert session.resume()["exit_code"] == 0


def test_each_thread_has_its_own_exceptions(relay: Client, source: Write, python: str) -> None:
    program = source(
        """
        import threading
        def fail(n):
            try:
                raise ValueError(n)
            except ValueError:
                pass
        for n in range(4):
            thread = threading.Thread(target=fail, args=(n,))
            thread.start()
            thread.join()
        """
    )
    with relay.session(python_path=python) as session:
        ask(session, filters=["raised"])
        assert walk(session, session.launch(program), "n") == ["0", "1", "2", "3"]


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


@pytest.mark.parametrize("filters", [["user_unhandled"], ["user_unhandled", "uncaught"]])
def test_a_failing_test_stops_in_the_test(
    relay: Client, source: Write, tmp_path: Path, filters: list[str]
) -> None:
    tests = source(PYTEST, "test_shop.py")
    with relay.session(python_path=sys.executable) as session:
        ask(session, filters=filters)
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
