"""The arguments of each tool: the Structs validate them, and their JSON Schemas are the tools'.

Every character of a schema is read by each model in each conversation, so descriptions are short,
and inner objects are left to the relay, which refuses a wrong field with the right one.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

# A client gives up on a call after 60 s, so no tool takes longer than this.
LONGEST_WAIT_SECONDS: Final = 45.0

Wait = Annotated[
    float, Meta(ge=0, le=LONGEST_WAIT_SECONDS, description="Seconds for a stop, up to 45.")
]
Session = Annotated[str, Meta(description="Default: the only one.")]
Breakpoints = Annotated[
    list[dict[str, Any]],
    Meta(
        description="[{file, line | text | function, condition?, log_message?}]",
    ),
]
Exceptions = Annotated[
    list[str],
    Meta(description="raised, uncaught, user_unhandled, or types."),
]


class Arguments(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    pass


class OfSession(Arguments, kw_only=True):
    session: Session | None = None


class Program(Arguments, kw_only=True):
    script: str | None = None
    module: str | None = None
    code: str | None = None
    args: list[str] = []
    cwd: str | None = None
    env: dict[str, str] = {}
    python_path: str | None = None


class Run(Program, kw_only=True):
    breakpoints: Annotated[list[dict[str, Any]], Meta(description="Ends at the first stop.")] = []
    exceptions: Exceptions = []
    trace: (
        Annotated[
            dict[str, Any],
            Meta(description="{at: [{file, line, capture: [expr]}], until?, max_rows?}"),
        ]
        | None
    ) = None
    timeout: Annotated[float, Meta(gt=0, le=LONGEST_WAIT_SECONDS)] = 40


class Start(Program, kw_only=True):
    pid: Annotated[int, Meta(description="Attach to this process instead.")] | None = None
    port: Annotated[int, Meta(description="Or to debugpy on this port.")] | None = None
    name: str | None = None
    breakpoints: Breakpoints = []
    exceptions: Exceptions = []
    stop_on_entry: bool = False
    wait: Wait = 20


class Listing(Arguments, kw_only=True):
    what: Literal["sessions", "processes", "stacks"]
    match: Annotated[str, Meta(description="Part of the processes' command line.")] | None = None
    pid: Annotated[int, Meta(description="For stacks.")] | None = None


class SetBreakpoints(OfSession, kw_only=True):
    set: Breakpoints = []
    remove: Annotated[list[str], Meta(description="Ids, or all.")] = []
    exceptions: Exceptions | None = None


Action = Literal[
    "continue", "pause", "step_over", "step_into", "step_out", "run_to", "restart", "input"
]


class Control(OfSession, kw_only=True):
    action: Action
    thread_id: int | None = None
    file: Annotated[str, Meta(description="With line: for run_to.")] | None = None
    line: int | None = None
    input: Annotated[str, Meta(description="For input, with its newline.")] | None = None
    wait: Wait = 20


class WaitForStop(OfSession, kw_only=True):
    wait: Wait = LONGEST_WAIT_SECONDS


class Inspect(OfSession, kw_only=True):
    what: Literal[
        "stop", "stack", "variables", "threads", "tasks", "output", "source", "exception",
        "history", "breakpoints",
    ]  # fmt: skip
    frame: Annotated[int, Meta(description="0 is the innermost.")] | None = None
    thread_id: int | None = None
    ref: Annotated[int, Meta(description="A value's (ref N): its parts.")] | None = None
    path: Annotated[str, Meta(description="For source.")] | None = None
    start: Annotated[int, Meta(description="First line, frame or variable.")] | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] | None = None
    cursor: str | None = None


class Evaluate(OfSession, kw_only=True):
    expression: Annotated[str, Meta(description="Or statements.")]
    frame: int | None = None
    thread_id: int | None = None
    timeout: Annotated[float, Meta(gt=0, le=LONGEST_WAIT_SECONDS)] | None = None


class Trace(OfSession, kw_only=True):
    at: Annotated[
        list[dict[str, Any]], Meta(description="[{file, line, capture: [expr], condition?}]")
    ] = []
    step: (
        Annotated[
            Literal["function"] | dict[str, Any],
            Meta(description="Instead: each line of this function, or {files: […]}."),
        ]
        | None
    ) = None
    until: Annotated[str, Meta(description="End when this is true.")] | None = None
    max_rows: int | None = None
    timeout: Annotated[float, Meta(ge=0, le=LONGEST_WAIT_SECONDS)] = 30
    then: Literal["pause", "continue"] | None = None


class End(OfSession, kw_only=True):
    terminate: Annotated[bool, Meta(description="true ends an attached program too.")] | None = None
    force: bool = False


# A model needs no bounds, and a wrong field is refused in words.
_LEFT_OUT: Final = frozenset(
    {"title", "additionalProperties", "minimum", "maximum", "exclusiveMinimum"}
)
_EMPTY_IS_DEFAULT: Final = frozenset({"default", "required"})


def schema_of(kind: type[Arguments]) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments, without what a model does not need."""
    (schema,), components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    assert "$ref" in schema
    found: dict[str, Any] = _trimmed(components[kind.__name__])
    return found


def _trimmed(schema: dict[str, Any]) -> Any:
    """Optional fields are those that are not required: null says nothing more."""
    out: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":
            out[key] = {name: _trimmed(field) for name, field in value.items()}
        elif key not in _LEFT_OUT and (value or key not in _EMPTY_IS_DEFAULT):
            out[key] = value
    choices = [one for one in out.pop("anyOf", []) if one != {"type": "null"}]
    if len(choices) == 1:
        out = {**_trimmed(choices[0]), **out}
    elif choices:
        out["anyOf"] = [_trimmed(one) for one in choices]
    if isinstance(out.get("items"), dict):
        out["items"] = _trimmed(out["items"])
    if isinstance(out.get("default"), float):
        out["default"] = int(out["default"])
    return out
