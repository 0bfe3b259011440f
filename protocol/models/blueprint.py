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
    masked,
    masked_arguments,
    masked_environment,
)

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


def given_fields(params: Struct) -> dict[str, Any]:
    """The fields that the caller gave, as JSON; fields at their default are left out."""
    given = {}
    for name, key, default in _defaults(type(params)):
        value = getattr(params, name)
        if value != default:
            given[key] = msgspec.to_builtins(value)
    return given


@functools.cache
def fields_of(kind: type[Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """The fields of a Struct, cached: msgspec evaluates the annotations anew at each call."""
    return msgspec.structs.fields(kind)


@functools.cache
def _defaults(kind: type[Struct]) -> tuple[tuple[str, str, Any], ...]:
    """(name, name in JSON, default) of each field that describes more than the call."""
    return tuple(
        (
            field.name,
            field.encode_name,
            field.default
            if field.default_factory is msgspec.NODEFAULT
            else field.default_factory(),
        )
        for field in fields_of(kind)
        if field.name not in _OF_THE_CALL
    )


class ShownLaunch(Struct, frozen=True):
    """The fields of a launch as they may be written and shown.

    A hidden field is kept with its secrets masked, so that a reader sees what it was; nothing is
    ever run with it.
    """

    fields: dict[str, Any]  # without the variables whose values look secret
    args: list[str]
    env: dict[str, str | None]  # all variables; the values that look secret are masked
    missing_env: frozenset[str]
    missing_fields: frozenset[str]


def shown_launch(given: Mapping[str, Any]) -> ShownLaunch:
    """Look for secrets in a launch. That takes half a second for 150,000 arguments: do it once for
    each launch, beside the event loop.
    """
    env = given.get("env") or {}
    shown_env = masked_environment(env)
    secret = frozenset(name for name, value in env.items() if shown_env[name] != value)
    whose = given.get("program") or given.get("script") or given.get("module") or ""
    seen = {
        "args": masked_arguments(given.get("args") or [], whose),
        "python_args": masked_arguments(given.get("python_args") or []),
        "stdin_inputs": masked("", given.get("stdin_inputs") or []),
        "code": hide_in_code(given.get("code") or ""),
    }
    hidden = {name: value for name, value in seen.items() if value != (given.get(name) or value)}
    fields = {name: value for name, value in given.items() if name != "env"}
    if len(secret) < len(env):
        fields["env"] = {name: value for name, value in env.items() if name not in secret}
    return ShownLaunch(
        fields={**fields, **hidden},
        args=seen["args"],
        env=shown_env,
        missing_env=secret,
        missing_fields=frozenset(hidden),
    )


def without_secrets(blueprint: Blueprint, launch: ShownLaunch | None) -> Blueprint:
    """The blueprint as it may be written and shown; `launch` is what `shown_launch` found in its
    program.
    """
    config = blueprint.config
    plain = msgspec.structs.replace(
        blueprint,
        config=msgspec.structs.replace(config, labels=masked_environment(config.labels)),
    )
    if launch is not None:
        plain.program = launch.fields
        plain.missing_env = sorted(launch.missing_env.union(blueprint.missing_env))
        plain.missing_fields = sorted(launch.missing_fields.union(blueprint.missing_fields))
    return plain
