"""`debug-relay mcp`: the tools over standard input and output, done by a relay over HTTP."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
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
    try:
        asyncio.run(_serve(_RelayCalls(connect), era))
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
    """Operations of a relay by HTTP, each in a thread."""

    def __init__(self, connect: Callable[[], Relay]) -> None:
        self._connect = connect

    async def reply(
        self, operation: str, fields: Mapping[str, Any], form: Form
    ) -> tuple[int, bytes]:
        return await asyncio.to_thread(self._call, operation, dict(fields), form)

    def _call(self, operation: str, fields: dict[str, Any], form: str) -> tuple[int, bytes]:
        try:
            with closing(self._connect()) as relay:
                reply = relay.call(operation, form=form, **fields)
        except Refused as refused:
            reply = refused.reply
        except NoRelay as error:
            raise ToolError(f"error: {error}\nnext: start one: debug-relay serve") from None
        return reply.status, reply.body
