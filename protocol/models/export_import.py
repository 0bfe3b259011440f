"""A session as an export has it, and as an import or a clone makes it again."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from debug_relay.protocol.models.breakpoints import MAX_BATCH, BreakpointSpec, Condition
from debug_relay.protocol.models.fields import (
    PYTHON_NAME,
    Directory,
    EnvName,
    Expression,
    Json,
    Labels,
    Params,
    PauseBudget,
    PythonPath,
    Result,
    Seconds,
    SessionParams,
    Venv,
)
from debug_relay.protocol.models.limits import LimitChanges
from debug_relay.protocol.models.sessions import MissingField


class ImportedConfig(Params, kw_only=True):
    """`config` of an export."""

    project_root: Directory | None = None
    python_path: PythonPath | None = None
    venv: Venv | None = None
    stop_on_entry: Annotated[bool, Meta(description="Stop at the first line.")] = False
    stop_all: Annotated[bool, Meta(description="A stop of one thread stops all.")] = True
    just_my_code: Annotated[bool, Meta(description="Do not step into libraries.")] = False
    timeout_minutes: (
        Annotated[float, Meta(ge=0, le=525_600, description="Idle timeout; 0 is for ever.")] | None
    ) = None
    max_lifetime: Seconds | None = None
    pause_budget: PauseBudget | None = None
    labels: Labels = {}
    limits: Annotated[LimitChanges | None, Meta(description="Limits on the process tree.")] = None


class ImportedExceptions(Params, kw_only=True):
    """`exception_breakpoints` of an export."""

    filters: Annotated[
        list[Literal["raised", "uncaught", "user_unhandled"]],
        Meta(max_length=100, description="As exported."),
    ] = []
    types: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=512, extra_json_schema=PYTHON_NAME)]],
        Meta(max_length=1000, description="As exported."),
    ] = []
    condition: Condition | None = None
    raised_in: Annotated[Literal["user", "all"] | None, Meta(description="As exported.")] = None


class ImportedWatch(Params, kw_only=True):
    """One of `watches` of an export."""

    expression: Expression


class ImportSession(Params, kw_only=True):
    """Create a session from the `data` of an export."""

    name: Annotated[str, Meta(max_length=255, description="Any name.")] | None = None
    config: Annotated[ImportedConfig | None, Meta(description="As exported.")] = None
    program: Annotated[
        dict[str, Json] | None, Meta(description="As exported: fields of `launch`.")
    ] = None
    missing_env: Annotated[
        list[EnvName], Meta(description="Names whose values look secret and were left out.")
    ] = []
    missing_fields: Annotated[
        list[MissingField],
        Meta(max_length=10, description="Fields of `program` in which secrets were hidden."),
    ] = []
    breakpoints: Annotated[
        list[BreakpointSpec], Meta(max_length=MAX_BATCH, description="As exported.")
    ] = []
    exception_breakpoints: Annotated[
        ImportedExceptions | None, Meta(description="As exported.")
    ] = None
    watches: Annotated[list[ImportedWatch], Meta(max_length=100, description="As exported.")] = []
    version: (
        Annotated[
            str,
            Meta(
                max_length=40,
                description="The version of the relay that exported it.",
                extra_json_schema={"format": "relay-version"},
            ),
        ]
        | None
    ) = None


class CloneSession(SessionParams, kw_only=True):
    """Create a session with the same configuration, launch and breakpoints, not its state."""

    name: (
        Annotated[
            str, Meta(max_length=255, description="Its name; default: derived from the first one.")
        ]
        | None
    ) = None
    labels: Annotated[
        Labels | None, Meta(description="Its labels; default: those of the first.")
    ] = None


class Export(Result, kw_only=True):
    """Everything of a session except its state."""

    name: str
    config: Json
    program: Json = None
    missing_env: list[str] = []
    missing_fields: list[str] = []
    breakpoints: list[Json] = []
    exception_breakpoints: Json = None
    watches: list[Json] = []
    version: str
