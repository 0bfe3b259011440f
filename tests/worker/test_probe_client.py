"""Questions to stopped threads, and whose answers count."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import AsyncExitStack
from typing import Any

import pytest

from debug_relay.protocol.errors import RelayError
from debug_relay.protocol.wire.dap import StackFrame
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.hub import Hub
from debug_relay.worker.debugger.probe_client import ProbeClient
from debug_relay.worker.debugger.probe_engine import ProbeEngine


async def connected(stack: AsyncExitStack) -> tuple[DebugServer, asyncio.StreamReader, Any]:
    """A debug server, and what it reads and writes by."""
    ours, theirs = socket.create_server(("127.0.0.1", 0)), socket.socket()
    with ours:
        theirs.connect(ours.getsockname())
        accepted, _ = ours.accept()
    server = DebugServer(lambda *_: None, lambda *_: None)
    await asyncio.get_running_loop().connect_accepted_socket(lambda: server, accepted)
    reader, writer = await asyncio.open_connection(sock=theirs)
    stack.callback(writer.close)
    stack.callback(server.close)
    return server, reader, writer


def posted(seq: int) -> bytes:
    """The thread has the question."""
    response = {
        "type": "response",
        "request_seq": seq,
        "success": True,
        "body": {"result": {"gone": False}},
    }
    body = json.dumps(response).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def told(number: int, value: str) -> bytes:
    variable = {"name": "return", "type": "str", "value": value}
    return json.dumps({"id": number, "value": variable}).encode()


async def test_only_whom_it_was_put_to_answers_a_question() -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(10):
        asked, reader, writer = await connected(stack)
        other, _, _ = await connected(stack)
        asking = ProbeClient(Hub(5))
        asked.engine = ProbeEngine(asked, asking)
        waiting = asyncio.create_task(asking.returned(asked, StackFrame(id=1, name="f", line=1), 5))
        head = await reader.readuntil(b"\r\n\r\n")
        request = json.loads(await reader.readexactly(int(head.split(b":")[1])))
        number = request["arguments"]["id"]
        forged = told(number, "forged")
        asking.answered(other, forged)
        writer.write(posted(request["seq"]))
        asking.answered(other, forged)
        asking.answered(asked, told(number, "true"))
        found = await waiting
        assert found is not None
        assert found.value == "true"


async def test_an_answer_of_another_shape_is_refused_in_words() -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(10):
        asked, reader, _ = await connected(stack)
        asking = ProbeClient(Hub(5))
        asked.engine = ProbeEngine(asked, asking)
        waiting = asyncio.create_task(asking.returned(asked, StackFrame(id=1, name="f", line=1), 5))
        head = await reader.readuntil(b"\r\n\r\n")
        request = json.loads(await reader.readexactly(int(head.split(b":")[1])))
        number = request["arguments"]["id"]
        asked.data_received(posted(request["seq"]))
        asking.answered(asked, json.dumps({"id": number, "value": 7}).encode())
        with pytest.raises(RelayError, match=r"Expected `object \| null`, got `int`"):
            await waiting
