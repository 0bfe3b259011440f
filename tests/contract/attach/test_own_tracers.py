"""Programs that trace themselves: up to Python 3.11 a thread has one tracer at a time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.kit.client import Client
from tests.kit.relay import eventually
from tests.kit.running import Running
from tests.kit.source import Source, has_monitoring

Write = Callable[..., Source]
Start = Callable[..., Running]

OWN = """
    import sys, time

    def mine(frame, event, arg):
        return None

    def called():
        return 1  # @line

    def wait(seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.01)

    called()
    sys.settrace(mine)
    wait(0.5)
    called()
    print(sys.gettrace() is mine, flush=True)
    sys.settrace(None)
    called()
"""


@pytest.mark.slow
def test_the_programs_own_has_its_time(relay: Client, source: Write, python: str) -> None:
    """It is left alone as long as it is there; then breakpoints stop again."""
    program = source(OWN)
    with relay.session(python_path=python) as session:
        point = session.break_at(program, program["line"])["id"]
        assert session.launch(program)["status"] == "paused"
        while session.resume()["status"] == "paused":
            pass
        assert session.printed("stdout") == "True\n"
        assert session.printed("stderr") == ""
        hits = session.get(f"/breakpoints/{point}").ok()["hit_count"]
        told = session.printed("console")
        traced = not has_monitoring(python)
        assert hits == (2 if traced else 3)
        assert told.startswith("__main__.mine traces thread MainThread") is traced
        assert len(told.splitlines()) == int(traced)


C_TRACER = """
    import pathlib, sys, time
    import coverage

    def called(n):
        return n  # @line

    def late():
        return called(2)

    data = coverage.Coverage(data_file=None, config_file=False)
    data.start()
    called(1)
    end = time.monotonic() + 0.7
    while time.monotonic() < end:
        time.sleep(0.01)
    late()
    data.stop()
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        time.sleep(0.01)
    called(3)
    print(data.analysis2(__file__)[3], flush=True)
"""


@pytest.mark.slow
def test_coverage_sees_what_it_sees_without_a_debugger(relay: Client, source: Write) -> None:
    """Its tracer, written in C, takes the place without a word."""
    program = source(C_TRACER)
    command = [sys.executable, str(program.path)]
    plain = subprocess.run(command, capture_output=True, text=True, check=True)
    with relay.session(python_path=sys.executable) as session:
        session.break_at(program, program["line"], condition="n == 3")
        moved = session.launch(program)
        told = session.printed("console")
        # Our tracer comes back when coverage has stopped.
        assert (moved["status"], session.value("n")) == ("paused", "3")
        assert session.resume()["exit_code"] == 0
        assert session.printed("stdout") == plain.stdout
        assert "overflow" not in told
        if sys.version_info < (3, 12):
            assert "CTracer traces thread MainThread" in told


ATTACHED = """
    import sys, threading, time

    seen = {"main": 0, "other": 0}

    def called(name):
        return name  # @line

    def tracer(frame, event, arg):
        if frame.f_code is called.__code__:
            seen[threading.current_thread().name] = seen.get(threading.current_thread().name, 0) + 1
        return tracer

    def work():
        while True:
            called("x")
            time.sleep(0.005)

    sys.settrace(tracer)
    threading.settrace(tracer)
    threading.Thread(target=work, daemon=True, name="other").start()
    threading.current_thread().name = "main"
    print("up", flush=True)
    for line in sys.stdin:
        for _ in range(5):
            called("main")
        print(dict(seen), sys.gettrace() is tracer, flush=True)
"""


def test_it_comes_back_when_the_debugger_goes(relay: Client, start: Start, python: str) -> None:
    one = start(ATTACHED, python=python)

    def asked() -> dict[str, int]:
        assert one.process.stdin is not None
        one.process.stdin.write("\n")
        one.process.stdin.flush()
        said, _, own = one.line().rpartition(" ")
        assert own == "True"
        return eval(said)  # type: ignore[no-any-return]

    before = asked()
    assert min(before.values()) > 0
    for _ in range(2):
        with relay.session() as session:
            session.break_at(one.program, one.program["line"], condition="name == 'x'")
            session.post("/attach", {"pid": one.pid}).ok()
            eventually(lambda s=session: s.status()["status"] == "paused")  # type: ignore[misc]
            traced = not has_monitoring(python)
            # The lines come by output, which may be behind the stop.
            eventually(lambda s=session, t=traced: s.printed("console").count("\n") == 2 * t)  # type: ignore[misc]
            assert ("traces thread other (sys.settrace)" in session.printed("console")) is traced
            left = session.post("/detach").ok()
            assert left.get("residue") is None
        after = asked()
        assert after["main"] > before["main"]
        eventually(lambda a=after: asked()["other"] > a["other"])  # type: ignore[misc]
        before = asked()


PROFILES = """
    import sys, threading, time

    calls = []

    def called(frame, event, arg):
        calls.append(frame.f_code.co_name)

    def work():
        n = 1
        return n  # @line

    threading.setprofile(called)
    print("up", flush=True)
    while True:
        work()
        time.sleep(0.01)
"""


@pytest.mark.one_python
def test_the_debuggers_threads_are_not_profiled(relay: Client, start: Start, python: str) -> None:
    """They are none of the program's, whose new threads all have its profiler."""
    one = start(PROFILES, python=python)
    with relay.session() as session:
        session.post("/attach", {"pid": one.pid, "connect_timeout": 30}).ok()
        session.break_at(one.program, one.program["line"])
        eventually(lambda: session.status()["status"] == "paused")
        for _ in range(3):
            session.step("over")
        # That they begin and end is to be seen.
        assert int(session.value("len(calls)")) < 500
        session.post("/detach").ok()
    assert one.stderr() == ""
