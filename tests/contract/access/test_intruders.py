"""Nobody speaks into a session without its token: not another user, not a process of our own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress

import debugpy
import psutil
import pytest

from tests.kit.client import Client, Session
from tests.kit.intruder import NOBODY, Intruder
from tests.kit.relay import Relay, eventually
from tests.kit.running import Running
from tests.kit.source import Source

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a second user")
WHO = [pytest.param(NOBODY, marks=needs_root, id="other-user"), pytest.param(-1, id="same-user")]

LAUNCHED = """
    import os
    x = 20
    if os.fork() == 0:
        os._exit(0)
    os.wait()
    y = x + 1  # @line
    print("honest", y)
"""
TICKS = """
    import time

    def tick(n):
        return n * 2  # @line

    print("up", flush=True)
    n = 0
    while True:
        n += 1
        tick(n)
        time.sleep(0.005)
"""


def own_or(uid: int) -> int:
    return os.getuid() if uid == -1 else uid


def nothing_forged(session: Session) -> None:
    assert "FORGED" not in session.printed()
    told = session.events()
    assert "forged" not in str([event["body"] for event in told]).lower()


@pytest.mark.parametrize("who", WHO)
def test_launches_among_forgers(
    relay: Client,
    shared_relay: Relay,
    source: Callable[..., Source],
    who: int,
) -> None:
    program, with_children = source(LAUNCHED), who == -1
    launches, most = 0, 20
    with relay.session() as session:
        session.break_at(program, program["line"])
        with Intruder(shared_relay.worker(session.id).pid, own_or(who)) as intruder:
            stopped = session.launch(program, debug_subprocesses=with_children)
            # A quick launch may be over before the intruder has said anything.
            while launches < 3 or (intruder.said < 3 and launches < most):
                launches += 1
                if launches > 1:
                    stopped = session.post("/restart", {"wait": 20}).ok()
                assert (stopped["status"], stopped["stop_reason"]) == ("paused", "breakpoint")
                assert stopped["current_location"]["line"] == program["line"]
                for n in range(5):
                    assert session.value(f"x + {n}") == str(20 + n)
                assert {row["pid"] for row in session.get("/threads").ok()["threads"]} == {
                    stopped["pid"]
                }
                ended = session.resume()
                assert (ended["status"], ended["exit_code"]) == ("terminated", 0)
        nothing_forged(session)
        assert session.printed("stdout") == "honest 21\n" * launches
        reasons = [event["body"]["reason"] for event in session.events("subprocess")]
        assert reasons.count("attached") == (launches if with_children else 0)
    print(f"{launches} launches, forged {intruder.said} times, believed 0 times")
    assert intruder.said >= 3


@pytest.mark.parametrize("who", WHO)
def test_attaches_among_forgers(
    relay: Client, shared_relay: Relay, start: Callable[..., Running], who: int
) -> None:
    one = start(TICKS)
    attaches = 2
    with relay.session() as session:
        session.break_at(one.program, one.program["line"])
        with Intruder(shared_relay.worker(session.id).pid, own_or(who)) as intruder:
            for _ in range(attaches):
                session.post("/attach", {"pid": one.pid, "wait": 20}).ok()
                assert session.line() == one.program["line"]
                n = session.value("n")
                assert n.isdigit()
                assert session.value("n * 2") == str(int(n) * 2)
                assert session.post("/detach").ok()["residue"] is None
        nothing_forged(session)
    print(f"{attaches} attaches, forged {intruder.said} times, believed 0 times")
    assert intruder.said >= attaches
    assert one.alive


FAMILY = """
    import os
    def child():
        os._exit(3)
    n = 1  # @stands
    if os.fork() == 0:
        child()
    print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


@pytest.fixture
def standing(
    relay: Client, shared_relay: Relay, source: Callable[..., Source]
) -> Iterator[tuple[Session, psutil.Process, int]]:
    """A program that stands before it forks, its worker, and the port for its children."""
    program = source(FAMILY)
    with relay.session() as session:
        session.break_at(program, program["stands"])
        session.launch(program, debug_subprocesses=True)
        worker = shared_relay.worker(session.id)
        listening = [one for one in worker.net_connections("tcp") if one.status == "LISTEN"]
        ports = {one.laddr.port for one in listening}
        # The other one is for IDEs.
        (port,) = ports - {int(session.get().ok()["debugger"]["uri"].rpartition(":")[2])}
        yield session, worker, port


def test_many_who_say_nothing_hold_up_nobody(
    standing: tuple[Session, psutil.Process, int],
) -> None:
    session, worker, port = standing
    before = worker.num_fds()
    silent: list[socket.socket] = []
    try:
        for number in range(200):
            silent.append(socket.create_connection(("127.0.0.1", port), timeout=10))
            if number % 2:
                silent[-1].sendall(b"Content-Length: 40")  # a message that goes on never
        eventually(lambda: worker.num_fds() <= before + 64 + 1)  # and its log
        ended = session.resume()
        assert (ended["status"], session.printed("stdout")) == ("terminated", "3\n")
        told = [event["body"]["reason"] for event in session.events("subprocess")]
        assert "attached" in told
    finally:
        for sock in silent:
            sock.close()


def test_messages_without_end_take_no_memory(
    standing: tuple[Session, psutil.Process, int],
) -> None:
    session, worker, port = standing
    before = worker.memory_info().rss
    piece = b"Content-Length: 32500000\r\n\r\n" + b"x" * (1 << 20)
    taken = 0
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as sock, suppress(OSError):
            for _ in range(31):
                sock.sendall(piece)
                taken += len(piece)
    # What the kernel takes before it knows that the worker has closed; the worker reads 64 bytes.
    grown = worker.memory_info().rss - before
    print(f"{taken >> 20} of {20 * 31} MB could be sent, the worker has grown by {grown} bytes")
    assert taken < 20 * 8 << 20
    assert grown < 4 << 20
    assert session.resume()["exit_code"] == 0


def python_of_everybody() -> str:
    """One that runs as another user too, from where the probe and debugpy can be read."""
    found = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if found is None or os.geteuid() != 0:
        pytest.skip("only root can become a second user, with a Python that everybody may run")
    command = [found, "-ISc", f"open({debugpy.__file__!r})"]
    if subprocess.run(command, user=NOBODY, cwd="/", capture_output=True, check=False).returncode:
        pytest.skip("another user cannot read debugpy here")
    return found


BECOMES_ANOTHER = f"""
    import os
    os.setgroups([])
    os.setgid({NOBODY})
    os.setuid({NOBODY})
"""


def test_a_child_that_runs_as_another_user_comes_in(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source(
        BECOMES_ANOTHER
        + """
    if os.fork() == 0:
        who = os.getuid()  # @child
        os._exit(who % 100)
    print(os.waitstatus_to_exitcode(os.wait()[1]))
    """
    )
    with relay.session(python_path=python_of_everybody()) as session:
        session.break_at(program, program["child"])
        stopped = session.launch(program, debug_subprocesses=True)
        assert stopped["current_location"]["line"] == program["child"]
        assert stopped["child_pid"] is not None
        assert session.value("os.getuid()") == str(NOBODY)
        assert session.resume()["status"] == "terminated"
        assert session.printed("stdout") == f"{NOBODY % 100}\n"


def test_a_child_that_is_executed_as_another_user_runs_as_without_us(
    relay: Client, source: Callable[..., Source]
) -> None:
    """It cannot read what the session's directory has for children."""
    program = source(
        f"""
        import os, subprocess, sys
        reads, writes = os.pipe()
        os.set_inheritable(writes, True)
        def demote():
            os.setgid({NOBODY})
            os.setuid({NOBODY})
        inherited = "os.getuid() and os.listdir('/proc/self/fd')"
        shown = f"import os, sys; print(os.getuid(), {{inherited}}, sys.argv)"
        own = [sys.executable, "-c", shown, "a b"]
        for how in ({{"preexec_fn": demote}}, {{"user": {NOBODY}}}, {{"preexec_fn": lambda: None}}):
            subprocess.run(own, cwd="/", env={{"LANG": "C.UTF-8"}}, check=True, **how)
        """
    )
    found = python_of_everybody()
    plain = subprocess.run([found, program.path], capture_output=True, text=True, check=True)
    with relay.session(python_path=found) as session:
        session.launch(program, debug_subprocesses=True, wait=20)
        assert session.printed("stdout") == plain.stdout
        assert session.printed("stderr") == ""
        reasons = [event["body"]["reason"] for event in session.events("subprocess")]
        assert reasons.count("attached") == 1


def test_another_users_program_is_attached_to(relay: Client, start: Callable[..., Running]) -> None:
    one = start(BECOMES_ANOTHER + TICKS, python=python_of_everybody())
    with relay.session() as session:
        session.break_at(one.program, one.program["line"])
        session.post("/attach", {"pid": one.pid, "wait": 20}).ok()
        assert session.line() == one.program["line"]
        session.post("/detach").ok()
    assert one.alive
