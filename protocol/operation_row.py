"""One row of the operations table: which facts about an operation there are, and what they mean."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from debug_relay.protocol.errors import COMMON, COMMON_SESSION, Code
from debug_relay.protocol.models.fields import Params, Result, SessionParams
from debug_relay.protocol.scopes import Scope
from debug_relay.protocol.state import ANY, State

Verb = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Side = Literal["supervisor", "worker"]
Kind = Literal["json", "document", "sse", "websocket", "mcp"]
Timeout = Literal["request_timeout", "launch_timeout", "evaluate_timeout"]  # settings of [dap]
Preparation = Literal["choose-process"]
RefusalCheck = Literal["verify-sound-entries"]


class Deadline(Struct, frozen=True):
    """How long a worker may take: a setting, and the seconds that the call itself asks for."""

    setting: Timeout = "request_timeout"
    fields: tuple[str, ...] = ()  # names of params that are seconds
    otherwise: Timeout | None = None  # counts in place of such a field that is not given


class Operation(Struct, frozen=True, kw_only=True):
    name: str  # also the name of the handler, the command and the tool
    verb: Verb
    path: str
    params: type[Params]
    result: type[Result]
    group: str
    scope: Scope
    and_scope: Scope = ""  # needed besides
    own_token: bool = False  # the session's own token is as good as one with the scope
    aliases: tuple[str, ...] = ()  # further paths of the same handler
    side: Side = "worker"
    states: frozenset[State] = ANY
    errors: frozenset[Code] = frozenset()
    status: int = 200
    also: tuple[int, ...] = ()  # further statuses with the same data
    kind: Kind = "json"
    safe: bool = False  # only reads; may be repeated
    drives: bool = False  # changes the program's run, so the lease applies
    python_only: bool = False  # needs the relay's own debugger: refused for native programs
    deadline: Deadline = Deadline()
    prepare: Preparation | None = None  # a step of the supervisor's before it asks the worker
    on_refusal: RefusalCheck | None = None  # a further check if the params are invalid
    # The field that names an operation which the same call does next: it needs that one's scope.
    follow_up: str = ""
    finishes: bool = False  # continues to its end in the supervisor when the caller leaves
    touches: bool = True  # counts as use of the session
    words: str = ""  # the description, if a shared Params cannot have it

    @property
    def all_errors(self) -> frozenset[Code]:
        return self.own_errors | COMMON | (COMMON_SESSION if self.on_session else frozenset())

    @property
    def own_errors(self) -> frozenset[Code]:
        further = {Code.STOP_CHANGED} if self.checks_if_stop else set()
        if self.python_only:
            further.add(Code.ATTACH_UNSUPPORTED)
        return self.errors | further

    @property
    def checks_if_stop(self) -> bool:
        """Whether `If-Stop` is checked: for every operation that the worker answers."""
        return self.side == "worker"

    @property
    def on_session(self) -> bool:
        return issubclass(self.params, SessionParams)

    @property
    def takes_body(self) -> bool:
        """Whether fields that are not in the path come from the body; otherwise from the query."""
        return self.verb not in ("GET", "DELETE")

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path, *self.aliases)

    @property
    def scopes(self) -> tuple[Scope, ...]:
        return tuple(scope for scope in (self.scope, self.and_scope) if scope)

    @property
    def streams(self) -> bool:
        """Whether a front answers it in a protocol of its own; others have a handler."""
        return self.kind in ("sse", "websocket", "mcp")


def path_variables(path: str) -> list[str]:
    """`/a/{b}/{c}` → `["b", "c"]`."""
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]
