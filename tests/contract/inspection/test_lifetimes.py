"""Nothing of the program's lives longer because it is debugged."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kit.client import Client, Session
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

PROGRAM = """
    import gc, threading, time, weakref

    class Held(object):
        pass

    class Request(threading.Thread):
        def __init__(self):
            threading.Thread.__init__(self)
            self.held = Held()

        def run(self):
            mine = Held()
            refs.append(weakref.ref(mine))
            try:
                self.fail(mine)
            except ValueError:
                pass

        def fail(self, mine):
            count = 1  # @here
            raise ValueError(mine)  # @raise

    refs = []

    def serve():
        one = Request()
        refs.extend([weakref.ref(one), weakref.ref(one.held)])
        one.start()
        one.join()

    serve()
    serve()
    until = time.monotonic() + 10
    while time.monotonic() < until and any(ref() is not None for ref in refs):
        time.sleep(0.05)
        gc.collect()
    print([ref() for ref in refs if ref() is not None])
"""


def test_threads_that_have_ended_are_let_go(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    """Whether they have stopped, stepped, raised, or just run."""
    program = source(PROGRAM)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["here"], hit_condition="1")
        session.launch(program, stop_on_exception="raised")
        assert session.step()["current_location"]["line"] == program["raise"]
        at = session.resume()
        assert (at["stop_reason"], at["current_location"]["line"]) == (
            "exception",
            program["raise"],
        )
        session.post("/exception-breakpoints", {"filters": []}).ok()
        assert session.resume()["status"] == "terminated"
        assert session.printed() == "[]\n"


def test_nothing_has_to_look_for_a_thread_that_has_ended(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    """One that has not stopped goes when its last owner lets it go: pools, and what else knows
    threads by weak references, work by that."""
    program = source(
        """
        import gc, multiprocessing, threading, weakref
        from concurrent.futures import ProcessPoolExecutor

        def work(n):
            return n + 1  # @here

        def pool():
            forks = multiprocessing.get_context("fork")
            with ProcessPoolExecutor(1, forks) as executor:
                return list(executor.map(work, [1, 2]))

        gc.disable()
        refs = []
        for _ in range(20):
            thread = threading.Thread(target=work, args=(1,))
            refs.append(weakref.ref(thread))
            thread.start()
            thread.join()
        del thread
        threading.Event().wait(0.1)  # the last one may not have left C yet
        print(len([ref for ref in refs if ref()]), pool())
        """
    )
    with relay.session(python_path=python) as session:
        session.break_at(program, program["here"], condition="n < 0")
        assert session.launch(program)["exit_code"] == 0
        assert session.printed("stderr") == ""
        assert session.printed("stdout") == "0 [2, 3]\n"


def test_an_exception_that_was_handled_is_let_go(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    """Also where the debugger remembers it until it is known who handles it."""
    program = source("""
        import contextlib, gc, weakref

        class Held(object):
            pass

        refs = []

        def called_by_a_library(held):
            refs.append(weakref.ref(held))  # @here
            try:
                raise ValueError(held)
            except ValueError:
                pass

        def work(argument):
            with contextlib.ExitStack() as stack:
                stack.callback(called_by_a_library, argument)

        work(Held())
        work(Held())  # the debugger keeps the last one itself, from 3.12 on
        gc.collect()
        print(refs[0]())
    """)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["here"], hit_condition="1")
        session.post("/exception-breakpoints", {"filters": ["user_unhandled"]}).ok()
        session.launch(program)
        assert session.resume()["status"] == "terminated"
        assert session.printed() == "None\n"


LOOKED_AT = """
    import gc, weakref

    class Held(object):
        def __init__(self):
            self.inner = Inner()
            refs.append(weakref.ref(self))

    class Inner(object):
        def __init__(self):
            self.items = [1, 2]
            refs.append(weakref.ref(self))

    refs = []
    gc.disable()

    def work():
        held = Held()
        made = [held.inner]  # @here
        try:
            raise ValueError(held)  # @raise
        except ValueError:
            made = None
        return held.inner

    def alive():
        known = refs  # @alive
        return len([ref for ref in known if ref()])

    work()
    print(alive())
"""


def opened(session: Session, reference: int, depth: int) -> None:
    for row in session.get(f"/variables/{reference}").ok()["variables"]:
        if depth and row["variables_reference"] and row["name"] in ("held", "inner", "items"):
            opened(session, row["variables_reference"], depth - 1)


def test_what_was_looked_at_goes_with_its_function(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    """No collector has to come by."""
    program = source(LOOKED_AT)
    with relay.session(python_path=python) as session:
        session.post("/watch", {"expression": "held.inner"}).ok()
        session.break_at(program, program["here"])
        session.break_at(program, program["alive"])
        session.launch(program, stop_on_exception="raised")
        for scope in session.get("/scopes").ok()["scopes"]:
            opened(session, scope["variables_reference"], depth=3)
        session.post("/evaluate", {"expression": "held.inner.items"}).ok()
        session.post("/evaluate", {"expression": "kept = held", "context": "repl"})
        session.post("/evaluate", {"expression": "[held, {1: held.inner}]"}).ok()
        session.get("/snapshot").ok()
        assert session.step()["current_location"]["line"] == program["raise"] - 1
        assert session.resume()["stop_reason"] == "exception"
        session.get("/exception").ok()
        session.get("/snapshot").ok()
        assert session.resume()["current_location"]["line"] == program["alive"]
        assert session.resume()["status"] == "terminated"
        assert session.printed() == "0\n"


def test_a_thread_that_lies_where_another_lay(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    """One that `threading` does not know leaves an entry there: the next is not taken for it."""
    program = source("""
        import _thread, threading

        def work(n):
            return n * 2  # @here

        def bare(n, done):
            work(n)
            done.release()

        for n in range(20):
            done = _thread.allocate_lock()
            done.acquire()
            _thread.start_new_thread(bare, (n, done))
            done.acquire()
            thread = threading.Thread(target=work, args=(n,))
            thread.start()
            thread.join()
    """)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["here"])
        stopped = session.launch(program)
        names = []
        while stopped["status"] == "paused":
            names.append(session.get("/snapshot").ok()["stop"]["thread"]["name"])
            stopped = session.resume()
        assert stopped["status"] == "terminated"
        assert len(names) == 40
        assert all("Dummy" in name for name in names[::2])
        assert not any("Dummy" in name for name in names[1::2])
