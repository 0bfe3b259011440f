"""Questions to stopped threads, and whose answers count."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import AsyncExitStack
from typing import Any

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
        asking.answered(other, {"id": number, "value": "forged"})
        told = {
            "type": "response",
            "request_seq": request["seq"],
            "success": True,
            "body": {"result": {"gone": False}},
        }
        body = json.dumps(told).encode()
        writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        asking.answered(other, {"id": number, "value": "forged"})
        asking.answered(asked, {"id": number, "value": "true"})
        assert (await waiting) == {"id": number, "value": "true"}
