"""Blueprints of sessions: how they are made, what of them may be written down, and the record on
disk in which they stand.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import msgspec
from msgspec import Struct

from debug_relay.protocol.secrets import holds_password, looks_secret
from debug_relay.protocol.sessions import Blueprint, SessionState

# Of a launch: who it was for, and how its reply was to look.
_OF_THE_CALL: Final = frozenset({"session_id", "wait", "snapshot"})


class SessionRecord(Struct, kw_only=True):
    """`session.json`, which outlives the worker, the supervisor and a reboot."""

    version: str
    wire: int
    state: SessionState
    blueprint: Blueprint
    events_end: int = 0
    runtime_seconds: float = 0.0


def given_fields(asked: Struct) -> dict[str, Any]:
    """What was given of it, as JSON would have it: a field at its default says nothing."""
    given = {}
    for field in fields_of(type(asked)):
        value = getattr(asked, field.name)
        if field.name not in _OF_THE_CALL and (field.required or value != _default(field)):
            given[field.name] = msgspec.to_builtins(value)
    return given


@functools.cache
def fields_of(kind: type[Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Found anew by evaluating annotations each time that msgspec is asked."""
    return msgspec.structs.fields(kind)


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def without_secrets(blueprint: Blueprint) -> Blueprint:
    """As it may be written down and shown: values that look secret are named, not told."""
    env = (blueprint.program or {}).get("env") or {}
    secret = {name for name, value in env.items() if _is_secret(name, value)}
    if not secret:
        return blueprint
    plain = {name: value for name, value in env.items() if name not in secret}
    program = {name: value for name, value in (blueprint.program or {}).items() if name != "env"}
    return msgspec.structs.replace(
        blueprint,
        program={**program, "env": plain} if plain else program,
        missing_env=sorted(secret.union(blueprint.missing_env)),
    )


def _is_secret(name: str, value: str | None) -> bool:
    # To unset a variable tells nothing of what it held.
    return value is not None and (looks_secret(name) or holds_password(value))
