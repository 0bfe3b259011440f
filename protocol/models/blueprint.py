"""Blueprints: how a session was created and configured, without its state.

Exports, clones and restored sessions are made from one. This module removes secrets before a
blueprint is written or shown, and holds the record on disk that contains it.
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
    masked,
    masked_arguments,
    masked_environment,
)
from debug_relay.protocol.wire.envelope import encode_json

# Fields of a launch that belong to that one call: its session, and how the reply should look.
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
    """The fields that the caller gave, as JSON; fields at their default are left out."""
    given = {}
    for field in fields_of(type(asked)):
        value = getattr(asked, field.name)
        if field.name not in _OF_THE_CALL and (field.required or value != _default(field)):
            given[field.name] = msgspec.to_builtins(value)
    return given


@functools.cache
def fields_of(kind: type[Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """The fields of a Struct, cached: msgspec evaluates the annotations anew at each call."""
    return msgspec.structs.fields(kind)


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def without_secrets(blueprint: Blueprint) -> Blueprint:
    """The blueprint as it may be written and shown: for secret-looking values only the names
    remain.
    """
    config = blueprint.config
    plain = msgspec.structs.replace(
        blueprint,
        config=msgspec.structs.replace(config, labels=masked_environment(config.labels)),
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
    """The fields of a launch that contain a secret, with the secret masked.

    They are kept so that a reader sees what they were; nothing is ever run with them. The result is
    cached because a worker asks for the same launch at every stop, and a launch may be a megabyte
    long.
    """
    program = msgspec.json.decode(encoded)
    whose = program.get("script") or program.get("module") or ""
    seen: dict[str, Any] = {}
    if args := program.get("args"):
        seen["args"] = masked_arguments(args, whose)
    if python_args := program.get("python_args"):
        seen["python_args"] = masked_arguments(python_args)
    if texts := program.get("stdin_inputs"):
        seen["stdin_inputs"] = masked("", texts)
    if code := program.get("code"):
        seen["code"] = hide_in_code(code)
    return {name: value for name, value in seen.items() if value != program[name]}
