"""Standard input: when a program waits for it and for what, and what it is given."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.client import Client, Session
from tests.kit.relay import eventually
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

Write = Callable[..., Source]

# One after the other: what the program does, and the prompt that it shows meanwhile.
WAYS = {
    "functions": (
        ('import os\nprint("hello " + os.read(0, 100).decode(), end="", flush=True)', None),
        ('print("hello " + input("Name? "))', "Name? "),
        (
            'import sys\nprint("Your name:", flush=True)\nprint("hello " + sys.stdin.readline())',
            "",
        ),
    ),
    "others": (
        ('import sys\nprint("hello " + sys.stdin.readline(), end="")', None),
        (
            "import threading\n"
            't = threading.Thread(target=lambda: print("hello " + input("In a thread? ")))\n'
            "t.start()\nt.join()",
            "In a thread? ",
        ),
        ('import subprocess\nsubprocess.run(["sh", "-c", "read x; echo hello $x"])', ""),
    ),
}


def waiting(session: Session) -> Any:
    """The status, as soon as it says that the program waits."""
    return eventually(lambda: (s := session.status())["waiting_for_input"] and s)


@pytest.mark.parametrize("way", WAYS)
def test_who_waits_is_seen_and_answered(
    relay: Client, source: Write, python: str, way: str
) -> None:
    prompts = [prompt for _, prompt in WAYS[way]]
    program = source("\n".join(text for text, _ in WAYS[way]) + "\n")
    with relay.session(python_path=python) as session:
        session.launch(program, wait=0)
        for count, prompt in enumerate(prompts, 1):
            assert waiting(session)["prompt"] == prompt
            shown = session.get().ok()
            assert (shown["waiting_for_input"], shown["prompt"]) == (True, prompt)
            assert shown["warning"] is None
            session.post("/input", {"input": "Ada\n"}).ok()
            eventually(lambda n=count: session.printed("stdout").count("hello Ada") == n)
        eventually(lambda: session.status()["status"] == "terminated")
        assert session.status()["exit_code"] == 0
        assert session.status()["waiting_for_input"] is False
        told = [event["body"] for event in session.events("input")]
        assert [body["waiting_for_input"] for body in told] == [True, False] * len(prompts)
        assert [body.get("prompt") for body in told[::2]] == prompts


def test_each_question_has_its_prompt(relay: Client, source: Write) -> None:
    """A finished line is no prompt, and half a line is no answer."""
    program = source(
        'print("Welcome")\ninput()\nfor i in range(3):\n    print("got", input(f"{i}? "))\n'
    )
    with relay.session() as session:
        session.launch(program, wait=0)
        assert waiting(session)["prompt"] == ""
        session.post("/input", {"input": "\n"}).ok()
        for i in range(2):
            eventually(lambda i=i: session.status()["prompt"] == f"{i}? ")
            session.post("/stdin", {"input": f"{i * i}\n"}).ok()
            assert session.status()["prompt"] != f"{i}? "
        eventually(lambda: session.status()["prompt"] == "2? ")
        session.post("/input", {"input": "4"}).ok()
        eventually(lambda: session.status()["waiting_for_input"])
        shown = session.status()
        assert shown["prompt"] == "2? "
        assert "line end" in shown["warning"]
        session.post("/input", {"input": "2\n"}).ok()
        eventually(lambda: session.status()["status"] == "terminated")
        assert session.status()["warning"] is None
        assert session.printed("stdout") == "Welcome\n0? got 0\n1? got 1\n2? got 42\n"


def test_what_is_given_beforehand_is_not_waited_for(relay: Client, source: Write) -> None:
    program = source("print([input() for _ in range(3)])")
    with relay.session() as session:
        ended = session.launch(program, stdin_inputs=["a", "b\n", "ü"])
        assert ended["exit_code"] == 0
        assert session.printed() == "['a', 'b', 'ü']\n"
        assert session.events("input") == []


def test_one_that_computes_or_sleeps_does_not_wait(relay: Client, source: Write) -> None:
    program = source("import time\nprint('Sure? ', end='', flush=True)\ntime.sleep(1)\ninput()\n")
    with relay.session() as session:
        session.launch(program, wait=0)
        eventually(lambda: session.printed() == "Sure? ")
        assert session.status()["waiting_for_input"] is False
        assert waiting(session)["prompt"] == "Sure? "


def test_a_paused_program_does_not_wait(relay: Client, source: Write, python: str) -> None:
    program = source("input('? ')\nprint('over')  # @over\n")
    with relay.session(python_path=python) as session:
        session.break_at(program, program["over"])
        session.launch(program, wait=0)
        waiting(session)
        assert session.post("/pause", {"wait": 20}).ok()["status"] == "paused"
        assert session.status()["waiting_for_input"] is False
        session.post("/continue").ok()
        waiting(session)
        session.post("/input", {"input": "\n"}).ok()
        eventually(lambda: session.status()["status"] == "paused")
        assert session.line() == program["over"]


def test_the_end_of_input(relay: Client, source: Write, python: str) -> None:
    program = source("import sys\nprint(len(sys.stdin.buffer.read()))")
    with relay.session(python_path=python) as session:
        session.launch(program, wait=0)
        waiting(session)
        raw = bytes(range(256))
        body = {"input": "é\n", "base64": base64.b64encode(raw).decode(), "eof": True}
        assert session.post("/input", body).ok()["bytes_written"] == 259
        eventually(lambda: session.status()["status"] == "terminated")
        assert session.printed() == "259\n"


def test_more_than_a_pipe_holds_is_kept_for_a_program_that_stands(
    relay: Client, source: Write
) -> None:
    program = source("import sys\npass  # @here\nprint(len(sys.stdin.read()))")
    with relay.session() as session:
        session.break_at(program, program["here"])
        assert session.launch(program, stdin_inputs=["x" * 999_999])["status"] == "paused"
        session.post("/input", {"input": "y" * 5_000_000}, within=5).ok()
        encoded = base64.b64encode(b"z" * 5_000_000).decode()
        session.post("/input", {"base64": encoded, "eof": True}, within=5).ok()
        error = session.post("/input", {"input": "x"}).refused("INVALID_SESSION_STATE", 409)
        assert "closed" in error["message"]
        assert session.resume()["exit_code"] == 0
        assert session.printed() == "11000000\n"


def test_getpass_needs_a_terminal(relay: Client, source: Write, python: str) -> None:
    program = source("import getpass\nprint(len(getpass.getpass('PIN: ')))")
    with relay.session(python_path=python) as session:
        session.launch(program, wait=0)
        status = waiting(session)
        assert status["prompt"] == "PIN: "
        assert "pty: true" in status["warning"]
        session.post("/input", {"input": "1234\n"}).ok()
        eventually(lambda: session.status()["status"] == "terminated")
        assert session.status()["warning"] is None
        assert session.printed("stdout") == "4\n"
