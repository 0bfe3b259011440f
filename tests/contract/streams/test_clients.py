"""Other clients than those of the other tests: aiohttp's, HEAD, HTTP/1.0; many commands at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp

from tests.kit.client import Client
from tests.kit.source import Source
from tests.kit.streams import socket_url
from tests.kit.wire import Wire

LOOPS = """
    import time
    print("up")
    n = 0  # @line
    while True:
        n += 1
        time.sleep(0.01)
"""
WITHIN = 30.0


async def test_aiohttp(relay: Client, source: Callable[..., Source]) -> None:
    program = source(LOOPS)
    session = await asyncio.to_thread(relay.session)
    session_url = f"/sessions/{session.id}"
    async with (
        asyncio.timeout(WITHIN),
        aiohttp.ClientSession(headers={"X-Agent": "ian"}) as http,
        http.ws_connect(socket_url(relay, f"{session_url}/debug"), heartbeat=1) as debug,
        http.ws_connect(socket_url(relay, f"{session_url}/logs")) as logs,
        http.get(f"{relay.url}{session_url}/events/stream?types=stopped") as events,
    ):
        assert events.content_type == "text/event-stream"
        results: dict[Any, Any] = {}
        acks: list[Any] = []
        pushed: list[Any] = []

        async def result(id: Any) -> Any:
            while id not in results:
                told = await debug.receive_json()
                {"ack": acks, "event": pushed}.get(told["kind"], []).append(told)
                if told["kind"] == "result":
                    results[told["id"]] = told["payload"]
            assert results[id]["success"], results[id]
            return results[id]["data"]

        async def send(id: Any, action: str, **arguments: Any) -> None:
            await debug.send_json({"action": action, "id": id, "arguments": arguments})

        await send(1, "set-breakpoints", file=str(program), line=program["line"])
        await send(2, "launch", script=str(program), wait=20)
        assert (await result(2))["stop_reason"] == "breakpoint"
        assert results[1]["data"]["breakpoints"][0]["verified"]
        # A call that waits holds up no other: the pause ends it.
        await send("go", "continue", wait=60)
        await send("see", "session-status")
        await send("halt", "pause")
        assert (await result("halt"))["status"] == "paused"
        assert (await result("go"))["stop_reason"] == "pause"
        assert [ack["id"] for ack in acks] == [1, 2, "go", "see", "halt"]
        # Path, query and body of the HTTP call are all arguments here.
        for n in range(100):
            await send(n + 10, "get-breakpoint", breakpoint_id="bp_1")
        await send("vars", "frame-variables", frame_id=0, count=5, summary=True)
        await send("list", "list-breakpoints", verified=True)
        await send("back", "delete-breakpoint", breakpoint_id="bp_1")
        await result("back")
        assert len((await result("list"))["breakpoints"]) == 1
        assert (await result("vars"))["variables"]
        assert sum(isinstance(id, int) for id in results) == 102
        seqs = [event["seq"] for event in pushed]
        assert seqs == sorted(set(seqs))
        assert {event["payload"].get("caller") for event in pushed} <= {"ian", None}
        assert (await logs.receive_json())["text"] == "up\n"
        await debug.ping(b"there?")
        told = []
        while told.count(b"event: stopped\n") < 2:
            told.append(await events.content.readline())
        assert told[0] == b"retry: 1000\n"
        await asyncio.to_thread(session.delete, force="true")
        assert (await logs.receive()).json()["end"] == "deleted"
        closing = await logs.receive()
        assert (closing.type, closing.data) == (aiohttp.WSMsgType.CLOSE, 1000)


def test_head_and_http_1_0(relay: Client) -> None:
    session = relay.session()
    answer = relay.call("HEAD", f"/sessions/{session.id}/output/stream")
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    wire = Wire(relay)
    with wire.connect() as sock:
        path = f"{wire.prefix}/sessions/{session.id}/events/stream"
        sock.sendall(f"GET {path} HTTP/1.0\r\nHost: {wire.host}\r\n\r\n".encode())
        raw = b""
        while b"retry" not in raw:
            raw += sock.recv(65536)
        session.delete().ok()
        while piece := sock.recv(65536):
            raw += piece
    head, _, body = raw.partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert body.startswith(b"retry: 1000\n\n")
    assert b'event: end\ndata: {"reason":"deleted"' in body
