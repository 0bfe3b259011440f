"""The relay itself: health, configuration, processes."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from debug_relay.protocol.models.fields import Json, Limit, Offset, Params, Pid, Result, Time
from debug_relay.protocol.models.processes import Process


class Health(Result, kw_only=True):
    status: Literal["healthy", "unhealthy"]
    version: str
    uptime_seconds: float
    active_sessions: int
    debugpy_available: bool
    warnings: list[str] = []


class Info(Result, kw_only=True):
    name: str
    version: str
    api_version: str
    python_version: str
    debugpy_version: str | None
    runs_as_root: bool  # launched programs run as root too
    capabilities: dict[str, Json]
    endpoints: list[str]


class Configuration(Result, kw_only=True):
    config: dict[str, Json]
    origins: dict[str, str]
    changeable: list[str]
    persisted: bool = True  # false: changes made by PATCH are lost when the relay stops


class Ticket(Result, kw_only=True):
    """A page offers `protocols` when it opens a WebSocket. It may do so once, and soon."""

    ticket: str
    protocols: list[str]
    expires_at: Time


class OpenCommands(Params, kw_only=True):
    """Send commands to any session over one WebSocket; the results come back over it."""

    front: (
        Annotated[
            str,
            Meta(
                max_length=40,
                pattern=r"^[A-Za-z0-9 ._-]+$",
                description="The name of a person's front, as in the header X-Human-Front.",
            ),
        ]
        | None
    ) = None


class PatchConfig(Params, kw_only=True):
    """Change settings that may be changed while the relay runs."""

    sessions: Annotated[
        dict[str, Json], Meta(max_length=100, description="Keys of `[sessions]`.")
    ] = {}
    output: Annotated[dict[str, Json], Meta(max_length=100, description="Keys of `[output]`.")] = {}
    dap: Annotated[dict[str, Json], Meta(max_length=100, description="Keys of `[dap]`.")] = {}
    limits: Annotated[dict[str, Json], Meta(max_length=100, description="Keys of `[limits]`.")] = {}
    log: Annotated[dict[str, Json], Meta(max_length=100, description="Keys of `[log]`.")] = {}
    # None of their keys can be changed at run time; they are here so that the refusal names the
    # key.
    server: Annotated[
        dict[str, Json], Meta(max_length=100, description="No key can be changed at run time.")
    ] = {}
    python: Annotated[
        dict[str, Json], Meta(max_length=100, description="No key can be changed at run time.")
    ] = {}
    auth: Annotated[
        dict[str, Json], Meta(max_length=100, description="No key can be changed at run time.")
    ] = {}


class Shutdown(Params, kw_only=True):
    """Stop the relay; launched programs end, attached ones keep running."""

    keep_sessions: Annotated[
        bool | None,
        Meta(description="Leave the sessions to the next relay; default: as configured at start."),
    ] = None


class ShuttingDown(Result, kw_only=True):
    stopping: bool
    keep_sessions: bool
    sessions: int


class ListProcesses(Params, kw_only=True):
    """The Python processes that could be debugged."""

    offset: Offset = 0
    limit: Limit = 100
    match: (
        Annotated[
            str,
            Meta(max_length=1000, description="Only processes whose command line contains this."),
        ]
        | None
    ) = None


class ProcessList(Result, kw_only=True):
    items: list[Process]
    total: int
    offset: int
    limit: int
    has_more: bool
    not_looked_into: Annotated[
        int,
        Meta(
            description="Number of processes that may embed a Python and that this call had no "
            "time to examine; call again, the next call continues with them."
        ),
    ] = 0


class OneProcess(Params, kw_only=True):
    """One process."""

    pid: Pid


class ReadStacks(OneProcess, kw_only=True):
    """Show the stack of every thread of a process, without stopping it or attaching."""

    locals: Annotated[
        bool, Meta(description="With the locals, as py-spy reads them from memory.")
    ] = False


class McpMessage(Params, kw_only=True):
    """One message of the Model Context Protocol, in JSON-RPC."""

    jsonrpc: Annotated[Literal["2.0"], Meta(description="The version of JSON-RPC.")] = "2.0"
    id: Annotated[int | str | None, Meta(description="The reply has it too.")] = None
    method: Annotated[str, Meta(description="Such as `tools/call`.")]
    params: Annotated[dict[str, Json], Meta(description="As the method takes them.")] = {}


class Document(Result, kw_only=True):
    """A document in a format of its own, without the envelope."""
