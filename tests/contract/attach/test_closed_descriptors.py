"""A program that closes all its descriptors has them for itself, with or without a debugger."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kit.client import Client
from tests.kit.relay import eventually
from tests.kit.running import Running
from tests.kit.source import Source

Write = Callable[..., Source]

# What it opens gets the numbers that the debugger had. Nobody else reads, writes or closes these.
TAKES_ALL = """
    import os, socket, tempfile, time

    def take_all():
        os.closerange(3, 4096)
        pairs = [socket.socketpair() for _ in range(10)]
        files = [tempfile.TemporaryFile(buffering=0) for _ in range(20)]
        return pairs, files

    def lost(pairs, files):
        found = []
        for one, other in pairs:
            for here, there in ((one, other), (other, one)):
                try:
                    here.sendall(b"word")
                    there.settimeout(5)
                    if there.recv(100) != b"word":
                        found.append(there.fileno())
                except OSError as error:
                    found.append((here.fileno(), str(error)))
        for file in files:
            try:
                if os.fstat(file.fileno()).st_size:
                    found.append(file.fileno())
                file.write(b"word")
                file.close()
            except OSError as error:
                found.append(str(error))
        for pair in pairs:
            for end in pair:
                try:
                    end.close()
                except OSError as error:
                    found.append(str(error))
        return found
"""


@pytest.mark.slow
def test_a_launched_program_has_its_descriptors(relay: Client, source: Write, python: str) -> None:
    program = source(
        TAKES_ALL
        + """
    n = 1  # @before
    pairs, files = take_all()
    time.sleep(1.5)
    n = 2  # @after
    print(lost(pairs, files))
    """
    )
    with relay.session(python_path=python) as session:
        session.break_at(program, program["before"])
        session.break_at(program, program["after"])
        assert session.launch(program)["current_location"]["line"] == program["before"]
        end = session.resume()
        assert (end["status"], end["exit_code"]) == ("terminated", 0)
        assert session.printed("stderr") == ""
        assert session.printed("stdout") == "[]\n"
        assert "was lost" in session.printed("console")


@pytest.mark.slow
def test_one_that_ends_at_once_does_so(relay: Client, source: Write, python: str) -> None:
    program = source(TAKES_ALL + "\n    print(lost(*take_all()))\n    kept = take_all()\n")
    with relay.session(python_path=python) as session:
        assert session.launch(program)["exit_code"] == 0
        assert session.printed("stderr") == ""
        assert session.printed("stdout") == "[]\n"
        assert "was lost" not in session.printed("console")


@pytest.mark.slow
@pytest.mark.parametrize("opens", [True, False])
def test_an_attached_program_has_its_descriptors(
    relay: Client, start: Callable[..., Running], python: str, opens: bool
) -> None:
    one = start(
        TAKES_ALL
        + f"""
    print("up", flush=True)
    input()
    pairs, files = take_all() if {opens} else (os.closerange(3, 4096), [])
    print("took", flush=True)
    input()
    print(lost(pairs or [], files), flush=True)
    """,
        python=python,
    )
    stdin = one.process.stdin
    assert stdin is not None
    with relay.session() as session:
        session.post("/attach", {"pid": one.pid, "connect_timeout": 30}).ok()
        stdin.write("\n")
        stdin.flush()
        assert one.line() == "took"
        eventually(lambda: session.status()["status"] == "created", what="it is let go")
        assert "was lost" in session.printed("console")
        stdin.write("\n")
        stdin.flush()
        assert one.line() == "[]"
        assert one.process.wait(20) == 0
        assert one.stderr() == ""


@pytest.mark.slow
def test_a_daemon_among_the_children(relay: Client, source: Write, python: str) -> None:
    """It forks twice and closes all that it has, while its parents go."""
    program = source(
        TAKES_ALL
        + """
    told, tell = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.dup2(tell, 1)
            pairs, files = take_all()
            time.sleep(1.5)
            print(lost(pairs, files), flush=True)
            os._exit(0)
        os._exit(0)
    os.wait()
    os.close(tell)
    print(os.read(told, 1000).decode().strip())
    """
    )
    with relay.session(python_path=python) as session:
        assert session.launch(program, debug_subprocesses=True)["exit_code"] == 0
        assert session.printed("stderr") == ""
        assert session.printed("stdout") == "[]\n"
