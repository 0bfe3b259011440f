"""The OpenAPI document takes from here what JSON Schema can say of `cross_field_rules`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from debug_relay.protocol.models.creation import CreateSession
from debug_relay.protocol.models.fields import Params
from debug_relay.protocol.models.program import Attach, Input, Launch
from debug_relay.protocol.models.sessions import PatchSession
from debug_relay.protocol.validation.cross_field_rules import (
    AT_LEAST_ONE,
    JUST_ONE,
    NOT_WITH_PORT,
    NOTHING,
    NOTHING_TO_WRITE,
)

# These say where a session's project is.
_OF_A_PROJECT: Final = (CreateSession, PatchSession)
# `is_absolute`, as a pattern; an empty path is none.
_ABSOLUTE: Final = "^($|/|~/|~$)"


def body_rules(params: type[Params]) -> dict[str, Any]:
    """Keywords of JSON Schema for the body of these Params."""
    if params in _OF_A_PROJECT:
        return {"allOf": [{"properties": {"project_root": {"pattern": _ABSOLUTE}}}]}
    if params in AT_LEAST_ONE:
        nothing = NOTHING_TO_WRITE if params is Input else NOTHING
        return {"anyOf": [_has(name, nothing) for name in AT_LEAST_ONE[params]]}
    if params not in JUST_ONE:
        return {}
    just_one = {"oneOf": [_has(name, NOTHING) for name in JUST_ONE[params]]}
    if params is Launch:
        return {"if": {"properties": {"adapter": {"const": "debugpy"}}}, "then": just_one}
    if params is Attach:
        others = {"anyOf": [_has(name, NOTHING) for name in NOT_WITH_PORT]}
        with_port, with_host = _has("port", NOTHING), _has("host", NOTHING)
        return {**just_one, "if": with_port, "then": {"not": others}, "else": {"not": with_host}}
    return just_one


def _has(name: str, nothing: Sequence[Any]) -> dict[str, Any]:
    return {"required": [name], "properties": {name: {"not": {"enum": list(nothing)}}}}
