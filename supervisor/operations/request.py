"""A request, as every front makes one for dispatch."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from debug_relay.protocol.errors import RelayError
from debug_relay.protocol.models.fields import Params
from debug_relay.protocol.operation_row import Operation, path_variables
from debug_relay.protocol.wire.frames import Caller

Format = Literal["json", "text", "markdown"]


class Request(Struct, kw_only=True):
    """A request as a front has read it. Nothing of it is believed yet."""

    id: str
    uid: int  # the caller's, from the kernel
    address: str | None = None  # the caller's, if the kernel names no uid
    operation: Operation | None  # None: there is no such operation, as `misread` says
    path: Mapping[str, str] = {}
    query: Sequence[tuple[str, str]] = ()
    # A function reads the rest of the body; it is called once the caller is known to be allowed to
    # send anything.
    body: bytes | Mapping[str, Any] | Callable[[], Awaitable[bytes]] = b""
    # The part that the front could not read. Only a caller with some right learns of it.
    misread: RelayError | None = None
    agent: str | None = None  # X-Agent
    front: str | None = None  # X-Human-Front
    key: str = ""  # the hash of X-Lease-Key
    authorization: Sequence[str] = ()
    ticket: str | None = None  # a page opens a WebSocket with it
    ticketed: str | None = None  # the hash of the token that the ticket stood for
    if_stop: str | int | None = None
    idempotency_key: str | None = None
    format: Format = "json"
    pretty: bool = False
    asked: tuple[str, str] | None = None  # verb and path in the caller's own words, for the log


class Call(Struct):
    """One request, with the facts that are known by now."""

    request: Request
    began: float  # monotonic
    caller: Caller | None = None
    params: Params | None = None
    created: str | None = None  # the id of the session that it has created
    not_admitted: bool = False  # by Host, Origin or token: the refusal log counts these
    refused_with: str | None = None  # the code of a refusal of ours

    @property
    def session_id(self) -> str | None:
        return self.created or self.request.path.get("session_id")


class Understood(Struct):
    """A request whose caller is allowed to make it, and whose parameters are sound."""

    id: str
    caller: Caller
    operation: Operation
    params: Params
    if_stop: int | None
    format: Format
    created: str | None = None


def fill(request: Request, operation: Operation, fields: Mapping[str, Any]) -> None:
    """Fills in a request from an operation and its fields, for fronts that have no path, query and
    body: each field goes where the operation takes it.
    """
    rest = dict(fields)
    request.operation = operation
    names = {name for path in operation.paths for name in path_variables(path)}
    request.path = {name: as_text(rest.pop(name)) for name in names if name in rest}
    if operation.takes_body:
        request.body = rest
    else:
        request.query = [(name, as_text(value)) for name, value in rest.items()]


def as_text(value: Any) -> str:
    """A value as it stands in a path or a query."""
    return value if isinstance(value, str) else json.dumps(value)
