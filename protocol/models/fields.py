"""The types that parameters and results are made of. A field's words stand here, once."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

__all__ = ["UNSET", "Params", "Result", "Struct", "UnsetType"]


class Params(Struct, forbid_unknown_fields=True):
    """What a caller sends: path, query and body of one operation together."""


class Result(Struct):
    """What a caller gets: the `data` of the envelope."""


class Empty(Params, kw_only=True):
    """No parameters."""


SessionId = Annotated[
    str,
    Meta(
        # No pattern: an id of the wrong shape is one that no session has (404, not 400).
        description="The session's id.",
        examples=["sess_a1b2c3d4"],
    ),
]
BreakpointId = Annotated[str, Meta(max_length=64, description="Breakpoint id.", examples=["bp_1"])]
# Behind `$` because Python's also matches before a line break at the end.
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
    int, Meta(ge=1, description="From scopes or an expandable variable; valid until it resumes.")
]
Pid = Annotated[int, Meta(ge=1, le=2**22, description="Process id.")]
# The kernel and sockets end a text at a NUL: no path, argument or name can hold one.
NO_NUL = r"^[^\u0000]*$"
ENV_NAME = r"^[^=\u0000]+$"
# Found by `?label=key=value`, which ends the key at its first "=".
LABEL_KEY = r"^[^=]+$"
LABEL_FILTER = r"^[^=]+=[\s\S]*$"
WATCH_ID = r"^watch_[1-9][0-9]*$(?!\n)"
Path = Annotated[str, Meta(min_length=1, max_length=4096, pattern=NO_NUL, description="A path.")]
Script = Annotated[
    Path,
    Meta(
        description="A Python file, a folder or an archive with a `__main__.py`; if relative, in "
        "`cwd`, else in `project_root`."
    ),
]
Cwd = Annotated[
    Path,
    Meta(
        description="The working directory; if relative, in `project_root`. By default "
        "`project_root`, else where `script` lies, else the home directory."
    ),
]
EnvFile = Annotated[
    Path,
    Meta(
        description="A file of `NAME=value` lines, as shells and dotenv write them: `export`, "
        "quotes, `${NAME}`, `${NAME:-default}`, comments. `env` goes over it."
    ),
]
PythonPath = Annotated[
    Path,
    Meta(
        description="The interpreter: a path, or a name on PATH. It wins over `venv`, what a "
        "launch says over what the session says, and nothing is activated."
    ),
]
Venv = Annotated[
    Path,
    Meta(
        description="A venv or conda prefix, which is activated. With neither this nor "
        "`python_path`: `.venv` or `venv` of `project_root`, else `[python] default_path`, else "
        "`python3` on PATH, else the relay's own."
    ),
]
Line = Annotated[int, Meta(ge=1, le=10_000_000, description="Line number, counted from 1.")]
Expression = Annotated[
    str, Meta(min_length=1, max_length=65536, description="A Python expression.")
]
Wait = Annotated[
    float,
    Meta(
        ge=0,
        le=300,
        description="Seconds that the reply may be held for the next stop or the end; a program of "
        "one thread that asks for input is not waited for any longer.",
        examples=[5],
    ),
]
Offset = Annotated[int, Meta(ge=0, description="How many entries to skip.")]
Limit = Annotated[int, Meta(ge=1, le=1000, description="How many entries at most.")]
Cursor = Annotated[
    str,
    Meta(max_length=200, description="Where to go on: `next_cursor` of the reply before."),
]
Time = Annotated[str, Meta(description="RFC 3339, UTC, milliseconds.")]
EnvName = Annotated[str, Meta(pattern=ENV_NAME, max_length=4096)]
# The kernel hands no longer text to a program.
EnvValue = Annotated[str, Meta(max_length=131072, pattern=NO_NUL)]
Arg = Annotated[str, Meta(max_length=131072, pattern=NO_NUL)]
Env = Annotated[
    dict[EnvName, EnvValue | None],
    Meta(max_length=10_000, description="Changes to the program's environment; null unsets."),
]
LabelKey = Annotated[str, Meta(pattern=LABEL_KEY, max_length=255)]
# Few and short: every list of sessions shows them.
Labels = Annotated[
    dict[LabelKey, Annotated[str, Meta(max_length=1024)]],
    Meta(max_length=64, description="Any keys without =, any values."),
]
Module = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=512,
        pattern=NO_NUL,
        description="A module to run, as `python -m` would.",
    ),
]
SourceCode = Annotated[
    str,
    Meta(min_length=1, max_length=1_000_000, pattern=NO_NUL, description="Python source to run."),
]
Host = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=255,
        pattern=NO_NUL,
        description="Where debugpy listens; by default here.",
    ),
]
Port = Annotated[int, Meta(ge=1, le=65535, description="The port on which debugpy listens.")]
TimeoutMinutes = Annotated[
    int, Meta(ge=1, le=1440, description="Idle timeout of the session in minutes.")
]
Seconds = Annotated[float, Meta(ge=0, le=31_536_000, description="Seconds; 0 is for ever.")]
PauseBudget = Annotated[
    Seconds,
    Meta(
        description="How long an attached program may stand at a stop while nobody calls; then it "
        "runs on and its breakpoints are suspended until one is set or changed. Seconds; 0 is for "
        "ever."
    ),
]
HeldSeconds = Annotated[
    float, Meta(description="How long the session's programs have stood still in all.")
]
Inputs = Annotated[
    list[str],
    Meta(
        description="Texts for its standard input, in order; each is a line, whose end is added "
        "where it is missing."
    ),
]
KeepChildren = Annotated[
    bool,
    Meta(
        description="Let what it started run on for good. Otherwise that is ended with the "
        "session, by `restart` and by `terminate`; the program's own end ends nothing."
    ),
]
ExceptionStop = Annotated[
    bool | Literal["uncaught", "raised"],
    Meta(description="Stop at exceptions; true is raised and uncaught."),
]
Console = Annotated[
    Literal["internalConsole", "integratedTerminal", "externalTerminal"],
    Meta(description="`integratedTerminal` is a pty; a relay has no window to open."),
]
Json = Any

FrameLimit = Annotated[int, Meta(ge=0, le=1000, description="How many frames.")]
LocalLimit = Annotated[int, Meta(ge=0, le=1000, description="How many locals of the top frame.")]
SourceLines = Annotated[int, Meta(ge=0, le=1000, description="How many source lines on each side.")]
OutputBytes = Annotated[
    int, Meta(ge=0, le=65536, description="How much of what was printed since the last stop.")
]
ReportBytes = Annotated[
    int, Meta(ge=1024, le=16_777_216, description="How large the whole reply may be.")
]


class Bounds(Params, kw_only=True):
    """How much of the stop report is wanted."""

    frames: FrameLimit = 20
    locals: LocalLimit = 50
    source_lines: SourceLines = 3
    output_bytes: OutputBytes = 4096
    max_bytes: ReportBytes = 65536


SnapshotBounds = Annotated[
    bool | Bounds,
    Meta(description="Add the stop report; an object bounds its parts."),
]


class TerminalSize(Params, kw_only=True):
    """How large the program's terminal is, in characters."""

    rows: Annotated[int, Meta(ge=1, le=1000, description="Lines of text.")] = 24
    columns: Annotated[int, Meta(ge=1, le=1000, description="Characters a line.")] = 80


class SessionParams(Params, kw_only=True):
    """One session."""

    session_id: SessionId


class PathMapping(Params, kw_only=True):
    """One folder, as it is called here and in the program."""

    local: Path
    remote: Path


class Location(Result, kw_only=True):
    """A place in the source."""

    path: str
    line: int
    column: int
    function: str


class Deleted(Result, kw_only=True):
    """What is gone."""

    id: str
    deleted: bool = True


class Count(Result, kw_only=True):
    """How many were removed."""

    deleted: int
