"""The handshakes of four IDEs, message for message: VS Code's and nvim-dap's as their sources send
them, dape's and PyCharm's as far as they are known.

Each is written down in `golden/`: what the IDE says and what it is told, ids that vary masked.
A transcript that is not there is written; `git diff` then shows what a change has changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.kit.client import Client
from tests.kit.ide import Ide, Message
from tests.kit.source import Source

GOLDEN: Final = Path(__file__).with_name("golden")
PROGRAM = """
    def work(n):
        total = n * 2  # @work
        return total  # @next

    work(1)
    work(2)
"""
# These come when they come, and have tests of their own.
AT_ANY_TIME: Final = ("module", "thread", "output")
# What differs from run to run.
MASKED: Final = re.compile(r"(sess_\w+|/(?:tmp|dev/shm)/[\w./-]+/)")


def vs_code(ide: Ide, path: str, program: Source) -> None:
    """Asks for threads at once; takes the first frame, then the others; leaves by disconnect."""
    fields = {
        "clientName": "Visual Studio Code",
        "locale": "en",
        "pathFormat": "path",
        "supportsVariableType": True,
        "supportsVariablePaging": True,
        "supportsRunInTerminalRequest": True,
        "supportsProgressReporting": True,
        "supportsInvalidatedEvent": True,
        "supportsMemoryReferences": True,
        "supportsStartDebuggingRequest": True,
        "linesStartAt1": True,
        "columnsStartAt1": True,
    }
    ide.ask("initialize", clientID="vscode", adapterID="debugpy", **fields)
    attached = ide.send(
        "attach",
        name="Join the agent",
        type="debugpy",
        request="attach",
        connect={"host": "127.0.0.1", "port": 5678},
        pathMappings=[{"localRoot": "/workspace", "remoteRoot": "."}],
        justMyCode=True,
        redirectOutput=True,
        debugOptions=["RedirectOutput", "ShowReturnValue"],
        clientOS="unix",
        __configurationTarget=6,
        __sessionId="00000000-0000-0000-0000-000000000000",
    )
    ide.event("initialized")
    assert ide.answer(attached)["success"]
    ide.ask(
        "setBreakpoints",
        source={"name": "program.py", "path": path},
        lines=[program["next"]],
        breakpoints=[{"line": program["next"]}],
        sourceModified=False,
    )
    ide.ask("setFunctionBreakpoints", breakpoints=[])
    ide.ask("setExceptionBreakpoints", filters=["uncaught"], filterOptions=[])
    ide.ask("configurationDone")
    thread = ide.event("stopped")["threadId"]
    ide.ask("threads")
    frame = ide.ask("stackTrace", threadId=thread, startFrame=0, levels=1)["stackFrames"][0]
    ide.ask("stackTrace", threadId=thread, startFrame=1, levels=19)
    scope = ide.ask("scopes", frameId=frame["id"])["scopes"][0]
    ide.ask("variables", variablesReference=scope["variablesReference"])
    ide.ask("evaluate", expression="n", frameId=frame["id"], context="hover")
    before = len(ide.messages)
    ide.ask("next", threadId=thread, granularity="statement")
    ide.event("stopped", before)
    ide.ask("disconnect", restart=False, terminateDebuggee=False)


def nvim_dap(ide: Ide, path: str, program: Source) -> None:
    """Sends `attach` without waiting; leaves by `dap.disconnect()`."""
    fields = {
        "columnsStartAt1": True,
        "linesStartAt1": True,
        "locale": "en_US",
        "pathFormat": "path",
    }
    ide.ask(
        "initialize",
        adapterID="nvim-dap",
        clientID="neovim",
        clientName="neovim",
        supportsRunInTerminalRequest=True,
        supportsVariableType=True,
        supportsStartDebuggingRequest=True,
        supportsProgressReporting=True,
        **fields,
    )
    attached = ide.send("attach", type="python", request="attach", name="Join the agent")
    ide.event("initialized")
    assert ide.answer(attached)["success"]
    ide.ask(
        "setBreakpoints",
        source={"path": path, "name": "program.py"},
        sourceModified=False,
        breakpoints=[{"line": program["next"]}],
        lines=[program["next"]],
    )
    ide.ask("setExceptionBreakpoints", filters=["uncaught"])
    ide.ask("configurationDone")
    thread = ide.event("stopped")["threadId"]
    ide.ask("threads")
    frame = ide.ask("stackTrace", threadId=thread, startFrame=0)["stackFrames"][0]
    ide.ask("scopes", frameId=frame["id"])
    before = len(ide.messages)
    ide.ask("continue", threadId=thread)
    ide.event("stopped", before)
    ide.ask("disconnect", restart=False, terminateDebuggee=False)


def dape(ide: Ide, path: str, program: Source) -> None:
    """Sends `attach` right after `initialize`, unasked; its configuration has a `nil` or two."""
    ide.ask(
        "initialize",
        clientID="dape",
        adapterID="python",
        pathFormat="path",
        linesStartAt1=True,
        columnsStartAt1=True,
        supportsRunInTerminalRequest=True,
        supportsStartDebuggingRequest=True,
        supportsVariableType=True,
    )
    attached = ide.send("attach", type="python", justMyCode=None, pathMappings=[])
    ide.event("initialized")
    ide.ask(
        "setBreakpoints",
        source={"path": path},
        breakpoints=[{"line": program["next"], "condition": None}],
    )
    ide.ask("setExceptionBreakpoints", filters=["uncaught"])
    ide.ask("configurationDone")
    assert ide.answer(attached)["success"]
    thread = ide.event("stopped")["threadId"]
    ide.ask("threads")
    frame = ide.ask("stackTrace", threadId=thread, levels=1)["stackFrames"][0]
    scope = ide.ask("scopes", frameId=frame["id"])["scopes"][0]
    ide.ask("variables", variablesReference=scope["variablesReference"])
    ide.ask("terminate")
    ide.event("terminated")
    ide.ask("disconnect", terminateDebuggee=True)


def pycharm(ide: Ide, path: str, program: Source) -> None:
    """`Attach to DAP`: asks things that debugpy alone knows, and goes on when they are refused."""
    ide.ask(
        "initialize",
        clientID="intellij",
        clientName="PyCharm",
        adapterID="python",
        pathFormat="path",
        linesStartAt1=True,
        columnsStartAt1=True,
        supportsVariableType=True,
        supportsVariablePaging=False,
        supportsRunInTerminalRequest=False,
    )
    ide.refused("pydevdSystemInfo")
    attached = ide.send("attach", justMyCode=False, pathMappings=None, subProcess=True)
    ide.event("initialized")
    ide.ask(
        "setBreakpoints",
        source={"path": path},
        breakpoints=[{"line": program["next"], "condition": "", "logMessage": ""}],
    )
    ide.ask("setExceptionBreakpoints", filters=[])
    ide.ask("configurationDone")
    assert ide.answer(attached)["success"]
    thread = ide.event("stopped")["threadId"]
    ide.ask("threads")
    frame = ide.ask("stackTrace", threadId=thread, startFrame=0, levels=0)["stackFrames"][0]
    ide.ask("scopes", frameId=frame["id"])
    ide.refused("setDebuggerProperty", showReturnValue=True)
    before = len(ide.messages)
    ide.ask("stepOut", threadId=thread, singleThread=False)
    ide.event("stopped", before)
    ide.ask("disconnect")


def transcript(ide: Ide) -> str:
    """Requests, responses and events, each behind the request that the IDE waited for."""
    lines: list[str] = []
    sent = {m["seq"]: m for m in ide.sent}
    shown: set[int] = set()
    for message in ide.messages:
        if message["type"] == "response":
            # Requests that were sent before it stand before it.
            for seq in sorted(set(sent) - shown):
                if seq <= message["request_seq"]:
                    shown.add(seq)
                    lines.append(f"→ {sent[seq]['command']} {body_of(sent[seq]['arguments'])}")
            kind = "←" if message["success"] else "← refused:"
            said = message.get("body") if message["success"] else message["message"]
            lines.append(f"{kind} {message['command']} {body_of(said)}")
        elif message["event"] not in AT_ANY_TIME:
            lines.append(f"← event {message['event']} {body_of(message.get('body'))}")
    # Whether a paused program that is ended is told to run again first depends on what is seen
    # first: that its connection is lost, or that it has ended.
    before_end = [n for n, line in enumerate(lines) if line.startswith("← event exited")]
    for n in before_end:
        if lines[n - 1].startswith("← event continued"):
            lines[n - 1] = ""
    return "\n".join(filter(None, lines)) + "\n"


def body_of(value: Any) -> str:
    return MASKED.sub("…/", json.dumps(value, ensure_ascii=False, sort_keys=True))


@pytest.mark.parametrize("flow", [vs_code, nvim_dap, dape, pycharm], ids=lambda flow: flow.__name__)
def test_a_handshake(
    relay: Client, source: Callable[..., Source], flow: Callable[[Ide, str, Source], None]
) -> None:
    program = source(PROGRAM)
    with relay.session() as session, Ide(session) as ide:
        session.break_at(program, program["work"])
        session.launch(program)
        flow(ide, str(program.path), program)
        ide.until_closed()
        said = transcript(ide)
        left: Message = session.status()
        assert left["status"] == ("terminated" if flow is dape else "paused")
    golden = GOLDEN / f"{flow.__name__}.txt"
    if not golden.exists():
        GOLDEN.mkdir(exist_ok=True)
        golden.write_text(said, encoding="utf-8")
    assert said == golden.read_text(encoding="utf-8")
