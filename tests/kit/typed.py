"""The data of a reply as a typed client sees it: omitted fields have their documented defaults."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Struct

from debug_relay.protocol.operation_row import Operation
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.version import API_PREFIX
from debug_relay.supervisor.http.router import Router

_ROUTER = Router(OPERATIONS, API_PREFIX)


def operation_of(verb: str, path: str) -> Operation:
    return _ROUTER.match(verb, path).operation


def decoded(operation: Operation, data: Any) -> Any:
    """The data with every field of its type, and with no field that its type does not have."""
    found = _whole(msgspec.convert(data, operation.result))
    _require_known(data, found, operation.name)
    return found


def _whole(value: Any) -> Any:
    if isinstance(value, Struct):
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        fields = {sent: getattr(value, name) for sent, name in names}
        return {name: _whole(one) for name, one in fields.items() if one is not UNSET}
    if isinstance(value, list):
        return [_whole(one) for one in value]
    if isinstance(value, dict):
        return {str(name): _whole(one) for name, one in value.items()}
    return msgspec.to_builtins(value)


def _require_known(sent: Any, known: Any, where: str) -> None:
    if isinstance(sent, dict):
        assert sent.keys() <= known.keys(), f"{where} documents no {sent.keys() - known.keys()}"
        for name, value in sent.items():
            _require_known(value, known[name], f"{where}.{name}")
    elif isinstance(sent, list):
        for one, other in zip(sent, known, strict=True):
            _require_known(one, other, where)
