"""A program sees nothing of its debugger, and nothing the debugger does moves it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.kit.client import Client
from tests.kit.relay import eventually
from tests.kit.source import Source

pytestmark = pytest.mark.one_python


def test_steps_leave_no_name_behind(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source("""
        before = 1  # @here
        names = sorted(k for k in globals())
        print(len(names) > 3)

        def g():
            return 5

        def f():
            a = g()  # @inside
            b = sorted(locals())
            print(b)

        f()
    """)
    with relay.session(python_path=python) as session:
        for mark in ("here", "inside"):
            session.break_at(program, program[mark])
        session.launch(program)
        status = "paused"
        for _ in range(60):
            if status != "paused":
                break
            status = session.step()["status"]
        assert session.status()["exit_code"] == 0, session.printed()
        assert session.printed() == "True\n['a']\n"


def test_a_step_out_leaves_nothing_of_what_is_returned_meanwhile(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source("""
        import gc, weakref

        class Thing:
            pass

        def makes():
            return Thing()

        def caller():
            lives = weakref.ref(makes())
            gc.collect()
            print(lives() is None, sorted(locals()))
            inside = makes()  # @inside
            lives = weakref.ref(makes())
            gc.collect()
            print(lives() is None, sorted(locals()))
            return [inside is None]

        def outer():
            got = caller()
            print(sorted(locals()))
            return got

        class Body:
            made = outer()
            print(sorted(name for name in locals() if "pydevd" in name))

        print([name for name in globals() if "pydevd" in name])
    """)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["inside"])
        session.launch(program)
        session.step("into")
        assert "Thing" in session.step("out")["return_value"]["type"]
        assert session.step("out")["return_value"] == {"type": "list", "value": "[False]"}
        assert session.step("out")["return_value"] == {"type": "list", "value": "[False]"}
        assert session.resume()["exit_code"] == 0
        names = "True ['inside', 'lives']"
        assert session.printed() == f"True ['lives']\n{names}\n['got']\n[]\n[]\n"


def test_a_breakpoint_call_in_what_is_evaluated_does_not_move_the_program(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source("""
        class Stops:
            def __repr__(self):
                breakpoint()
                return "shown"

        def stops():
            breakpoint()
            return 5

        def main():
            held = Stops()
            before = 1  # @here
            after = 2  # @next
            breakpoint()
            return held  # @called

        main()
    """)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["here"])
        session.launch(program)
        assert session.locals()["held"] == "shown"
        for expression, value in (("stops()", "5"), ("breakpoint()", "None"), ("held", "shown")):
            assert session.value(expression) == value
        for call in ("stops()", "import debugpy; debugpy.breakpoint()"):
            session.post("/evaluate", {"expression": call, "context": "repl"}).ok()
        session.post("/watch", {"expression": "stops()"}).ok()
        assert session.line() == program["here"]
        assert session.value("held, stops()") == "(shown, 5)"
        assert session.step()["current_location"]["line"] == program["next"]
        # The program's own stops all the same.
        assert session.resume()["current_location"]["line"] == program["called"]
        session.delete("/watch")
        assert session.resume()["exit_code"] == 0


@pytest.mark.slow
def test_a_slow_value_does_not_move_the_program(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(
        "import time\nclass A:\n    def __repr__(self):\n        time.sleep(4)\n"
        "        return 'A!'\na = A()\nx = 1  # @here\n"
    )
    with relay.session(python_path=python) as session:
        session.break_at(program, program["here"])
        session.launch(program)
        assert session.locals()["a"] == "<__main__.A: repr took too long>"
        assert session.value("a") == "A!", "who asks for it alone, waits for it"
        status = session.status()
        assert (status["status"], status["stop_id"]) == ("paused", 1)
        assert session.printed() == ""


def test_the_debugger_is_silent(relay: Client, source: Callable[..., Source], python: str) -> None:
    program = source(
        """
        import sys, threading

        def work():
            return 1  # @here

        sys.settrace(None)
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print("done")
        """
    )
    with relay.session(python_path=python) as session:
        session.break_at(program, program["here"])
        result = session.launch(program)
        for _ in range(8):
            if result["status"] != "paused":
                break
            result = session.resume()
        assert session.status()["exit_code"] == 0
        assert session.printed("stderr") == ""
        assert session.printed("stdout") == "done\n"


def test_deleted_while_it_is_launched(relay: Client, source: Callable[..., Source]) -> None:
    program = source("import time\ntime.sleep(600)\n")
    with ThreadPoolExecutor(1) as pool:
        for delay in (0.0, 0.05, 0.1, 0.2):
            session = relay.session()
            launched = pool.submit(session.post, "/launch", {"script": str(program), "wait": 30})
            # How far the launch has got by then is what differs: any of them must end well.
            time.sleep(delay)
            session.delete(force="true").ok()
            answer = launched.result(30)
            if answer.status != 200:
                assert answer.body["error"]["code"] in ("SESSION_NOT_FOUND", "SESSION_CRASHED")


def test_a_step_waits_for_an_evaluation(relay: Client, source: Callable[..., Source]) -> None:
    program = source("import time\nx = 1  # @here\nx = 2\n")
    with relay.session() as session, ThreadPoolExecutor(1) as pool:
        session.break_at(program, program["here"])
        session.launch(program)
        asked = {"expression": "print('begun', flush=True) or time.sleep(0.5) or 7"}
        evaluated = pool.submit(session.post, "/evaluate", asked)
        eventually(lambda: session.printed() == "begun\n")
        cursor = session.get("/events").ok()["next_cursor"]
        stepped = session.step()
        assert stepped["stop_id"] == 2
        assert evaluated.result(10).ok()["result"] == "7"
        assert session.events("stopped", cursor=cursor)


def test_what_only_pydevds_console_needs_is_not_loaded(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(
        """
        import gc, sys

        absent = ["ssl", "email", "pydoc", "http.client", "http.server", "xmlrpc.client"]
        print([name for name in absent if name in sys.modules])
        print(gc.isenabled(), gc.get_freeze_count())  # @here
        import http.server, ssl, xmlrpc.client, xmlrpc.server
        print(http.server.BaseHTTPRequestHandler, xmlrpc.client.ServerProxy.__name__)
        """
    )
    plain = subprocess.run([python, str(program)], capture_output=True, text=True, check=True)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["here"])
        session.launch(program)
        session.resume()
        # Some releases freeze objects of their own when they start.
        assert session.printed("stdout") == plain.stdout
        assert plain.stdout.startswith("[]\n")


def test_what_the_debugger_calls_itself_is_no_call_of_the_programs(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    """It tells of threads and processes in the threads that start them."""
    program = source("""
        import json, os, subprocess, threading

        def work():
            pass

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        subprocess.run(["true"])
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        print(json.dumps([1]))  # @own
    """)
    names = ["json.dumps", "json.encoder.JSONEncoder.encode", "os.fsdecode"]
    with relay.session(python_path=python) as session:
        ids = [
            session.post("/breakpoints", {"function": name}).ok()["breakpoints"][0]["id"]
            for name in names
        ]
        assert session.launch(program)["status"] == "paused"
        for _ in ids[:2]:
            callers = session.get("/stacktrace").ok()["frames"]
            assert callers[-1]["line"] == program["own"], callers
            ended = session.resume()
        assert ended["exit_code"] == 0
        told = session.get("/breakpoints").ok()["breakpoints"]
        assert [one["hit_count"] for one in told] == [1, 1, 0]
        assert len(session.events("subprocess")) == 2
