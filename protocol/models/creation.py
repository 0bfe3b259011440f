"""Creating a session, and its program's first stop in the same call."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from debug_relay.protocol.models.breakpoints import (
    MAX_BATCH,
    Breakpoint,
    BreakpointSpec,
    ExceptionFilters,
)
from debug_relay.protocol.models.fields import (
    Adapter,
    Arg,
    Console,
    Cwd,
    Directory,
    Env,
    EnvFile,
    ExceptionStop,
    Host,
    Inputs,
    KeepChildren,
    Labels,
    Location,
    Module,
    NativeProgram,
    Params,
    PathMapping,
    PauseBudget,
    Pid,
    Port,
    PythonArg,
    PythonPath,
    Script,
    Seconds,
    SnapshotBounds,
    SourceCode,
    TerminalSize,
    TimeoutMinutes,
    Venv,
    WaitForDebugger,
)
from debug_relay.protocol.models.limits import LimitChanges
from debug_relay.protocol.models.processes import Identity, ListeningOn, Match
from debug_relay.protocol.models.sessions import ExceptionInfo, Program, SessionState, StopReason
from debug_relay.protocol.models.stop_report import Stop


class CreateSession(Params, kw_only=True):
    """Create a debug session; with `mode` also launch or attach, in one call."""

    name: Annotated[str, Meta(max_length=255, description="Any name.")] | None = None
    project_root: Directory | None = None
    python_path: PythonPath | None = None
    venv: Venv | None = None
    timeout_minutes: TimeoutMinutes | None = None
    idle_timeout: Seconds | None = None
    max_lifetime: Seconds | None = None
    pause_budget: PauseBudget | None = None
    labels: Labels = {}
    limits: Annotated[
        LimitChanges | None, Meta(description="Limits on the program's whole process tree.")
    ] = None
    stop_on_entry: Annotated[bool, Meta(description="Stop at the first line.")] = False
    stop_all: Annotated[bool, Meta(description="A stop of one thread stops all threads.")] = True
    just_my_code: Annotated[bool, Meta(description="Do not step into libraries.")] = False
    restore_breakpoints: Annotated[
        bool, Meta(description="Load the breakpoints saved for `project_root`.")
    ] = False
    mode: Annotated[
        Literal["launch", "attach"] | None, Meta(description="Also launch or attach, in this call.")
    ] = None
    # mode launch
    adapter: Adapter = "debugpy"
    program: NativeProgram | None = None
    wait_for_debugger: WaitForDebugger | None = None
    script: Script | None = None
    module: Module | None = None
    code: SourceCode | None = None
    args: Annotated[list[Arg], Meta(description="Arguments for the program.")] = []
    cwd: Cwd | None = None
    env: Env = {}
    env_file: EnvFile | None = None
    stop_on_exception: ExceptionStop | None = None
    python_args: Annotated[
        list[PythonArg], Meta(description="Arguments for the interpreter, such as `-X dev`.")
    ] = []
    stdin_inputs: Inputs = []
    pythonpath: Annotated[
        list[Directory],
        Meta(max_length=1000, description="Directories to put at the front of its import path."),
    ] = []
    console: Console = "internalConsole"
    pty: Annotated[
        bool | TerminalSize,
        Meta(description="Give the program a terminal instead of pipes; an object sets its size."),
    ] = False
    debug_subprocesses: Annotated[
        bool, Meta(description="Debug its child processes in the same session.")
    ] = False
    keep_children: KeepChildren = False
    # mode attach
    pid: Pid | None = None
    host: Host | None = None
    port: Port | None = None
    connect_timeout: (
        Annotated[float, Meta(gt=0, le=300, description="Seconds to wait for the connection.")]
        | None
    ) = None
    path_mappings: Annotated[
        list[PathMapping],
        Meta(max_length=1000, description="Folders of the same files, here and in the program."),
    ] = []
    identity: Identity | None = None
    listening_on: ListeningOn | None = None
    match: Match | None = None
    wait_seconds: (
        Annotated[float, Meta(ge=0, le=300, description="Seconds to wait for a matching process.")]
        | None
    ) = None
    redirect_output: Annotated[
        bool,
        Meta(description="Capture the program's own output too; detaching undoes it."),
    ] = False
    breakpoints: Annotated[
        list[BreakpointSpec],
        Meta(max_length=MAX_BATCH, description="Set these before the program starts."),
    ] = []
    exceptions: Annotated[
        ExceptionFilters | None,
        Meta(description="Stop at these exceptions, as `exception-breakpoints` takes them."),
    ] = None
    snapshot: SnapshotBounds = False
    wait: (
        Annotated[
            float,
            Meta(ge=0, le=300, description="Seconds to wait, before replying, for the first stop."),
        ]
        | None
    ) = None


class SessionCreated(SessionState, kw_only=True):
    """The new session; with `mode` also where its program is."""

    # A session that has no program yet has none of these, and says so by leaving them out.
    stop_reason: StopReason | None = None
    program: Program | None = None
    current_location: Location | None = None
    stopped_thread_id: int | None = None
    breakpoint_count: int = 0
    exception: ExceptionInfo | None = None
    breakpoints: list[Breakpoint] = []  # only those of this call
    stop: Stop | None = None
