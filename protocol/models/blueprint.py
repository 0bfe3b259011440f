"""Blueprints of sessions: how they are made, what of them may be written down, and the record on
disk in which they stand.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from debug_relay.protocol.models.sessions import Blueprint, SessionState
from debug_relay.protocol.secrets import (
    hide_in_code,
    is_secret,
    shown,
    shown_arguments,
    shown_environment,
)
from debug_relay.protocol.wire.envelope import encode_json

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
    config = blueprint.config
    plain = msgspec.structs.replace(
        blueprint,
        config=msgspec.structs.replace(config, labels=shown_environment(config.labels)),
    )
    if blueprint.program is None:
        return plain
    program = dict(blueprint.program)
    env = program.pop("env", None) or {}
    secret = {name for name, value in env.items() if is_secret(name, value)}
    if len(secret) < len(env):
        program["env"] = {name: value for name, value in env.items() if name not in secret}
    hidden = _hidden_in(encode_json(program))
    plain.program = {**program, **hidden}
    plain.missing_env = sorted(secret.union(blueprint.missing_env))
    plain.missing_fields = sorted({*hidden, *blueprint.missing_fields})
    return plain


@functools.lru_cache(maxsize=1)
def _hidden_in(encoded: bytes) -> Mapping[str, Any]:
    """Those fields of a launch that hold something secret, without it.

    They are kept so that one sees what they were; nothing is ever run with them. A worker asks for
    the same launch at every stop, and a launch may be a megabyte long.
    """
    program = msgspec.json.decode(encoded)
    whose = program.get("script") or program.get("module") or ""
    seen: dict[str, Any] = {}
    if args := program.get("args"):
        seen["args"] = shown_arguments(args, whose)
    if python_args := program.get("python_args"):
        seen["python_args"] = shown_arguments(python_args)
    if texts := program.get("stdin_inputs"):
        seen["stdin_inputs"] = shown("", texts)
    if code := program.get("code"):
        seen["code"] = hide_in_code(code)
    return {name: value for name, value in seen.items() if value != program[name]}
