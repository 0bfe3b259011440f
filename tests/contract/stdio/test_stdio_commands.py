"""Commands that cannot be done, lines that are no commands, and what a program may do to an IDE.

They use a relay that runs already; `test_stdio_ends.py` has those that start one of their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.kit.client import Client
from tests.kit.source import Source
from tests.kit.stdio_ide import Ide
from tests.meta.documents import block


def test_what_goes_wrong_is_told_as_an_error_event(relay: Client, source: Callable[..., Source]):
    program = source("import time\nx = 1\n\nwhile x:\n    time.sleep(0.01)\nprint(x)\n")
    file = str(program.path)
    with Ide("--url", relay.url) as ide:
        error = ide.ask("stepInto", "error")
        assert error == {"message": "Cannot step: not initialized", "command": "stepInto"}
        for line, message in (
            (b"{\n", "not JSON"),
            (b"[1]\n", "a JSON array"),
            (b"\xff{}\n", "not UTF-8"),
            (b"  \r\n" + b'{"type":"event"}\n', "every message"),
            (b'{"type":"command"}\n', '"command" is missing'),
            (b'{"type":"command","command":"stepin"}\n', "did you mean stepInto?"),
            (b'{"type":"command","command":"evaluate","params":[]}\n', "expression"),
            (b'{"type":"command","command":"evaluate","params":{"expression":1}}\n', "Expected"),
            (b"[" * 100_000 + b"\n", "The line"),
            (b" " * (1 << 20) + b"{}\n", "longer than 1048576 bytes"),
        ):
            ide.write(line)
            assert message in ide.expect("error")[0]["message"], line[:100]
        missing = ide.ask("initialize", "error", file=f"{file}.gone")
        assert missing["message"] == f"The file {file}.gone does not exist"
        # A command may come in pieces, and with fields that a later version of the IDE knows.
        command = {"type": "command", "id": 7, "command": "initialize", "params": {"file": file}}
        for byte in json.dumps(command).encode() + b"\r\n":
            ide.write(bytes([byte]))
        ide.expect("initialized")
        again = ide.ask("initialize", "error", file=file)["message"]
        assert again == "Cannot initialize: it is initialized already"
        error = ide.ask("stepInto", "error")
        documented = {"type": "event", "event": "error", "data": error}
        assert documented == json.loads(block("stdio-refusal"))
        for line_number, words in ((3, "line 2"), (99, "has no line 99"), (0, ">= 1")):
            error = ide.ask("setBreakpoint", "error", file=file, line=line_number)
            assert words in error["message"]
        error = ide.ask("clearBreakpoint", "error", file=file, line=2)
        assert error["message"] == f"There is no breakpoint at {file}:2"
        # No breakpoint is left of those that were refused, so it stops at entry.
        assert ide.ask("start", "started", "stopped")["reason"] == "entry"
        error = ide.ask("evaluate", "error", expression="1/0")
        assert error == {"message": "ZeroDivisionError: division by zero", "command": "evaluate"}
        assert "syntax" in ide.ask("evaluate", "error", expression="1 +")["message"]
        assert "frame" in ide.ask("getVariables", "error", frameIndex=7)["message"].lower()
        ide.send("continue")
        for command in ("getStackTrace", "stepOut", "start"):
            assert "program is running" in ide.ask(command, "error")["message"]
        # A breakpoint can be set while it runs.
        ide.ask("setBreakpoint", "breakpointSet", "stopped", file=file, line=5)
        ide.ask("evaluate", "evaluateResult", expression="x = 0")
        ide.ask("clearBreakpoint", "breakpointCleared", file=file, line=5)
        ide.ask("continue", "output", "exited")
        assert ide.ask("getVariables", "error")["message"].endswith("program has ended")
        assert ide.ask("terminate", "terminated") == {}
        assert ide.is_over()
    assert ide.process.returncode == 0


RAISES = """\
import sys
def divide(a):
    return a / 0
print(input() if sys.argv[1:] else "no arguments")
divide(1)
"""


def test_an_uncaught_exception_is_an_error_event_and_takes_its_course(
    relay: Client, source: Callable[..., Source]
):
    program = source(RAISES)
    file = str(program.path)
    with Ide("--url", relay.url) as ide:
        ide.ask("initialize", "initialized", file=file)
        ide.ask("setBreakpoint", "breakpointSet", file=file, line=4)
        ide.ask("start", "started", "stopped")
        ide.send("continue")
        ide.expect("output")
        error = ide.expect("error")[0]
        assert error["message"] == "ZeroDivisionError: division by zero"
        assert error["location"] == {"file": file, "line": 3, "column": 14}
        documented = json.loads(block("stdio-exception"))["data"]
        assert documented["location"].keys() == error["location"].keys()
        assert {**documented, "location": error["location"]} == error
        assert ide.until("exited") == {"exitCode": 1}
    # The program's input is empty: it does not wait for what no command can send.
    with Ide("--url", relay.url, "--", "x") as ide:
        ide.ask("initialize", "initialized", file=file)
        ide.ask("start", "started", "stopped")
        ide.send("continue")
        assert ide.until("error")["message"].startswith("EOFError")
        ide.until("exited")


def test_a_syntax_error_has_its_place(relay: Client, source: Callable[..., Source]):
    program = source("x = 1\ny = (\n")
    with Ide("--url", relay.url) as ide:
        ide.ask("initialize", "initialized", file=str(program.path))
        error = ide.ask("start", "error")
        assert error["command"] == "start"
        assert error["location"]["line"] == 2
        program.path.write_text("x = 1\n")
        ide.ask("start", "started", "stopped")  # mended, it starts


LARGE = """\
import sys, threading
class Slow:
    def __init__(self): self.many = list(range(100_000))
many = {f"v{n}": n for n in range(3000)}
globals().update(many)
text = "x" * 100_000
sys.stdout.buffer.write(b"\\xff\\n")
for n in range(2000):
    print("line", n, "y" * 500)
print("the end")
"""


def test_bounds_on_variables_values_and_output(relay: Client, source: Callable[..., Source]):
    program = source(LARGE)
    file = str(program.path)
    with Ide("--url", relay.url) as ide:
        ide.ask("initialize", "initialized", file=file)
        ide.ask("setBreakpoint", "breakpointSet", file=file, line=7)
        ide.ask("start", "started", "stopped")
        variables = ide.ask("getVariables", "variables")["variables"]
        assert 900 <= len(variables) <= 1000
        assert len(json.dumps(variables)) < 1_200_000
        assert not any(one["name"].startswith("__") for one in variables)
        assert len(ide.ask("evaluate", "evaluateResult", expression="text")["result"]) <= 10_001
        ide.send("continue")
        text = ""
        while True:
            name, data = ide.next()
            if name != "output":
                break
            assert len(data["text"]) <= 70_000
            text += data["text"]
        assert (name, data) == ("exited", {"exitCode": 0})
        lines = text.splitlines()
        assert lines[0] == "\\xff"
        assert lines[1:] == [f"line {n} {'y' * 500}" for n in range(2000)] + ["the end"]


def test_a_running_relay_s_session_is_shared_and_stays(
    relay: Client, source: Callable[..., Source]
):
    program = source("x = 1\ny = 2\nz = 3\nx = 4\ny = 5\n")
    with relay.session(project_root=str(program.path.parent)) as session:
        point = {"file": str(program.path), "line": 1}
        relay.post(f"/sessions/{session.id}/breakpoints", point).ok()
        session.launch(program.path, wait=30)
        with Ide("--url", relay.url, "--session", session.id) as ide:
            ide.ask("initialize", "initialized", file=str(program.path))
            (joined,) = ide.expect("stopped")
            assert (joined["reason"], joined["breakpointId"]) == ("breakpoint", 1)
            ide.ask("stepOver", "stopped", "variableUpdate")
            # A person drives now, until they leave or an agent takes over expressly.
            refusal = session.post("/step-over").refused("SESSION_LEASED", 423)["details"]
            assert refusal["front"] == "stdio"
            assert refusal["holder"].endswith(" (human)")
            session.post("/lease", {"take_over": True}).ok()
            leased = ide.ask("stepOver", "error")["message"]
            assert "drives this session" in leased
            session.delete("/lease").ok()
            session.step()  # an agent drives too
            assert ide.expect("started", "stopped", "variableUpdate")[1]["location"]["line"] == 3
            ide.ask("stepOver", "stopped", "variableUpdate")
        # The lease ends with the IDE.
        assert session.step()["current_location"]["line"] == 5
    # Without --session it makes one in that relay, which goes with it.
    with Ide("--url", relay.url) as ide:
        ide.ask("initialize", "initialized", file=str(program.path))
        ide.ask("start", "started", "stopped")
        assert len(relay.get("/sessions").ok()["items"]) == 1
    assert relay.get("/sessions").ok()["items"] == []


def test_no_relay_answers():
    with Ide("--url", "http://127.0.0.1:1") as ide:
        error = ide.ask("initialize", "error", file=__file__)
        assert "No relay answers" in error["message"]
        assert ide.is_over()
    assert ide.process.returncode == 1
