"""The relay itself: health, configuration, processes."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from debug_relay.protocol.fields import Json, Limit, Offset, Params, Pid, Result


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
    capabilities: dict[str, Json]
    endpoints: list[str]


class Configuration(Result, kw_only=True):
    config: dict[str, Json]
    origins: dict[str, str]
    changeable: list[str]


class PatchConfig(Params, kw_only=True):
    """Change settings that may be changed while the relay runs."""

    sessions: Annotated[dict[str, Json], Meta(description="Keys of `[sessions]`.")] = {}
    output: Annotated[dict[str, Json], Meta(description="Keys of `[output]`.")] = {}
    dap: Annotated[dict[str, Json], Meta(description="Keys of `[dap]`.")] = {}
    limits: Annotated[dict[str, Json], Meta(description="Keys of `[limits]`.")] = {}
    log: Annotated[dict[str, Json], Meta(description="Keys of `[log]`.")] = {}
    # These have no key that may be changed; they are here to be refused by the key's name.
    server: Annotated[dict[str, Json], Meta(description="None can be changed now.")] = {}
    python: Annotated[dict[str, Json], Meta(description="None can be changed now.")] = {}
    auth: Annotated[dict[str, Json], Meta(description="None can be changed now.")] = {}


class Shutdown(Params, kw_only=True):
    """Stop the relay; launched programs end, attached ones run on."""

    keep_sessions: Annotated[bool, Meta(description="Leave the sessions to the next relay.")] = (
        False
    )


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
            str, Meta(max_length=1000, description="Only those whose command line contains this.")
        ]
        | None
    ) = None


class ProcessList(Result, kw_only=True):
    items: list[Json]
    total: int
    offset: int
    limit: int
    has_more: bool


class OneProcess(Params, kw_only=True):
    """One process."""

    pid: Pid


class Process(Result, kw_only=True):
    process: Json


class Stacks(Result, kw_only=True):
    threads: list[Json]


class Document(Result, kw_only=True):
    """A document of its own format, without the envelope."""


class Run(Params, kw_only=True):
    """From nothing to an answer: launch, trace, run to the end, report."""

    script: Annotated[str | None, Meta(description="The file to run.")] = None
    module: Annotated[
        str | None, Meta(description="Or the module to run, as `python -m` would.")
    ] = None
    code: Annotated[str | None, Meta(description="Or Python source to run.")] = None
    args: Annotated[list[str], Meta(description="Arguments for the program.")] = []
    cwd: Annotated[str | None, Meta(description="Its working directory.")] = None
    env: Annotated[
        dict[str, str | None], Meta(description="Changes to its environment; null unsets.")
    ] = {}
    python_path: Annotated[str | None, Meta(description="The interpreter.")] = None
    venv: Annotated[str | None, Meta(description="Or a virtual environment.")] = None
    trace: Annotated[Json, Meta(description="What to record, as `trace` takes it.")] = None
    timeout: Annotated[
        float, Meta(gt=0, le=300, description="Seconds until the program is ended.")
    ] = 60
    keep_on_exception: Annotated[
        bool, Meta(description="Keep the session, paused, when an exception stops it.")
    ] = False


class RunReport(Result, kw_only=True):
    exit_code: int | None
    signal: str | None
    end_reason: str | None
    output: str
    trace: Json = None
    exception: Json = None
    session_id: str | None = None
