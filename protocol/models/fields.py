"""The field types that parameters and results are made of, each with its description, once."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

__all__ = ["UNSET", "Params", "Result", "Struct", "UnsetType", "always"]


class Params(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The input of one operation: path variables, query and body together.

    A worker gets only what the caller gave. A worker that an earlier version of the relay has
    started refuses fields that it does not know; so it only refuses calls that have such a field.
    """


class Result(Struct, omit_defaults=True):
    """The output of one operation: the `data` of the envelope.

    JSON leaves out each field that is at its default: what is empty costs its reader nothing. A
    field without a default, or with `always` as its default, is in every reply.
    """


def always(default: Any) -> Any:
    """The default of a field that JSON shows even so, because a seed document names it there."""
    # msgspec omits only what equals a plain default, or an empty list, dict or set.
    return field(default_factory=lambda: default)


class Empty(Params, kw_only=True):
    """No parameters."""


SessionId = Annotated[
    str,
    Meta(
        # No pattern: an id of the wrong shape is simply unknown (404, not 400).
        description="The session's id, or its name if no other session has it.",
        examples=["sess_a1b2c3d4"],
    ),
]
BreakpointId = Annotated[str, Meta(max_length=64, description="Breakpoint id.", examples=["bp_1"])]
# The lookahead after `$`: Python's `$` also matches before a final line break.
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$(?!\n)"
Name = Annotated[
    str,
    Meta(
        pattern=NAME,
        description="A name: letters, digits, dot, dash, underscore.",
        examples=["checkout-flow"],
    ),
]
ThreadId = Annotated[int, Meta(ge=1, description="Thread id, as `threads` lists them.")]
FrameId = Annotated[
    int, Meta(ge=0, le=1_000_000, description="Index in the thread's stack, 0 at the top.")
]
Reference = Annotated[
    int,
    Meta(ge=1, description="From scopes or an expandable variable; valid until the next resume."),
]
Pid = Annotated[int, Meta(ge=1, le=2**22, description="Process id.")]
# The kernel and sockets end a text at a NUL, so no path, argument or name can contain one.
NO_NUL = r"^[^\u0000]*$"
ENV_NAME = r"^[^=\u0000]+$"
# `?label=key=value` ends the key at its first "=".
LABEL_KEY = r"^[^=]+$"
LABEL_FILTER = r"^[^=]+=[\s\S]*$"
WATCH_ID = r"^watch_[1-9][0-9]*$(?!\n)"
Path = Annotated[str, Meta(min_length=1, max_length=4096, pattern=NO_NUL, description="A path.")]
Directory = Annotated[Path, Meta(extra_json_schema={"format": "directory"})]
# A file with Python source.
SourcePath = Annotated[Path, Meta(extra_json_schema={"format": "python-file"})]
Script = Annotated[
    Path,
    Meta(
        extra_json_schema={"format": "python-script"},
        description="A Python file, or a folder or archive with a `__main__.py`. A relative "
        "path is looked up in `cwd`, else in `project_root`.",
    ),
]
Adapter = Annotated[
    Literal["debugpy", "gdbserver", "lldb-server"],
    Meta(description="What debugs the program: `debugpy` Python, the others native programs."),
]
NativeProgram = Annotated[
    Path,
    Meta(
        extra_json_schema={"format": "executable"},
        description="An executable file, with `adapter` gdbserver or lldb-server. A relative path "
        "is looked up as that of `script` is.",
    ),
]
WaitForDebugger = Annotated[
    bool,
    Meta(
        description="Hold a native program at its first instruction until a debugger connects; "
        "default: true."
    ),
]
Cwd = Annotated[
    Directory,
    Meta(
        description="The working directory; a relative path starts at `project_root`. Default: "
        "`project_root`, else the folder of `script`, else the home directory."
    ),
]
EnvFile = Annotated[
    Path,
    Meta(
        extra_json_schema={"format": "env-file"},
        description="A file of `NAME=value` lines, as shells and dotenv write them: `export`, "
        "quotes, `${NAME}`, `${NAME:-default}`, comments. `env` overrides it.",
    ),
]
PythonPath = Annotated[
    Path,
    Meta(
        extra_json_schema={"format": "python-interpreter"},
        description="The interpreter: a path, or a name on PATH. It overrides `venv`; a launch's "
        "value overrides the session's. No venv is activated.",
    ),
]
Venv = Annotated[
    Path,
    Meta(
        extra_json_schema={"format": "virtual-environment"},
        description="A venv or conda prefix, which is activated. Default, without `python_path`: "
        "`.venv` or `venv` of `project_root`, else `[python] default_path`, else "
        "`python3` on PATH, else the relay's own interpreter.",
    ),
]
Line = Annotated[int, Meta(ge=1, le=10_000_000, description="Line number, counted from 1.")]
# The formats say what JSON Schema cannot: the text compiles, the file exists. Validators pass over
# formats that they do not know.
PYTHON_EXPRESSION: Final = {"format": "python-expression"}
# A class or a function, with dots.
PYTHON_NAME: Final = {"format": "python-name"}
Expression = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=65536,
        description="A Python expression.",
        extra_json_schema=PYTHON_EXPRESSION,
    ),
]
Wait = Annotated[
    float,
    Meta(
        ge=0,
        le=300,
        description="Seconds to wait, before replying, for the next stop or the end. The wait also "
        "ends when a program with one thread waits for input.",
        examples=[5],
    ),
]
Offset = Annotated[int, Meta(ge=0, description="How many entries to skip.")]
Limit = Annotated[int, Meta(ge=1, le=1000, description="Maximum number of entries.")]
Cursor = Annotated[
    str,
    Meta(max_length=200, description="Where to continue: `next_cursor` of the previous reply."),
]
Time = Annotated[str, Meta(description="RFC 3339, UTC, milliseconds.")]
EnvName = Annotated[str, Meta(pattern=ENV_NAME, max_length=4096)]
# The kernel passes no longer string to a program.
EnvValue = Annotated[str, Meta(max_length=131072, pattern=NO_NUL)]
Arg = Annotated[str, Meta(max_length=131072, pattern=NO_NUL)]
PythonArg = Annotated[Arg, Meta(extra_json_schema={"format": "python-option"})]
Env = Annotated[
    dict[EnvName, EnvValue | None],
    Meta(max_length=10_000, description="Changes to the program's environment; null unsets."),
]
LabelKey = Annotated[str, Meta(pattern=LABEL_KEY, max_length=255)]
# Few and short, because every list of sessions shows them.
Labels = Annotated[
    dict[LabelKey, Annotated[str, Meta(max_length=1024)]],
    Meta(max_length=64, description="Any keys without =; any values."),
]
Module = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=512,
        pattern=NO_NUL,
        description="A module to run, as `python -m` would.",
        extra_json_schema={"format": "python-module"},
    ),
]
SourceCode = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=1_000_000,
        pattern=NO_NUL,
        description="Python source to run.",
        extra_json_schema={"format": "python-source"},
    ),
]
Host = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=255,
        pattern=NO_NUL,
        description="The host on which debugpy listens; default: this machine.",
    ),
]
Port = Annotated[int, Meta(ge=1, le=65535, description="The port on which debugpy listens.")]
TimeoutMinutes = Annotated[
    int, Meta(ge=1, le=1440, description="Idle timeout of the session in minutes.")
]
Seconds = Annotated[float, Meta(ge=0, le=31_536_000, description="Seconds; 0 means no limit.")]
PauseBudget = Annotated[
    Seconds,
    Meta(
        description="How long an attached program may stay paused without a call. After that it is "
        "resumed, and its breakpoints are suspended until one is set or changed. Seconds; 0 means "
        "no limit."
    ),
]
HeldSeconds = Annotated[
    float, Meta(description="Total time that the session's programs have been paused.")
]
Inputs = Annotated[
    list[str],
    Meta(
        description="Lines for the program's standard input, in order; a missing line end is added."
    ),
]
KeepChildren = Annotated[
    bool,
    Meta(
        description="Keep the processes that the program started. Otherwise `restart`, "
        "`terminate` and the session's end also end them; after the program's own end the relay "
        "ends them a few seconds later, unless calls need the session's worker meanwhile."
    ),
]
ExceptionStop = Annotated[
    bool | Literal["uncaught", "raised"],
    Meta(description="Stop at exceptions; true means raised and uncaught."),
]
Console = Annotated[
    Literal["internalConsole", "integratedTerminal", "externalTerminal"],
    Meta(description="`integratedTerminal` is a pty; a relay cannot open a window."),
]
Json = Any

FrameLimit = Annotated[int, Meta(ge=0, le=1000, description="Number of frames.")]
LocalLimit = Annotated[int, Meta(ge=0, le=1000, description="Number of locals of the top frame.")]
SourceLines = Annotated[
    int, Meta(ge=0, le=1000, description="Number of source lines on each side.")
]
OutputBytes = Annotated[
    int, Meta(ge=0, le=65536, description="Bytes of the output since the last stop.")
]
ReportBytes = Annotated[
    int, Meta(ge=1024, le=16_777_216, description="Maximum bytes of the whole reply.")
]


FramesWanted = Annotated[
    FrameLimit | Literal["all"],
    Meta(description="Number of frames; frames of libraries are folded, `all` shows each of them."),
]
ALL_FRAMES: Final = 1000  # A report with `all` frames has at most this many.


class Bounds(Params, kw_only=True):
    """Bounds on the parts of a stop report."""

    frames: FramesWanted = 20
    locals: LocalLimit = 50
    source_lines: SourceLines = 3
    output_bytes: OutputBytes = 4096
    max_bytes: ReportBytes = 65536


SnapshotBounds = Annotated[
    bool | Bounds,
    Meta(description="Add the stop report; an object sets bounds for its parts."),
]


def frame_count(wanted: int | str) -> int:
    return wanted if isinstance(wanted, int) else ALL_FRAMES


# A reader of text gets the place of the stop without asking for it.
TEXT_BOUNDS: Final = Bounds(frames=4, locals=20, source_lines=2, output_bytes=1024)


class TerminalSize(Params, kw_only=True):
    """The size of the program's terminal, in characters."""

    rows: Annotated[int, Meta(ge=1, le=1000, description="Lines of text.")] = 24
    columns: Annotated[int, Meta(ge=1, le=1000, description="Characters per line.")] = 80


class SessionParams(Params, kw_only=True):
    """One session."""

    session_id: SessionId


class PathMapping(Params, kw_only=True):
    """One folder, with its path here and its path in the program."""

    local: Path
    remote: Path


class Location(Result, kw_only=True):
    """A place in the source."""

    path: str
    line: int
    column: int
    function: str


class Deleted(Result, kw_only=True):
    """The object that was deleted."""

    id: str
    deleted: bool = always(True)


class Count(Result, kw_only=True):
    """How many objects were deleted."""

    deleted: int
