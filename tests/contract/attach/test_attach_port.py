"""Joining a program that listens with `debugpy --listen`."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit.client import Client
from tests.kit.listening import Listening, SlowTunnel, free_port
from tests.kit.relay import Relay, eventually
from tests.kit.source import Source
from tests.meta.documents import block

# Its second thread only waits.
PROGRAM = """
    import threading, time

    def tick(n):
        doubled = n * 2  # @line
        return doubled

    def main():
        n = 0
        while True:
            n += 1
            tick(n)
            time.sleep(0.01)

    threading.Thread(target=threading.Event().wait, daemon=True).start()
    main()
"""
Target = tuple[Source, Listening]


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """One program that listens, for all who join it and leave it as it was."""
    program = Source(tmp_path_factory.mktemp("listening") / "program.py", PROGRAM)
    target = Listening(program.path)
    yield program, target
    assert target.process.poll() is None
    target.end()


@pytest.fixture
def listening(source: Callable[..., Source]) -> Iterator[Callable[[str], Target]]:
    started: list[Listening] = []

    def start(text: str) -> Target:
        program = source(text)
        started.append(Listening(program.path))
        return program, started[-1]

    yield start
    for one in started:
        one.end()


def test_join_break_look_and_leave(relay: Client, joined: Target) -> None:
    program, target = joined
    with relay.session() as session:
        attached = session.post("/attach", {"port": target.port}).ok()
        assert (attached["attached"], attached["status"]) == (True, "running")
        assert attached["pid"] == target.process.pid
        session.break_at(program, program["line"], condition="n % 2 == 0")
        # the stop may have come before the reply
        session.events("stopped", timeout=10)
        assert session.status()["status"] == "paused"
        n = int(session.locals()["n"])
        assert n % 2 == 0
        assert session.value("n * 10") == str(n * 10)
        assert session.step("over")["current_location"]["line"] == program["line"] + 1
        detached = session.post("/detach").ok()
        assert (detached["detached"], detached["status"]) == (True, "created")
        assert target.process.poll() is None
        # and again, by the same session: its breakpoint is still there
        session.post("/attach", {"port": target.port, "wait": 10}).ok()
        assert session.status()["status"] == "paused"
    assert target.process.poll() is None


def test_a_second_thread_does_not_hold_up_the_first(relay: Client, joined: Target) -> None:
    program, target = joined
    with relay.session() as session:
        session.break_at(program, program["line"])
        session.post("/attach", {"port": target.port, "wait": 10}).ok()
        took: dict[str, list[float]] = {"step": [], "continue": []}
        for _ in range(5):
            for kind, call in (("step", "/step-over"), ("continue", "/continue")):
                began = time.monotonic()
                assert session.post(call, {"wait": 10}).ok()["status"] == "paused"
                took[kind].append(time.monotonic() - began)
        # pydevd looks for itself every 0.2 s
        assert min(took["step"]) < 0.1, took
        assert min(took["continue"]) < 0.1, took


CHILDREN = """
    import multiprocessing, os, subprocess, sys, time

    def plus(n):
        return n + 1  # @line

    def by_fork():
        pid = os.fork()
        if pid == 0:
            os._exit(plus(6))
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def leave():
        os._exit(plus(6))

    def by(method):
        process = multiprocessing.get_context(method).Process(target=leave)
        process.start()
        process.join()
        return process.exitcode

    if __name__ == "__main__":
        n = 0
        while True:
            n += 1
            said = subprocess.run([sys.executable, "-c", "raise SystemExit(7)"]).returncode
            codes = [said, by_fork(), by("fork"), by("spawn")]
            with open(sys.argv[0] + ".rounds", "a") as rounds:
                print(codes, file=rounds)
            time.sleep(0.2)
"""


@pytest.mark.long
def test_its_children_run_on_undebugged(relay: Client, listening: Callable[[str], Target]) -> None:
    program, target = listening(CHILDREN)
    told = Path(f"{program.path}.rounds")
    assert eventually(told.exists, timeout=20)

    def rounds() -> list[str]:
        return told.read_text().splitlines()

    def goes_on() -> None:
        before = len(rounds())
        eventually(lambda: len(rounds()) >= before + 2, timeout=30, what="children end")

    with relay.session() as session:
        session.break_at(program, program["line"])
        session.post("/attach", {"port": target.port}).ok()
        goes_on()
        session.post("/detach").ok()
        goes_on()
    assert set(rounds()) == {"[7, 7, 7, 7]"}
    assert target.process.poll() is None


def test_a_file_that_only_the_program_has(relay: Client, joined: Target) -> None:
    program, target = joined
    nowhere = str(program.path.parent / "nowhere")
    body = block("attach-port").replace("10.0.0.7", "127.0.0.1").replace("5678", str(target.port))
    body = body.replace("/work/shop", nowhere).replace("/app", str(program.path.parent))
    with relay.session() as session:
        early = session.break_at(f"{nowhere}/program.py", program["line"])
        assert (early["verified"], early["message"][:7]) == (False, "pending")
        session.post("/attach", json.loads(body)).ok()
        session.events("stopped", timeout=10)
        place = session.status()["current_location"]
        assert (place["path"], place["line"]) == (f"{nowhere}/program.py", program["line"])
        (listed,) = session.get("/breakpoints").ok()["breakpoints"]
        assert (listed["verified"], listed["hit_count"]) == (True, 1)
        # A line without code would be moved to another: it is refused instead.
        blank = session.break_at(f"{nowhere}/program.py", 2)
        assert (blank["verified"], "no code" in blank["message"]) == (False, True)
        missing = session.break_at(f"{nowhere}/other.py", 2)
        assert (missing["verified"], missing["message"][:7]) == (False, "pending")


def test_create_with_mode_attach(relay: Client, joined: Target) -> None:
    _, target = joined
    created = relay.post("/sessions", {"mode": "attach", "port": target.port}).ok(201)
    assert created["status"] == "running"
    assert created["program"]["attached"] is True
    relay.delete(f"/sessions/{created['session_id']}").ok()
    assert target.process.poll() is None


def test_an_exit_is_no_crash(relay: Client, source: Callable[..., Source]) -> None:
    program = source("x = [1, 2]\nprint(x)  # @here\nraise SystemExit(3)\n")
    target = Listening(program.path, wait=True)
    try:
        with relay.session() as session:
            session.break_at(program, program["here"])
            session.post("/attach", {"port": target.port, "wait": 20}).ok()
            (breakpoint,) = session.get("/breakpoints").ok()["breakpoints"]
            assert breakpoint["hit_count"] == 1
            session.post("/evaluate", {"expression": "x y"}).refused("EVALUATE_ERROR", 400)
            session.get("/tasks").refused("ATTACH_UNSUPPORTED", 400)
            ended = session.resume()
            assert (ended["status"], ended["end_reason"]) == ("terminated", "target_lost")
            assert session.status()["exit_code"] is None
            assert target.process.wait(10) == 3
            assert len(session.events("terminated")) == 1
    finally:
        target.end()


def test_nobody_listens(relay: Client) -> None:
    with relay.session() as session:
        port = free_port()
        error = session.post("/attach", {"port": port}).refused("ATTACH_REFUSED", 502)
        assert f":{port} cannot be connected to: Connection refused" in error["message"]
        assert session.status()["status"] == "created"


def test_through_a_tunnel_that_connects_late(relay: Client, joined: Target) -> None:
    program, target = joined
    tunnel = SlowTunnel(target.port, 1.6)
    try:
        with relay.session() as session:
            session.break_at(program, program["line"])
            session.post("/attach", {"port": tunnel.port, "wait": 10}).ok()
            assert session.line() == program["line"]
            assert session.step()["current_location"]["line"] == program["line"] + 1
            session.post("/detach").ok()
            # And nothing is spoilt for the next client.
            session.post("/attach", {"port": target.port, "wait": 10}).ok()
            assert session.line() == program["line"]
    finally:
        tunnel.close()
    assert target.process.poll() is None


@pytest.mark.parametrize("seconds", [0.3, 1.4])
def test_somebody_who_says_nothing(relay: Client, seconds: float) -> None:
    with socket.socket() as silent, relay.session() as session:
        silent.bind(("127.0.0.1", 0))
        silent.listen(1)
        began = time.monotonic()
        body = {"port": silent.getsockname()[1], "connect_timeout": seconds}
        error = session.post("/attach", body).refused("ATTACH_TIMEOUT", 504)
        assert f"sent nothing for {seconds} s" in error["message"]
        assert seconds <= time.monotonic() - began < seconds + 5
        assert session.status()["status"] == "created"


@pytest.mark.parametrize(
    ("greeting", "answer", "told"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", b"", "SSH-2.0"),
        (b"", b"HTTP/1.0 400 Bad Request\r\n", "HTTP/1.0 400"),
        (b"", b"", "closed the connection"),
    ],
)
def test_others_that_listen_there(relay: Client, greeting: bytes, answer: bytes, told: str) -> None:
    with socket.socket() as listener, relay.session() as session:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.sendall(greeting)
                peer.recv(10)
                peer.sendall(answer)
                peer.shutdown(socket.SHUT_WR)
                peer.recv(1 << 16)

        server = threading.Thread(target=serve)
        server.start()
        body = {"port": listener.getsockname()[1]}
        error = session.post("/attach", body).refused("ATTACH_REFUSED", 502)
        assert told in error["message"]
        assert "debugpy --listen" in error["details"]["suggestion"]
        server.join()


def test_a_second_client_is_refused(
    relay: Client,
    own_relay: Callable[..., Relay],
    joined: Target,
) -> None:
    _, target = joined
    body = {"port": target.port, "connect_timeout": 5}
    with relay.session() as first, relay.session() as second:
        first.post("/attach", body).ok()
        second.post("/attach", body).refused("ATTACH_ALREADY_ATTACHED", 409)
        # one of whom this relay knows nothing
        with own_relay().client.session() as other:
            error = other.post("/attach", body).refused("ATTACH_REFUSED", 502)
            assert "has a client already" in error["message"]
        assert first.status()["status"] == "running"
        # A program that does not answer keeps nobody waiting. Where it is, its pid does not say.
        thread = first.get("/threads").ok()["threads"][0]["id"]
        target.process.send_signal(signal.SIGSTOP)
        try:
            error = first.get(f"/threads/{thread}/stacktrace").refused("DEBUGPY_TIMEOUT", 504)
        finally:
            target.process.send_signal(signal.SIGCONT)
        assert (error["details"]["timeout"], "pid" in error["details"]) == (2, False)


@pytest.mark.parametrize("body", [{}, {"pid": 1, "port": 2}])
def test_pid_or_port(relay: Client, body: dict[str, int]) -> None:
    with relay.session() as session:
        session.post("/attach", body).refused("INVALID_REQUEST", 400)
