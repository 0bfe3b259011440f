"""One call that launches a program, records, runs it to its end and reports."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from debug_relay.protocol.models.breakpoints import MAX_BATCH, BreakpointSpec, ExceptionFilters
from debug_relay.protocol.models.execution import TraceEnd, TraceRow, TraceSpec
from debug_relay.protocol.models.fields import (
    Arg,
    Cwd,
    Directory,
    Env,
    EnvFile,
    Json,
    Module,
    Name,
    Params,
    PythonArg,
    PythonPath,
    Result,
    Script,
    SourceCode,
    Venv,
)
from debug_relay.protocol.models.inspection import FoldedFrames
from debug_relay.protocol.models.limits import LimitChanges, PassedLimit
from debug_relay.protocol.models.stop_report import Stop
from debug_relay.protocol.models.threads import Task, Thread


class Run(Params, kw_only=True):
    """Launch a program, trace it, run it to its end and report, in one call."""

    name: Annotated[
        Name, Meta(description="What the session is called while the program runs.")
    ] = "run"
    script: Script | None = None
    module: Module | None = None
    code: SourceCode | None = None
    args: Annotated[list[Arg], Meta(description="Arguments for the program.")] = []
    cwd: Cwd | None = None
    project_root: Annotated[
        Directory | None,
        Meta(description="The project: its `.venv` is the default, and relative files start here."),
    ] = None
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
    just_my_code: Annotated[
        bool | None, Meta(description="Look for exceptions in your own code only.")
    ] = None
    stdin_inputs: Annotated[
        list[str], Meta(description="Lines for its standard input, in order; then it is closed.")
    ] = []
    debug_subprocesses: Annotated[
        bool,
        Meta(
            description="Debug the Python processes that it starts, too; otherwise they are only "
            "reported."
        ),
    ] = False
    limits: Annotated[
        LimitChanges | None, Meta(description="Limits on its whole process tree.")
    ] = None
    trace: Annotated[TraceSpec | None, Meta(description="What to record, as in `trace`.")] = None
    breakpoints: Annotated[
        list[BreakpointSpec],
        Meta(
            max_length=MAX_BATCH,
            description="The first stop at one of them is reported. Relative files start at `cwd`, "
            "else at `project_root`, else at the folder of `script`; so do those of `trace`.",
        ),
    ] = []
    exceptions: Annotated[
        ExceptionFilters | None,
        Meta(
            description="The program stops at these exceptions, also where it handles them; the "
            "first is reported whole. As `exception-breakpoints` takes them."
        ),
    ] = None
    on_stop: Annotated[
        Literal["end", "continue"],
        Meta(description="Whether the program ends at that stop, or runs on."),
    ] = "end"
    timeout: Annotated[
        float, Meta(gt=0, le=300, description="Seconds until the program is ended.")
    ] = 60
    keep_on_exception: Annotated[
        bool, Meta(description="Keep the session, paused, when an exception stops it.")
    ] = False
    output_bytes: Annotated[
        int,
        Meta(ge=0, le=10_000_000, description="How many bytes of the output's end are reported."),
    ] = 65_536


class RunTrace(Result, kw_only=True):
    rows: list[TraceRow | list[Json]]
    columns: list[str] = []  # They are those of the rows of a trace.
    same: dict[str, Json] = {}
    ended: TraceEnd | None = None
    total: int
    left_out: int = 0
    head: int = 0
    dropped: int = 0
    warnings: list[str] = []


class RunLocal(Result, kw_only=True):
    name: str
    type: str
    value: str


class RunFrame(Result, kw_only=True):
    """One frame of the stack at the exception, the innermost first."""

    id: int = 0  # its place in the stack
    name: str
    path: str
    line: int
    locals: list[RunLocal]
    locals_left_out: int = 0


class RunException(Result, kw_only=True):
    type: str
    message: str
    traceback: str | None = None
    child_pid: int | None = None  # the process, if that is a child
    frames: list[RunFrame]
    folded: list[FoldedFrames] = []  # frames of libraries, which are not in the list
    total_frames: int


class RunRaised(Result, kw_only=True):
    """An exception at which the program stopped, once or `times` times, at one place."""

    type: str
    message: str
    path: str | None = None
    line: int | None = None
    function: str | None = None
    times: int = 1


class RunReport(Result, kw_only=True):
    exit_code: int | None = None
    signal: str | None = None
    end_reason: str | None = None
    passed_limit: PassedLimit | None = None
    output: str = ""
    output_left_out: int = 0  # bytes at the beginning that are not shown
    trace: RunTrace | None = None
    # The first at which the program stopped; or one of another kind, which ended the program.
    exception: RunException | None = None
    raised: list[RunRaised] = []  # with `exceptions`: all of them, in the order of their first stop
    stop: Stop | None = None  # the first stop at one of `breakpoints`
    stops: int = 0  # how often the program stopped at a breakpoint or exception of the request
    never_hit: list[str] = []  # breakpoints at which the program did not stop, and why
    # At the timeout: every thread's frames with their locals, and asyncio's pending tasks.
    threads: list[Thread] = []
    tasks: list[Task] = []
    deadlocks: list[list[int]] = []
    session_id: str | None = None  # the session, if it was kept
    note: str | None = None  # why something is missing
