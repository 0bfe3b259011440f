"""Exports, imports and clones: turns blueprints into what callers see, and back."""

from __future__ import annotations

import os
import re
from typing import Any, Final

import msgspec
from msgspec import Struct

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.blueprint import given_fields, shown_launch, without_secrets
from debug_relay.protocol.models.export_import import Export, ImportedConfig, ImportSession
from debug_relay.protocol.models.limits import with_changes
from debug_relay.protocol.models.program import Launch
from debug_relay.protocol.models.sessions import Blueprint, SessionConfig
from debug_relay.protocol.refusals import Problem
from debug_relay.protocol.validation.params import convert
from debug_relay.protocol.version import VERSION
from debug_relay.supervisor.config.settings import Settings
from debug_relay.supervisor.workers.start_params import absolute, for_another

_NAME_CHARACTERS: Final = 240  # A clone's name takes this much of the original's name.
_NUMBERS: Final = re.compile(r"(\d{1,6})\.(\d{1,6})(?:\.\d{1,6})?(?:[-+.].*)?")


def export(blueprint: Blueprint) -> Export:
    """The session's blueprint without state, ids and secrets."""
    launch = None if blueprint.program is None else shown_launch(blueprint.program)
    plain = for_another(without_secrets(blueprint, launch), blueprint.name)
    return Export(
        name=plain.name,
        config=_whole(plain.config),
        program=plain.program,
        missing_env=plain.missing_env,
        missing_fields=plain.missing_fields,
        breakpoints=plain.breakpoints,
        exception_breakpoints=plain.exception_breakpoints,
        watches=plain.watches,
        version=VERSION,
    )


def _whole(config: Struct) -> dict[str, Any]:
    """All fields, those at their default too: another relay may have other settings."""
    fields = msgspec.structs.asdict(config).items()
    return {
        name: _whole(value) if isinstance(value, Struct) else msgspec.to_builtins(value)
        for name, value in fields
    }


def clone(blueprint: Blueprint, name: str | None, labels: dict[str, str] | None) -> Blueprint:
    """The blueprint for a copy of the session, with its secrets."""
    config = blueprint.config
    if labels is not None:
        config = msgspec.structs.replace(config, labels=labels)
    named = name or f"{blueprint.name[:_NAME_CHARACTERS]}-clone"
    return msgspec.structs.replace(for_another(blueprint, named), config=config)


def read_import(sent: ImportSession, settings: Settings) -> Blueprint:
    """The blueprint in an export's `data`; raises RelayError with all that is wrong in it."""
    _require_readable(sent.version)
    program = None if sent.program is None else _program(sent.program)
    exceptions = sent.exception_breakpoints
    return Blueprint(
        name=sent.name or "",
        config=_config(sent.config or ImportedConfig(), settings),
        program=program,
        missing_env=sent.missing_env,
        missing_fields=list(sent.missing_fields),
        breakpoints=[_breakpoint(given_fields(spec)) for spec in sent.breakpoints],
        exception_breakpoints=None if exceptions is None else msgspec.structs.asdict(exceptions),
        watches=[{"expression": watch.expression} for watch in sent.watches],
    )


def _config(sent: ImportedConfig, settings: Settings) -> SessionConfig:
    defaults = settings.sessions
    idle = sent.timeout_minutes
    minutes = defaults.idle_timeout / 60 if idle is None else idle
    given = {
        "project_root": absolute(sent.project_root),
        "timeout_minutes": int(minutes) if minutes == int(minutes) else minutes,
        "max_lifetime": _chosen(sent.max_lifetime, defaults.max_lifetime),
        "pause_budget": _chosen(sent.pause_budget, defaults.pause_budget),
        "limits": with_changes(settings.limits, sent.limits),
    }
    known = SessionConfig.__struct_fields__
    others = {name: getattr(sent, name) for name in sent.__struct_fields__ if name in known}
    return SessionConfig(**{**others, **given})


def _chosen(value: float | None, default: float) -> float:
    return default if value is None else value


def _program(program: dict[str, Any]) -> dict[str, Any]:
    """The fields of a launch, checked by the same rules as a launch."""
    of_the_call = sorted({"session_id", "wait", "snapshot"}.intersection(program))
    if of_the_call:
        raise _bad([Problem(f"program.{name}", "no part of an export") for name in of_the_call])
    try:
        launch = convert(Launch, {"session_id": "sess_import"}, {}, program)
    except RelayError as error:
        problems = [msgspec.convert(one, Problem) for one in error.details["errors"]]
        for problem in problems:
            problem.field = f"program.{problem.field}"
        raise _bad(problems) from None
    return given_fields(launch)


def _bad(problems: list[Problem]) -> RelayError:
    what = "; ".join(f"{one.field}: {one.message}" for one in problems[:3])
    return RelayError(
        Code.INVALID_REQUEST,
        f"This is not a readable export: {what}",
        f"Send the data of {call_of('export-session')}; "
        f"its program has the fields of {call_of('launch')}.",
        errors=problems,
    )


def _breakpoint(given: dict[str, Any]) -> dict[str, Any]:
    """The breakpoint with its path in `file`, however it was written."""
    source = given.pop("source", None)
    return {"file": os.path.normpath(source["path"]), **given} if source else given


def _require_readable(version: str | None) -> None:
    if version is None:
        return
    numbers = _NUMBERS.fullmatch(version)
    own = _NUMBERS.fullmatch(VERSION)
    assert own is not None
    if numbers is not None and _pair(numbers) <= _pair(own):
        return
    problem = "unknown version" if numbers is None else f"newer than this relay, {VERSION}"
    raise RelayError(
        Code.INVALID_REQUEST,
        f"An export of version {version!r} cannot be read: {problem}",
        f"Export it again with a relay of version {VERSION} or older, or import it there. "
        "Without version it is read as one of this relay.",
        errors=[Problem("version", problem, version)],
    )


def _pair(numbers: re.Match[str]) -> tuple[int, int]:
    return int(numbers.group(1)), int(numbers.group(2))
