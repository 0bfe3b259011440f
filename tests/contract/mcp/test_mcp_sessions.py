"""The official client debugs a program: over HTTP in both eras of the protocol, and over stdio."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.client import Client as Caller
from tests.kit.relay import Relay
from tests.kit.source import Source

if TYPE_CHECKING:
    from mcp.client.client import Client


PROGRAM = """\
import sys

def total(prices):
    amount = 0
    for price in prices:
        amount += price
        print("added", price)
    return amount

print(total([3, 4, -9]))
sys.stdin.readline()
nothing = {}
print(nothing["price"])
"""
# Answers to look at a stop; what a program prints, or its whole stack, may be longer.
SHORT_CHARACTERS = 600


class Agent:
    """Calls tools, and notes how long the answers are."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.longest = ""
        self.folder = "/app"  # the program's, whose length is not the answers' doing

    async def call(self, tool: str, **arguments: Any) -> str:
        answer = await self.client.call_tool(tool, arguments)
        assert answer.structured_content is None
        assert len(answer.content) == 1
        text = answer.content[0].text  # type: ignore[union-attr]
        assert not answer.is_error, text
        shown = text.replace(self.folder, "/app")
        self.longest = max(self.longest, shown, key=len)
        return text

    async def fails(self, tool: str, **arguments: Any) -> str:
        answer = await self.client.call_tool(tool, arguments)
        assert answer.is_error
        return answer.content[0].text  # type: ignore[union-attr]


@pytest.fixture(params=["2026-07-28", "handshake", "stdio", "stdio of a private relay"])
def connected(request: pytest.FixtureRequest, relay: Caller, tmp_path: Path) -> Callable[[], Any]:
    from mcp.client.client import Client
    from mcp.client.stdio import StdioServerParameters

    @asynccontextmanager
    async def connect() -> AsyncIterator[Agent]:
        if not request.param.startswith("stdio"):
            mode = "legacy" if request.param == "handshake" else request.param
            async with Client(f"{relay.url}/mcp", mode=mode) as client:
                yield Agent(client)
            return
        # The tools of a running relay, or of one that ends with the front.
        assert Relay.compiled is not None
        place = ["--url", relay.url] if request.param == "stdio" else []
        parameters = StdioServerParameters(
            command=sys.executable,
            args=["-m", "debug_relay.supervisor", "mcp", *place],
            env={**os.environ, "OPENCODE_DEBUG_DATA_DIR": f"{Relay.compiled}-of-ides"},
        )
        # It asks `server/discover` first, and shakes hands when that is refused.
        async with Client(parameters, mode="auto") as client:
            yield Agent(client)

    return connect


async def test_a_whole_session(connected: Callable[[], Any], source: Callable[..., Source]):
    program = source(PROGRAM)
    file = str(program.path)
    async with connected() as agent:
        agent.folder = str(program.path.parent)
        tools = (await agent.client.list_tools()).tools
        assert len(tools) == 10
        hints = {tool.name: tool.annotations for tool in tools}
        reading = {name for name, hint in hints.items() if hint and hint.read_only_hint}
        assert reading == {"debug_list", "debug_wait", "debug_inspect"}
        # What may run code does not say that it is harmless.
        assert all(hint and hint.destructive_hint is None for hint in hints.values())
        assert await agent.call("debug_list", what="sessions") == "no sessions"
        error = await agent.fails("debug_inspect", what="stop")
        assert error == "error: there is no session\nnext: debug_start"
        started = await agent.call(
            "debug_start",
            script=program.path.name,
            cwd=str(program.path.parent),
            name="shop",
            breakpoints=[
                {"file": program.path.name, "line": 6, "condition": "price < 0"},
                {"file": program.path.name, "line": 2},
            ],
        )
        assert "amount: int = 7" in started
        assert "→ 6 " in started
        assert "bp_2" in started
        assert "not verified" in started
        assert len(agent.longest) <= 800, agent.longest
        agent.longest = ""
        assert "total at" in await agent.call("debug_inspect", what="stack")
        assert "price: int = -9" in await agent.call("debug_inspect", what="variables")
        assert "… 3 in all: start=1" in await agent.call(
            "debug_inspect", what="variables", start=0, limit=1
        )
        assert "amount += price" in await agent.call(
            "debug_inspect", what="source", start=6, limit=1
        )
        assert "next: cursor=" in await agent.call("debug_inspect", what="output")
        error = await agent.fails("debug_list", what="threads")
        assert "debug_list takes what (processes, sessions, stacks); match; pid" in error
        assert await agent.call("debug_evaluate", expression="amount * 2") == "int = 14"
        error = await agent.fails("debug_inspect", what="variables", frame=9)
        assert "next: Use a frame from 0 to 1." in error
        error = await agent.fails("debug_inspect", what="exception")
        assert 'exceptions=["raised"] or exceptions=["ValueError"], then debug_control' in error
        assert "amount: int = -2" in await agent.call("debug_control", action="step_over")
        error = await agent.fails("debug_control", action="step_over", thread=3)
        assert "unknown field `thread`" in error
        assert "thread_id" in error
        error = await agent.fails("debug_evaluate", expression="amount +")
        assert "next: " in error
        assert "/api/v1" not in error
        # A wait that is over is an answer: the program goes on, and says how to wait.
        running = await agent.call("debug_control", action="continue", wait=0.1)
        assert "not stopped yet: wait with debug_wait" in running
        error = await agent.fails("debug_inspect", what="variables")
        assert "debug_control action=pause" in error
        for arguments, wanted in (
            ({"action": "run_to"}, "next: debug_control action=run_to line=N"),
            ({"action": "input"}, "next: debug_control action=input input="),
        ):
            assert wanted in await agent.fails("debug_control", **arguments)
        assert "debug_control action=input" in await agent.call("debug_wait", wait=0.1)
        crashed = await agent.call("debug_control", action="input", input="go on\n")
        assert "KeyError: 'price'" in crashed
        assert "added -9" in await agent.call("debug_inspect", what="output")
        listed = await agent.call(
            "debug_breakpoints", set=[{"file": file, "line": 7}], remove=["bp_1"]
        )
        assert "bp_3" in listed
        assert "bp_1" not in listed
        assert len(agent.longest) <= SHORT_CHARACTERS, agent.longest
        assert "exit code" in await agent.call("debug_control", action="continue")
        assert "deleted" in await agent.call("debug_end")
        assert "KeyError: 'price'" in await agent.call("debug_run", script=file)
        assert len(agent.longest) <= 1000, agent.longest
