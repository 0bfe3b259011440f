"""Programs on a terminal: size, echo, keys, and nothing of their output lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kit.client import Client
from tests.kit.relay import eventually
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

Write = Callable[..., Source]


@pytest.mark.parametrize(
    ("field", "size"),
    [
        ({"console": "integratedTerminal"}, (80, 24)),
        ({"pty": {"rows": 50, "columns": 132}}, (132, 50)),
    ],
)
def test_it_is_a_terminal(
    relay: Client, source: Write, field: dict[str, object], size: tuple[int, int]
) -> None:
    program = source("""
        import os, sys
        print([stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)])
        print(tuple(os.get_terminal_size()), bool(os.environ["TERM"]), os.path.exists("/dev/tty"))
        os.close(os.open("/dev/tty", os.O_RDWR))
        print(os.tcgetpgrp(0) == os.getpgrp())
    """)
    with relay.session() as session:
        ended = session.launch(program, **field)
        assert ended["exit_code"] == 0, session.printed()
        expected = f"[True, True, True]\r\n{size} True True\r\nTrue\r\n"
        assert session.printed("stdout") == expected


def test_questions_and_echo(relay: Client, source: Write, python: str) -> None:
    program = source("""
        import readline
        print("hello", input("Name? "))
        print("and", input("Age? "))
    """)
    with relay.session(python_path=python) as session:
        session.launch(program, wait=0, pty=True)
        eventually(lambda: session.status()["prompt"] == "Name? ")
        session.post("/input", {"input": "Ada\n"}).ok()
        eventually(lambda: session.status()["prompt"] == "Age? ")
        session.post("/input", {"input": "36\n"}).ok()
        eventually(lambda: session.status()["status"] == "terminated")
        assert session.status()["exit_code"] == 0
        printed = session.printed()
        assert "hello Ada" in printed
        assert printed.count("Ada") == 2  # what is typed is echoed


def test_a_password_is_not_echoed(relay: Client, source: Write, python: str) -> None:
    program = source("import getpass\nprint(len(getpass.getpass('PIN: ')))")
    with relay.session(python_path=python) as session:
        session.launch(program, wait=0, pty=True)
        eventually(lambda: session.status()["prompt"] == "PIN: ")
        assert session.status()["warning"] is None
        session.post("/input", {"input": "9876\n"}).ok()
        eventually(lambda: session.status()["status"] == "terminated")
        assert "9876" not in session.printed()
        assert session.printed().endswith("4\r\n")


def test_ctrl_c_reaches_the_program(relay: Client, source: Write, python: str) -> None:
    program = source("""
        import time
        try:
            print("ready", flush=True)
            time.sleep(600)
        except KeyboardInterrupt:
            print("interrupted")
    """)
    with relay.session(python_path=python) as session:
        session.launch(program, wait=0, pty=True, stop_on_exception=False)
        eventually(lambda: "ready" in session.printed())
        session.post("/input", {"input": "\x03"}).ok()
        eventually(lambda: session.status()["status"] == "terminated")
        assert session.status()["exit_code"] == 0
        assert "interrupted" in session.printed()


def test_keys_that_end_a_line(relay: Client, source: Write) -> None:
    program = source("""
        for _ in range(4):
            try:
                print("got", repr(input("? ")))
            except (KeyboardInterrupt, EOFError) as error:
                print("got", type(error).__name__)
        """)
    with relay.session() as session:
        session.launch(program, wait=0, pty=True, stop_on_exception=False)
        for count, key in enumerate(("\r", "\x03", "\x04"), 1):
            eventually(lambda: session.status()["prompt"] == "? ")
            session.post("/input", {"input": key}).ok()
            eventually(lambda count=count: session.printed().count("got") == count)
            eventually(lambda: session.status()["prompt"] == "? ")
            assert session.status()["warning"] is None, key
        session.post("/input", {"input": "half"}).ok()
        eventually(lambda: session.status()["warning"])
        assert "has no line end" in session.status()["warning"]


@pytest.mark.parametrize("typed", ["", "no line break"])
def test_the_end_of_input(relay: Client, source: Write, typed: str) -> None:
    program = source("import sys\nprint(repr(sys.stdin.read()))")
    with relay.session() as session:
        session.launch(program, wait=0, pty=True)
        eventually(lambda: session.status()["waiting_for_input"])
        session.post("/input", {"input": typed, "eof": True}).ok()
        eventually(lambda: session.status()["status"] == "terminated")
        assert repr(typed) in session.printed()


@pytest.mark.parametrize("end", ["os._exit(3)", "os.kill(os.getpid(), 9)"])
def test_nothing_printed_is_lost(relay: Client, source: Write, end: str) -> None:
    program = source(f"""
        import os, sys
        for i in range(8000):
            sys.stdout.write("%05d\\n" % i)
        sys.stdout.flush()
        {end}
    """)
    with relay.session() as session:
        assert session.launch(program, pty=True)["status"] == "terminated"
        printed, cursor = "", None
        while True:
            query = {"cursor": cursor} if cursor else {}
            page = session.get("/output", limit=1000, **query).ok()
            printed += "".join(entry["output"] for entry in page["entries"])
            cursor = page["next_cursor"]
            if not page["has_more"]:
                break
        assert printed == "".join(f"{i:05}\r\n" for i in range(8000))
