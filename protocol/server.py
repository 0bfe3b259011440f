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
    changeable: list[str]


class PatchConfig(Params, kw_only=True):
    """Change settings that may be changed while the relay runs."""

    sessions: dict[str, Json] = {}
    output: dict[str, Json] = {}
    dap: dict[str, Json] = {}
    limits: dict[str, Json] = {}
    log: dict[str, Json] = {}


class Shutdown(Params, kw_only=True):
    """Stop the relay; launched programs end, attached ones run on."""

    keep_sessions: bool = False


class ShuttingDown(Result, kw_only=True):
    stopping: bool
    keep_sessions: bool
    sessions: int


class ListProcesses(Params, kw_only=True):
    """The Python processes that could be debugged."""

    offset: Offset = 0
    limit: Limit = 100
    match: Annotated[str, Meta(max_length=1000)] | None = None


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

    script: str | None = None
    module: str | None = None
    code: str | None = None
    args: list[str] = []
    cwd: str | None = None
    env: dict[str, str | None] = {}
    python_path: str | None = None
    venv: str | None = None
    trace: Json = None
    timeout: Annotated[float, Meta(gt=0, le=300)] = 60
    keep_on_exception: bool = False


class RunReport(Result, kw_only=True):
    exit_code: int | None
    signal: str | None
    end_reason: str | None
    output: str
    trace: Json = None
    exception: Json = None
    session_id: str | None = None
