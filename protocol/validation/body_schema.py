"""The OpenAPI document takes from here what JSON Schema can say of `cross_field_rules`.

A field that is at one of the values of `NOTHING` counts as left out, here as there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from debug_relay.protocol.models.breakpoints import BreakpointSpec, SetBreakpoints, WatchScope
from debug_relay.protocol.models.creation import CreateSession
from debug_relay.protocol.models.execution import Trace, TraceAt, TraceSpec
from debug_relay.protocol.models.export_import import ImportedConfig, ImportSession
from debug_relay.protocol.models.fields import Params
from debug_relay.protocol.models.program import Attach, Input, Launch
from debug_relay.protocol.models.run import Run
from debug_relay.protocol.models.sessions import PatchSession
from debug_relay.protocol.validation.cross_field_rules import (
    AT_LEAST_ONE,
    JUST_ONE,
    NATIVE,
    NOT_WITH_PORT,
    NOT_WITH_WATCH,
    NOTHING,
    NOTHING_TO_WRITE,
    OF_MODE,
    OF_PYTHON,
    OF_SESSION,
    ONE_BREAKPOINT,
    PLACES,
)

_Node = dict[str, Any]
_LEFT_OUT: Final = {"enum": list(NOTHING)}
_FIRST_PROGRAM: Final = frozenset(name for names in OF_MODE.values() for name in names)


def _given(nothing: Sequence[Any] = NOTHING) -> _Node:
    return {"not": {"enum": list(nothing)}}


def _shape(given: Iterable[str], left_out: Iterable[str] = (), **others: _Node) -> _Node:
    """One way to fill a body: with these fields, without those."""
    has = dict.fromkeys(given, _given())
    lacks = dict.fromkeys(sorted(set(left_out) - has.keys()), _LEFT_OUT)
    return {"required": list(has), "properties": {**has, **lacks, **others}}


def _just_one(names: Sequence[str]) -> _Node:
    return {"anyOf": [_shape([name], names) for name in names]}


def _any(names: Iterable[str], nothing: Sequence[Any] = NOTHING) -> _Node:
    return {
        "anyOf": [{"required": [name], "properties": {name: _given(nothing)}} for name in names]
    }


def _launches(of_python: Iterable[str]) -> list[_Node]:
    """The ways to name a program: Python's, and that of a native one."""
    ways = JUST_ONE[Launch]
    # A relay cannot open a terminal window.
    consoles = {"enum": ["internalConsole", "integratedTerminal"]}
    python = {"const": "debugpy"}
    return [
        *(_shape([way], [*ways, *NATIVE], adapter=python, console=consoles) for way in ways),
        _shape(["adapter", "program"], of_python, adapter={"not": python}, console=consoles),
    ]


def _attaches() -> list[_Node]:
    """The ways to name a process."""
    ways = JUST_ONE[Attach]
    return [_shape([way], [*ways, *(NOT_WITH_PORT if way == "port" else ["host"])]) for way in ways]


def _with_mode(mode: str, ways: list[_Node]) -> list[_Node]:
    others = dict.fromkeys(sorted(_FIRST_PROGRAM - {*OF_MODE[mode]}), _LEFT_OUT)
    of_mode = {**others, "mode": {"const": mode}}
    return [
        {
            "required": ["mode", *way["required"]],
            "properties": {**of_mode, **way["properties"]},
        }
        for way in ways
    ]


def _breakpoint_shapes(*others: str) -> list[_Node]:
    """The ways to name a place, with its file in either field, and to name what is watched."""
    files = ("file", "source")
    unlike = [*PLACES, *files, "watch", "in", "frame_id", *others]
    with_line = [_shape(["line", file], unlike) for file in files]
    with_text = [_shape(["text", file], [*unlike, "expected_text"]) for file in files]
    of_function = [
        _shape(["function", *file], [*unlike, "expected_text"]) for file in ((), *zip(files))
    ]
    watched = [*NOT_WITH_WATCH, *others]
    return [
        *with_line,
        *with_text,
        *of_function,
        _shape(["watch", "in"], watched),
        _shape(["watch", "frame_id"], [*watched, "in"]),
    ]


# `is_absolute`, as a pattern; an empty path is none.
_IN_A_PROJECT: Final = {"properties": {"project_root": {"pattern": "^($|/|~/|~$)"}}}
_RESTORED: Final = {
    "anyOf": [
        {"properties": {"restore_breakpoints": {"const": False}}},
        _shape(["project_root"]),
    ]
}
_ONE_TIMEOUT: Final = {"anyOf": [_shape([], ["timeout_minutes"]), _shape([], ["idle_timeout"])]}
_WITHOUT_PROGRAM: Final = _shape(
    [], _FIRST_PROGRAM, mode={"const": None}, snapshot={"const": False}
)
# A watchpoint of a frame needs a paused program, and these start theirs.
_NO_FRAMES: Final = {"properties": {"breakpoints": {"items": _shape([], ["frame_id"])}}}
# A program that listens has been started with these.
_AS_IT_LISTENS: Final = {
    "anyOf": [
        _shape([], ["port"]),
        {"properties": {"tree": {"const": False}, "tracing": {"const": "auto"}}},
    ]
}
_BREAKPOINT: Final = {"anyOf": _breakpoint_shapes()}
_EXPORTED_PROGRAM: Final = {
    "properties": {
        "program": {
            "anyOf": [
                {"type": "null"},
                {
                    "allOf": [
                        {"$ref": "#/components/schemas/LaunchBody"},
                        {"properties": {"wait": False, "snapshot": False}},
                    ]
                },
            ]
        }
    }
}

_BODIES: Final[Mapping[type[Params], list[_Node]]] = {
    Attach: [{"anyOf": _attaches()}, _AS_IT_LISTENS],
    CreateSession: [
        _IN_A_PROJECT,
        _ONE_TIMEOUT,
        _RESTORED,
        _NO_FRAMES,
        {
            "anyOf": [
                _WITHOUT_PROGRAM,
                *_with_mode("launch", _launches({*OF_PYTHON} - {*OF_SESSION})),
                *_with_mode("attach", _attaches()),
            ]
        },
    ],
    ImportSession: [_any(AT_LEAST_ONE[ImportSession]), _EXPORTED_PROGRAM],
    Input: [_any(AT_LEAST_ONE[Input], NOTHING_TO_WRITE)],
    Launch: [{"anyOf": _launches(OF_PYTHON)}],
    PatchSession: [_IN_A_PROJECT, _ONE_TIMEOUT],
    Run: [_just_one(JUST_ONE[Run]), _NO_FRAMES],
    SetBreakpoints: [
        {"anyOf": [_shape(["breakpoints"], ONE_BREAKPOINT), *_breakpoint_shapes("breakpoints")]}
    ],
    Trace: [_just_one(JUST_ONE[Trace])],
}
_INSIDE: Final[Mapping[type[Params], list[_Node]]] = {
    BreakpointSpec: [_BREAKPOINT],
    ImportedConfig: [_IN_A_PROJECT],
    TraceAt: [_just_one(PLACES), _any(["function", "file"])],
    TraceSpec: [_just_one(JUST_ONE[Trace])],
    WatchScope: [_just_one(("function", "files"))],
}


def body_rules(params: type[Params]) -> _Node:
    """Keywords of JSON Schema for the body of these Params."""
    rules = _BODIES.get(params)
    return {"allOf": rules} if rules else {}


def rules_inside() -> Iterable[tuple[type[Params], _Node]]:
    """Keywords for the types of objects inside bodies."""
    return ((inner, {"allOf": rules}) for inner, rules in _INSIDE.items())
