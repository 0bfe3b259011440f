"""Fills in a request from a name of an operation and its fields, as fronts beside HTTP get them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from debug_relay.protocol.operations import Operation, path_variables
from debug_relay.supervisor.operations.dispatch import Request


def fill(request: Request, operation: Operation, fields: Mapping[str, Any]) -> None:
    """Puts each field where the operation takes it: into the path, the query or the body."""
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
