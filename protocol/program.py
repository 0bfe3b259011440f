"""Launching, attaching, ending, standard input."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from debug_relay.protocol.execution import Execution
from debug_relay.protocol.fields import (
    Env,
    ExceptionStop,
    Limits,
    Path,
    Pid,
    Result,
    SessionParams,
    SnapshotBounds,
    Wait,
)
from debug_relay.protocol.sessions import Program
from debug_relay.protocol.state import State

Args = list[Annotated[str, Meta(max_length=131072)]]


class Launch(SessionParams, kw_only=True):
    """Start a program under the debugger. Give `script`, `module` or `code`."""

    script: Path | None = None
    module: Annotated[str, Meta(min_length=1, max_length=512)] | None = None
    code: Annotated[str, Meta(min_length=1, max_length=1_000_000)] | None = None
    args: Args = []
    cwd: Path | None = None
    env: Env = {}
    env_file: Path | None = None
    python_path: Path | None = None
    venv: Path | None = None
    python_args: Args = []
    pythonpath: list[Path] = []
    stop_on_entry: bool | None = None
    stop_on_exception: ExceptionStop | None = None
    just_my_code: bool | None = None
    console: Literal["internalConsole", "integratedTerminal", "externalTerminal"] = (
        "internalConsole"
    )
    pty: bool = False
    stdin_inputs: list[str] = []
    debug_subprocesses: bool = False
    keep_children: bool = False
    limits: Limits | None = None
    wait: Wait = 0.1
    snapshot: SnapshotBounds = False


class Launched(Execution, kw_only=True):
    pid: int | None
    program: Program


class PathMapping(Result, kw_only=True):
    local: str
    remote: str


class Attach(SessionParams, kw_only=True):
    """Join a running Python program: by `pid`, or where debugpy listens by `port`."""

    pid: Pid | None = None
    host: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    connect_timeout: Annotated[float, Meta(gt=0, le=300)] = 10
    identity: Annotated[str, Meta(max_length=200)] | None = None
    listening_on: Annotated[int, Meta(ge=1, le=65535)] | None = None
    match: Annotated[str, Meta(min_length=1, max_length=1000)] | None = None
    wait_seconds: Wait = 0
    path_mappings: list[PathMapping] = []
    just_my_code: bool | None = None
    stop_on_exception: ExceptionStop | None = None
    redirect_output: bool = False
    repr: Literal["safe", "full"] = "safe"
    tracing: Literal["auto", "settrace"] = "auto"
    tree: bool = False
    wait: Wait = 0.1
    snapshot: SnapshotBounds = False


class Attached(Execution, kw_only=True):
    attached: bool
    pid: int | None
    host: str | None
    port: int | None


class Detach(SessionParams, kw_only=True):
    """Let an attached program go; the session is `created` again."""


class Detached(Result, kw_only=True):
    session_id: str
    status: State
    detached: bool
    pid: int | None


class Restart(SessionParams, kw_only=True):
    """Launch again with the same arguments; breakpoints stay."""

    env: Env = {}
    wait: Wait = 0.1
    snapshot: SnapshotBounds = False


class Terminate(SessionParams, kw_only=True):
    """End the program: SIGTERM, then SIGKILL after `grace` seconds."""

    grace: Annotated[float, Meta(ge=0, le=60)] = 2


class Terminated(Result, kw_only=True):
    session_id: str
    status: State
    exit_code: int | None
    signal: str | None


class Input(SessionParams, kw_only=True):
    """Write to the program's standard input."""

    input: Annotated[str, Meta(max_length=1_000_000)] | None = None
    base64: Annotated[str, Meta(max_length=1_400_000)] | None = None
    eof: bool = False


class Written(Result, kw_only=True):
    session_id: str
    bytes_written: int
    eof: bool
