"""Launching, attaching, ending, standard input: parameters and results."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from debug_relay.protocol.models.execution import Execution
from debug_relay.protocol.models.fields import (
    Adapter,
    Arg,
    Console,
    Cwd,
    Directory,
    Env,
    EnvFile,
    EnvName,
    EnvValue,
    ExceptionStop,
    Host,
    Inputs,
    KeepChildren,
    Module,
    NativeProgram,
    PathMapping,
    Pid,
    Port,
    PythonArg,
    PythonPath,
    Result,
    Script,
    SessionParams,
    SnapshotBounds,
    SourceCode,
    TerminalSize,
    Venv,
    Wait,
    WaitForDebugger,
)
from debug_relay.protocol.models.limits import LimitChanges
from debug_relay.protocol.models.processes import Identity, ListeningOn, Match
from debug_relay.protocol.models.sessions import Program
from debug_relay.protocol.state import State

Args = list[Arg]


class Launch(SessionParams, kw_only=True):
    """Start a program under the debugger. Give `script`, `module` or `code`; for a native program
    `adapter` and `program`.
    """

    adapter: Adapter = "debugpy"
    program: NativeProgram | None = None
    wait_for_debugger: WaitForDebugger | None = None
    script: Script | None = None
    module: Module | None = None
    code: SourceCode | None = None
    args: Annotated[Args, Meta(description="Arguments for the program.")] = []
    cwd: Cwd | None = None
    env: Env = {}
    env_file: EnvFile | None = None
    python_path: PythonPath | None = None
    venv: Venv | None = None
    python_args: Annotated[
        list[PythonArg], Meta(description="Arguments for the interpreter, such as `-X dev`.")
    ] = []
    pythonpath: Annotated[
        list[Directory],
        Meta(max_length=1000, description="Directories to put at the front of its import path."),
    ] = []
    stop_on_entry: Annotated[
        bool | None,
        Meta(
            description="Stop at the first line outside the standard library and installed "
            "packages; default: the session's setting."
        ),
    ] = None
    stop_on_exception: ExceptionStop | None = None
    just_my_code: Annotated[
        bool | None,
        Meta(description="Do not step into libraries; default: the session's setting."),
    ] = None
    console: Console = "internalConsole"
    pty: Annotated[
        bool | TerminalSize,
        Meta(description="Give the program a terminal instead of pipes; an object sets its size."),
    ] = False
    stdin_inputs: Inputs = []
    debug_subprocesses: Annotated[
        bool, Meta(description="Debug its child processes in the same session.")
    ] = False
    keep_children: KeepChildren = False
    limits: Annotated[
        LimitChanges | None,
        Meta(description="Limits on its whole process tree; they override the session's."),
    ] = None
    wait: Wait = 0.1
    snapshot: SnapshotBounds = False


class Launched(Execution, kw_only=True):
    pid: int | None
    program: Program


class Attach(SessionParams, kw_only=True):
    """Attach to a running Python program: by `pid`, or by the `port` on which debugpy listens."""

    pid: Pid | None = None
    host: Host | None = None
    port: Port | None = None
    connect_timeout: Annotated[
        float, Meta(gt=0, le=300, description="Seconds to wait for the connection.")
    ] = 10
    identity: Identity | None = None
    listening_on: ListeningOn | None = None
    match: Match | None = None
    wait_seconds: Annotated[
        float,
        Meta(
            ge=0,
            le=300,
            description="How long to wait for a process that `match` or `listening_on` finds.",
        ),
    ] = 0
    path_mappings: Annotated[
        list[PathMapping],
        Meta(max_length=1000, description="Folders of the same files, here and in the program."),
    ] = []
    just_my_code: Annotated[
        bool | None,
        Meta(description="Do not step into libraries; default: the session's setting."),
    ] = None
    stop_on_exception: ExceptionStop | None = None
    redirect_output: Annotated[
        bool,
        Meta(description="Capture the program's own output too; detaching undoes it."),
    ] = False
    repr: Annotated[
        Literal["safe", "full"],
        Meta(
            description="`safe` runs none of the program's code to show a value. "
            "When joined by port, debugpy decides how values are shown."
        ),
    ] = "safe"
    tracing: Annotated[
        Literal["auto", "settrace"],
        Meta(
            description="`auto` is the best method of its Python and also reaches coroutines that "
            "already run. `settrace` is that method up to 3.11; later versions refuse it."
        ),
    ] = "auto"
    tree: Annotated[
        bool, Meta(description="All processes of a prefork server, including those forked later.")
    ] = False
    wait: Wait = 0.1
    snapshot: SnapshotBounds = False


class Attached(Execution, kw_only=True):
    attached: bool
    pid: int | None
    host: str | None
    port: int | None


class Detach(SessionParams, kw_only=True):
    """Detach from an attached program; the session is `created` again."""


class Detached(Result, kw_only=True):
    session_id: str
    status: State
    detached: bool
    pid: int | None = None
    residue: (
        Annotated[str, Meta(description="What could not be removed from the program.")] | None
    ) = None


class Restart(SessionParams, kw_only=True):
    """Launch again with the same arguments; breakpoints stay, edited source is used."""

    env: Annotated[
        dict[EnvName, EnvValue | None],
        Meta(
            max_length=10_000,
            description="Added to the launch's; the names in `missing_env` must be here.",
        ),
    ] = {}
    args: Annotated[
        Args | None,
        Meta(description="Replace the launch's; required if `missing_fields` names them."),
    ] = None
    python_args: Annotated[list[PythonArg] | None, Meta(description="Likewise.")] = None
    code: Annotated[SourceCode | None, Meta(description="Likewise.")] = None
    stdin_inputs: Annotated[Inputs | None, Meta(description="Likewise.")] = None
    wait: Wait = 0.1
    snapshot: SnapshotBounds = False


class Terminate(SessionParams, kw_only=True):
    """End the program: SIGTERM, then SIGKILL after `grace` seconds.

    Both signals also go to all processes that a launched program has started, even those in a
    process group or session of their own, unless `keep_children` says otherwise. The call returns
    as soon as none of them is left.
    """

    grace: Annotated[
        float, Meta(ge=0, le=60, description="Seconds between SIGTERM and SIGKILL.")
    ] = 2


class Terminated(Result, kw_only=True):
    session_id: str
    status: State
    exit_code: int | None = None
    signal: str | None = None


_BASE64: Final = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


class Input(SessionParams, kw_only=True):
    """Write to the program's standard input."""

    input: (
        Annotated[str, Meta(description="Text to write; a line needs its own line break.")] | None
    ) = None
    base64: (
        Annotated[
            str,
            Meta(
                description="Or bytes, in base64.",
                # Only in the schema: the refusal of what decodes it says more.
                extra_json_schema={"pattern": _BASE64},
            ),
        ]
        | None
    ) = None
    eof: Annotated[bool, Meta(description="Close standard input afterwards.")] = False


class Written(Result, kw_only=True):
    session_id: str
    bytes_written: int
    eof: bool
