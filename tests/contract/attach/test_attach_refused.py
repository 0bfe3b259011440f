"""Programs that cannot be attached to: each is told at once, runs on, and has nothing of ours."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.client import Client
from tests.kit.relay import eventually
from tests.kit.running import Running
from tests.kit.statements import python_path

pytestmark = pytest.mark.one_python

Start = Callable[..., Running]

WAITS = "time.sleep(0.01)"
# Whoever comes late may not do this here.
AUDITED = """
    import sys, threading, time

    def refuse(event, arguments):
        if event.startswith({event!r}):
            raise RuntimeError("nobody does that here")

    print("up", flush=True)
    sys.addaudithook(refuse)
    while True:
        {wait}
"""
# What the debugger comes in with is gone, or is something else.
REPLACED = """
    import builtins, sys, threading, time, types

    {change}
    print("up", flush=True)
    while True:
        {wait}
"""
NO_THREAD = """
    import _thread, time

    def none(*_):
        raise RuntimeError("can't start new thread")

    _thread.start_new_thread = none
    print("up", flush=True)
    while True:
        {wait}
"""
# Just the one.
NO_THIRD_THREAD = """
    import _thread, threading, time

    started = []

    def limited(start):
        def begin(*arguments, **keywords):
            started.append(arguments)
            if len(started) == 3:
                raise RuntimeError("can't start new thread")
            return start(*arguments, **keywords)
        return begin

    _thread.start_new_thread = limited(_thread.start_new_thread)
    threading._start_new_thread = _thread.start_new_thread
    if hasattr(threading, "_start_joinable_thread"):
        threading._start_joinable_thread = limited(threading._start_joinable_thread)
    print("up", flush=True)
    input()
"""
NO_MEMORY = """
    import resource, threading, time

    with open("/proc/self/statm") as sizes:
        size = int(sizes.read().split()[0]) * resource.getpagesize() + {room}
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    print("up", flush=True)
    while True:
        {wait}
"""
# As soon as something of the debugger is there.
EXECUTES = """
    import os, sys, threading, time

    print("up", flush=True)
    while {missing!r} not in sys.modules and not any(
        thread.name.startswith({missing!r}) for thread in threading.enumerate()
    ):
        time.sleep(0.0001)
    os.execv("/bin/sleep", ["sleep", "1000"])
"""


def audited(event: str, wait: str = WAITS) -> str:
    return AUDITED.format(event=event, wait=wait)


def replaced(change: str, wait: str = WAITS) -> str:
    return REPLACED.format(change=change, wait=wait)


RAISES = "def raises(*_, **__): raise RuntimeError('nobody does that here')\n    "
REFUSED = {
    "compile": (audited("compile"), "raised RuntimeError"),
    "compile-busy": (audited("compile", "pass"), "raised RuntimeError"),
    "compile-rests": (audited("compile", "time.sleep(1000)"), "raised RuntimeError"),
    "import": (audited("import"), "nobody does that here"),
    "open": (audited("open"), "nobody does that here"),
    "sockets": (audited("socket."), "nobody does that here"),
    "no-import": (replaced(RAISES + "builtins.__import__ = raises"), "raised RuntimeError"),
    "no-exec": (replaced("del builtins.exec"), "raised AttributeError"),
    "no-open": (replaced("del builtins.open"), "'open'"),
    "no-finders": (
        replaced("sys.meta_path.clear(); sys.modules['_socket'] = None"), "ModuleNotFoundError",
    ),
    "other-socket": (
        replaced("sys.modules['_socket'] = types.ModuleType('_socket')"), "socket",
    ),
    "other-threading": (
        replaced("sys.modules['threading'] = types.ModuleType('threading')"), "no attribute",
    ),
    "no-thread": (NO_THREAD.format(wait=WAITS), "can't start new thread"),
    "no-thread-rests": (NO_THREAD.format(wait="time.sleep(1000)"), "can't start new thread"),
    "no-memory": (NO_MEMORY.format(wait=WAITS, room=200_000), "bytes of memory"),
    "little-memory": (
        NO_MEMORY.format(wait=WAITS, room=1_200_000),
        "MemoryError|can't start new thread",
    ),
    "executes": (EXECUTES.format(missing="pydevd"), "executed another program"),
    "executes-soon": (EXECUTES.format(missing="debug relay"), "executed another program"),
}  # fmt: skip


def writable_code(pid: int) -> list[str]:
    return [line for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if "rwx" in line]


@pytest.mark.parametrize("kind", REFUSED)
def test_it_is_told_and_runs_on(relay: Client, start: Start, python: str, kind: str) -> None:
    text, words = REFUSED[kind]
    one = start(text, python=python)
    before = one.descriptors()
    with relay.session() as session:
        # Far from the call's own deadline: who is refused does not wait for it.
        body = {"pid": one.pid, "connect_timeout": 60}
        error = session.post("/attach", body).refused("ATTACH_FAILED")
        assert re.search(words, error["message"])
        assert session.status()["status"] == "created"
    assert one.alive
    assert one.stderr() == ""
    assert writable_code(one.pid) == []
    if not kind.startswith("executes"):
        assert one.descriptors() == before


def test_a_free_threaded_one_whose_files_do_not_tell(relay: Client, start: Start) -> None:
    """A fake one, which says so itself: there is no such build on this machine."""
    one = start(replaced("sys.abiflags += 't'"))
    with relay.session() as session:
        error = session.post("/attach", {"pid": one.pid}).refused("ATTACH_UNSUPPORTED")
        assert "free-threaded" in error["message"]
        assert session.status()["status"] == "created"
    assert one.alive
    assert one.stderr() == ""


@pytest.mark.parametrize("version", ["3.8", "3.11"])
def test_one_that_forbids_tracing(relay: Client, start: Start, version: str) -> None:
    one = start(audited("sys.settrace"), python=python_path(version))
    before = one.counts()
    with relay.session() as session:
        body = {"pid": one.pid, "connect_timeout": 60}
        error = session.post("/attach", body).refused("ATTACH_FAILED")
        assert "nobody does that here" in error["message"]
    assert one.alive
    assert one.counts() == before
    assert one.stderr() == ""


STOPS_SOON = """
    import sys, time

    def refuse(event, arguments):
        if event == "gc.get_objects":
            time.sleep(0.1)  # meanwhile it stops
            raise RuntimeError("nobody does that here")

    def work():
        n = 1  # @line
        time.sleep(0.001)

    sys.addaudithook(refuse)
    print("up", flush=True)
    while True:
        work()
"""


def test_one_that_stops_before_it_is_refused(relay: Client, start: Start) -> None:
    one = start(STOPS_SOON, python=python_path("3.12"))
    before = one.counts()
    with relay.session() as session:
        session.break_at(one.program, one.program["line"])
        error = session.post("/attach", {"pid": one.pid}).refused("ATTACH_FAILED")
        assert "nobody does that here" in error["message"]
        assert session.status()["status"] == "created"
        eventually(lambda: one.counts() == before)
        session.delete("/breakpoints").ok()
        session.post("/attach", {"pid": one.pid}).ok()
        session.post("/detach").ok()
    assert one.alive
    assert one.stderr() == ""


def test_half_of_a_debugger_goes_again(relay: Client, start: Start, python: str) -> None:
    """It had connected, and had nobody yet who would see that it has to go."""
    one = start(NO_THIRD_THREAD, python=python)
    before = one.counts()
    with relay.session() as session:
        error = session.post("/attach", {"pid": one.pid}).refused("ATTACH_FAILED")
        assert "can't start new thread" in error["message"]
        eventually(lambda: one.counts() == before)
        session.post("/attach", {"pid": one.pid, "connect_timeout": 30}).ok()
        assert session.post("/detach").ok()["residue"] is None
    stdin = one.process.stdin
    assert stdin is not None
    stdin.write("over\n")
    stdin.flush()
    assert one.process.wait(20) == 0
    assert one.stderr() == ""


def test_what_lost_its_files_on_the_way_is_attached_to(
    relay: Client, start: Start, python: str
) -> None:
    one = start(replaced("sys.path.clear()"), python=python)
    with relay.session() as session:
        session.post("/attach", {"pid": one.pid}).ok()
        assert session.post("/detach").ok()["residue"] is None
    assert one.alive
    assert one.stderr() == ""


@pytest.mark.slow
def test_its_descriptors_are_as_before(relay: Client, start: Start, python: str) -> None:
    one = start(replaced("pass"), python=python)
    before = one.descriptors()
    with relay.session() as session:
        session.post("/attach", {"pid": one.pid}).ok()
        assert [name for name in one.descriptors() if "debug relay" in name] == []
        session.post("/detach").ok()
        # The detach is answered some milliseconds before the program closes its socket.
        eventually(lambda: one.descriptors() == before)


@pytest.mark.slow
def test_one_that_closes_what_it_does_not_know(
    relay: Client, start: Start, python: str, tmp_path: Path
) -> None:
    """And opens a file by the same number: nothing of ours is written into that.

    Not in the microseconds between our look and our write, which no descriptor is safe from."""
    text = """
        import os, threading, time

        def taken():
            for name in os.listdir("/proc/self/fd"):
                try:
                    if "debug relay" in os.readlink("/proc/self/fd/" + name):
                        os.dup2(file, int(name))
                        return True
                except OSError:
                    pass

        def told():
            while not taken():
                time.sleep(0.001)
            print("taken", flush=True)

        def rest():
            while True:
                time.sleep(0.01)

        file = os.open({path!r}, os.O_RDWR)
        print("up", flush=True)
        {how}
    """
    path = tmp_path / "precious"
    for how in ("told(), rest()", "threading.Thread(target=told).start(), rest()"):
        path.write_bytes(b"as it was")
        one = start(text.format(path=str(path), how=how), python=python)
        with relay.session() as session:
            session.post("/attach", {"pid": one.pid, "connect_timeout": 2})
            assert one.line() == "taken"
        assert path.read_bytes() == b"as it was"
