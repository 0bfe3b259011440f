"""The arguments of the requests that an IDE sends, as far as we read them. Unknown fields are
ignored: each IDE has some of its own.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from debug_relay.protocol.models.breakpoints import MAX_BATCH
from debug_relay.worker.ide.path_mappings import PathMapping

_Text = Annotated[str, Meta(max_length=65536)]
_Name = Annotated[str, Meta(max_length=1000)]
_Path = Annotated[str, Meta(max_length=4096)]


class Arguments(Struct, rename="camel"):
    """A request without arguments that matter."""


class Initialize(Arguments):
    client_id: _Name | None = field(default=None, name="clientID")
    client_name: _Name | None = None
    lines_start_at1: bool = True
    columns_start_at1: bool = True
    path_format: Literal["path"] | None = "path"
    supports_invalidated_event: bool = False


class Attach(Arguments):
    path_mappings: Annotated[list[PathMapping], Meta(max_length=1000)] | None = None


class Disconnect(Arguments):
    terminate_debuggee: bool | None = None


class Source(Arguments):
    path: _Path | None = None
    name: _Path | None = None
    source_reference: int | None = None


class SourceBreakpoint(Arguments):
    line: int
    condition: _Text | None = None
    hit_condition: _Name | None = None
    log_message: _Text | None = None


class SetBreakpoints(Arguments):
    source: Source
    breakpoints: Annotated[list[SourceBreakpoint], Meta(max_length=MAX_BATCH)] | None = None


class FunctionBreakpoint(Arguments):
    name: _Name
    condition: _Text | None = None
    hit_condition: _Name | None = None


class SetFunctionBreakpoints(Arguments):
    breakpoints: Annotated[list[FunctionBreakpoint], Meta(max_length=MAX_BATCH)] = []


class SetExceptionBreakpoints(Arguments):
    filters: Annotated[list[_Name], Meta(max_length=100)] = []


class DataBreakpointInfo(Arguments):
    name: _Text
    variables_reference: int | None = None
    frame_id: int | None = None


class DataBreakpoint(Arguments):
    data_id: _Text
    condition: _Text | None = None


class SetDataBreakpoints(Arguments):
    breakpoints: Annotated[list[DataBreakpoint], Meta(max_length=100)] = []


class OnThread(Arguments):
    thread_id: int
    single_thread: bool | None = None


class StackTrace(Arguments):
    thread_id: int
    start_frame: int | None = None
    levels: int | None = None


class Scopes(Arguments):
    frame_id: int


class Variables(Arguments):
    variables_reference: int
    filter: str | None = None
    start: int | None = None
    count: int | None = None


class SetVariable(Arguments):
    variables_reference: int
    name: Annotated[str, Meta(max_length=4096)]
    value: _Text


class Evaluate(Arguments):
    expression: _Text
    frame_id: int | None = None
    context: str | None = None


class SetExpression(Arguments):
    expression: _Text
    value: _Text
    frame_id: int | None = None


class Completions(Arguments):
    text: _Text
    column: int
    line: int | None = None
    frame_id: int | None = None


class GetSource(Arguments):
    source_reference: int = 0
    source: Source | None = None


class Modules(Arguments):
    start_module: int | None = None
    module_count: int | None = None
