"""The protocol by the official SDK: the only module that knows it.

The SDK is the extra `[mcp]`. Importing it takes half a second and 60 MB, so this module is imported
when the first client speaks MCP.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server

from debug_relay.protocol.version import VERSION
from debug_relay.supervisor.mcp.calls import Calls
from debug_relay.supervisor.mcp.tools import INSTRUCTIONS, TOOLS, Tool, perform

Context = ServerRequestContext[Any, Any]


def listed(tool: Tool) -> types.Tool:
    hints = types.ToolAnnotations(
        read_only_hint=tool.reads or None,  # else destructive by default
        idempotent_hint=tool.repeatable or None,
    )
    return types.Tool(
        name=tool.name, description=tool.words, input_schema=tool.schema, annotations=hints
    )


def server(calls_of: Callable[[Context], Calls]) -> Server[Any]:
    """A server whose tools call operations as the caller of the request may."""

    async def list_tools(
        _context: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[listed(tool) for tool in TOOLS.values()])

    async def call_tool(
        context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        async def progress(passed: float, words: str) -> None:
            await context.session.report_progress(passed, None, words)

        answer = await perform(params.name, params.arguments, calls_of(context), progress)
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=answer.text)], is_error=answer.failed
        )

    return Server(
        "debug-relay",
        version=VERSION,
        title="OpenCode Debug Relay",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
