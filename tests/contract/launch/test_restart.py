"""Launching again: the same session, arguments and breakpoints, and the source as it is now."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from tests.kit.client import Client, Session
from tests.kit.relay import Relay, eventually
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

Write = Callable[..., Source]

PROGRAM = """
    import os, sys
    total = 0
    for i in range(3):
        total += i  # @inside
    print(sys.argv[1:], os.environ.get("COLOUR"), total)
"""


def restart(session: Session, **fields: Any) -> Any:
    return session.post("/restart", {"wait": 20, **fields}).ok()


def test_from_a_breakpoint(relay: Client, source: Write, python: str) -> None:
    program = source(PROGRAM)
    with relay.session(python_path=python) as session:
        breakpoint = session.break_at(program, program["inside"], hit_condition="2")
        first = session.launch(program, args=["a", "b c"], env={"COLOUR": "red"})
        assert (first["status"], session.value("i")) == ("paused", "1")
        again = restart(session)
        assert again["session_id"] == session.id
        assert (again["status"], again["stop_reason"]) == ("paused", "breakpoint")
        assert again["stop_id"] == first["stop_id"] + 1
        assert again["pid"] != first["pid"]
        assert not psutil.pid_exists(first["pid"])
        # Counted anew: the second time through, again.
        assert session.value("i") == "1"
        (listed,) = session.get("/breakpoints").ok()["breakpoints"]
        assert (listed["id"], listed["verified"], listed["hit_count"]) == (
            breakpoint["id"],
            True,
            2,
        )
        assert session.resume()["exit_code"] == 0
        assert session.printed("stdout") == "['a', 'b c'] red 3\n"
        ends = [event["body"] for event in session.events("terminated")]
        assert [(end["restart"], end["end_reason"]) for end in ends] == [
            (True, "terminated"),
            (False, "target_exited"),
        ]
        events = session.events()
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))


def test_while_it_runs(relay: Client, source: Write, python: str) -> None:
    program = source("import time\nprint('begun', flush=True)\ntime.sleep(600)")
    with relay.session(python_path=python) as session:
        first = session.launch(program, wait=0)
        eventually(lambda: session.printed() == "begun\n")
        again = restart(session, wait=0)
        assert again["status"] == "running"
        assert not psutil.pid_exists(first["pid"])
        eventually(lambda: session.printed() == "begun\nbegun\n")
        status = session.status()
        assert (status["exit_code"], status["signal"], status["end_reason"]) == (None,) * 3


def test_with_edited_source(relay: Client, source: Write, python: str) -> None:
    program = source("print('before')\n")
    with relay.session(python_path=python) as session:
        assert session.launch(program)["exit_code"] == 0
        edited = source("import os\nprint('after')  # @here\nos._exit(4)\n")
        assert session.break_at(edited, edited["here"])["verified"] is True
        assert restart(session)["current_location"]["line"] == edited["here"]
        # A breakpoint whose line has no code any more does not move.
        source("x = 1\n\nprint(x)\n")
        assert restart(session)["status"] == "terminated"
        (listed,) = session.get("/breakpoints").ok()["breakpoints"]
        assert listed["verified"] is False
        assert session.printed() == "before\n1\n"


def test_what_cannot_be_launched_leaves_the_old_run_as_it_is(relay: Client, source: Write) -> None:
    program = source("x = 1  # @here\nprint(x)\n")
    with relay.session() as session:
        session.break_at(program, program["here"])
        first = session.launch(program)
        source("x = = 1\n")
        error = session.post("/restart").refused("LAUNCH_SYNTAX_ERROR", 400)
        assert error["details"]["line"] == 1
        assert session.status()["status"] == "paused"
        assert psutil.pid_exists(first["pid"])
        program.path.unlink()
        session.post("/restart").refused("LAUNCH_SCRIPT_NOT_FOUND", 400)
        assert session.resume()["exit_code"] == 0


def test_with_another_environment(relay: Client, source: Write) -> None:
    program = source(PROGRAM)
    with relay.session() as session:
        session.launch(program, env={"COLOUR": "red", "API_KEY": "s3cret"})
        restart(session, env={"COLOUR": "blue"})
        restart(session)
        restart(session, env={"COLOUR": None})
        shown = [line.split()[1] for line in session.printed().splitlines()]
        assert shown == ["red", "blue", "blue", "None"]
        assert session.get().ok()["program"]["env"] == {"COLOUR": None, "API_KEY": "***"}


def test_all_that_was_asked_for_is_asked_for_again(
    relay: Client, source: Write, tmp_path: Any
) -> None:
    program = source("""
        import sys
        name = input()  # @first
        print(name, sys.flags.optimize, sys.stdout.isatty())
    """)
    with relay.session() as session:
        session.launch(
            program, stop_on_entry=True, python_args=["-O"], pty=True, stdin_inputs=["Ada"]
        )
        assert session.status()["stop_reason"] == "entry"
        restart(session)
        assert session.status()["stop_reason"] == "entry"
        assert session.resume()["exit_code"] == 0
        assert "Ada 1 True" in session.printed()


def test_a_servers_children_make_room(relay: Client, source: Write) -> None:
    # The child has left the process group, and holds the port.
    program = source("""
        import os, socket, sys, time
        listener = socket.socket()
        listener.bind(("127.0.0.1", int(sys.argv[1])))
        listener.listen()
        if os.fork() == 0:
            os.setsid()
        os.write(1, b"up %d\\n" % os.getpid())
        time.sleep(600)
    """)
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with relay.session() as session:
        session.launch(program, wait=0, args=[str(port)])
        for lines in (2, 4):
            eventually(lambda n=lines: len(re.findall(r"up \d+\n", session.printed("stdout"))) == n)
            assert session.status()["status"] == "running"
            if lines < 4:
                restart(session, wait=0)
        pids = [int(line.split()[1]) for line in session.printed("stdout").splitlines()]
        assert [psutil.pid_exists(pid) for pid in pids] == [False] * 2 + [True] * 2


def test_one_that_handles_sigterm_gets_to(relay: Client, source: Write, python: str) -> None:
    program = source("""
        import signal, sys, time
        def leave(number, frame):
            print("leaving")
            sys.exit(5)
        signal.signal(signal.SIGTERM, leave)
        print("up", flush=True)  # @up
        time.sleep(600)
    """)
    with relay.session(python_path=python) as session:
        session.launch(program, wait=0)
        eventually(lambda: session.printed() == "up\n")
        restart(session, wait=0)
        eventually(lambda: session.printed() == "up\nleaving\nup\n")
        (end,) = session.events("terminated")
        assert (end["body"]["exit_code"], end["body"]["restart"]) == (5, True)


def test_nothing_was_launched(relay: Client) -> None:
    with relay.session() as session:
        error = session.post("/restart").refused("INVALID_SESSION_STATE", 409)
        assert error["details"]["current_state"] == "created"


def test_at_once_and_again_and_again(relay: Client, source: Write, shared_relay: Relay) -> None:
    program = source("import time\ntime.sleep(600)")
    with relay.session() as session:
        session.launch(program, wait=0)
        worker = shared_relay.worker(session.id)
        before = worker.num_fds()
        for _ in range(4):
            restart(session, wait=0)
        eventually(lambda: worker.num_fds() <= before, what="descriptors of old runs given back")
        assert len(worker.children()) == 1


def test_output_is_forgotten_on_request(relay: Client, source: Write) -> None:
    program = source("print('one')\npass  # @here\nprint('two')\n")
    with relay.session() as session:
        session.break_at(program, program["here"])
        session.launch(program)
        assert session.printed() in ("one\n", "")
        cleared = session.delete("/output").ok()
        assert session.printed() == ""
        session.resume()
        page = session.get("/output", cursor=cleared["next_cursor"]).ok()
        printed = "".join(entry["output"] for entry in page["entries"])
        assert (printed, page["dropped"]) == (session.printed(), 0)
        assert printed.endswith("two\n")
        assert session.get("/output").ok()["dropped"] == 0


def test_terminate_with_a_grace(relay: Client, source: Write) -> None:
    program = source("""
        import signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("up", flush=True)
        while True:
            time.sleep(600)
    """)
    with relay.session() as session:
        session.launch(program, wait=0)
        for run, grace in ((1, 0), (2, 0.3)):
            eventually(lambda run=run: session.printed() == "up\n" * run)
            ended = session.post("/terminate", {"grace": grace}).ok()
            assert (ended["exit_code"], ended["signal"]) == (-9, "SIGKILL")
            assert restart(session, wait=0)["status"] == "running"
        assert session.status()["end_reason"] is None
        assert os.getpid() != session.get().ok()["program"]["pid"]
