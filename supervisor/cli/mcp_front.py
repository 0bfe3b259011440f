"""`debug-relay mcp`: the tools over standard input and output, done by a relay over HTTP."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, Final

from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server

from debug_relay.supervisor.cli.client.address import Address, NoRelay
from debug_relay.supervisor.cli.client.calls import Refused, Relay
from debug_relay.supervisor.cli.private_start import PrivateRelay
from debug_relay.supervisor.mcp.calls import Calls, Form, ToolError
from debug_relay.supervisor.mcp.sdk import server

_MODERN: Final = "auto"
# Calls of the relay at one time: most of them wait for a stop. Further ones wait for a thread.
_MOST_CALLS: Final = 64


def serve(address: Address | None, token: str | None, agent: str, era: str) -> None:
    """Serves until standard input ends. Without an address it has a private relay, which the first
    call starts. `era` is `legacy` or `auto`.
    """
    private: list[PrivateRelay] = []

    def connect() -> Relay:
        if address is not None:
            return Relay(address, token, agent)
        with starting:
            if not private:
                private.append(PrivateRelay())
            return Relay(private[0].address(), None, agent)

    starting = threading.Lock()
    # A thread of the SDK waits for input, which only the end of the process can interrupt.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        with ThreadPoolExecutor(_MOST_CALLS, "call") as threads:
            asyncio.run(_serve(_RelayCalls(connect, threads), era))
    finally:
        for relay in private:
            relay.end()


async def _serve(calls: Calls, era: str) -> None:
    tools = server(lambda _context: calls)
    async with stdio_server() as (read, write):
        if era == _MODERN:
            await tools.run(read, write, tools.create_initialization_options())
            return
        # A client that asks `server/discover` first and then shakes hands is answered in both
        # cases; `Server.run` would refuse its handshake from then on.
        async with tools.lifespan(tools) as state:
            await serve_loop(tools, read, write, lifespan_state=state)


class _RelayCalls:
    """Operations of a relay by HTTP, each in a thread, which ends when the call is cancelled."""

    def __init__(self, connect: Callable[[], Relay], threads: ThreadPoolExecutor) -> None:
        self._connect = connect
        self._threads = threads

    async def reply(
        self, operation: str, fields: Mapping[str, Any], form: Form
    ) -> tuple[int, bytes]:
        loop = asyncio.get_running_loop()
        relay = await loop.run_in_executor(self._threads, self._connected)
        try:
            return await loop.run_in_executor(
                self._threads, self._call, relay, operation, dict(fields), form
            )
        except asyncio.CancelledError:
            relay.hang_up()
            raise

    def _connected(self) -> Relay:
        try:
            return self._connect()
        except NoRelay as error:
            raise _no_relay(error) from None

    def _call(
        self, relay: Relay, operation: str, fields: dict[str, Any], form: str
    ) -> tuple[int, bytes]:
        try:
            with closing(relay):
                reply = relay.call(operation, form=form, **fields)
        except Refused as refused:
            reply = refused.reply
        except NoRelay as error:
            raise _no_relay(error) from None
        return reply.status, reply.body


def _no_relay(error: NoRelay) -> ToolError:
    return ToolError(f"error: {error}\nnext: start one: debug-relay serve")
