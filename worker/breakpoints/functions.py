"""Function breakpoints: reads requests, and reports the function's places to callers.

Only the program knows its functions, and only while it runs: the probe searches for them there.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.breakpoints import BreakpointSpec
from debug_relay.protocol.refusals import Problem
from debug_relay.protocol.wire.breakpoint_requests import FoundFunction, FoundPlace
from debug_relay.worker.breakpoints.table import Entry

LEFT_OUT: Final = {
    "just_my_code": (
        "just_my_code leaves this file out, because it belongs to a library",
        "PATCH the session with just_my_code false, and launch again.",
    ),
    "debugger": (
        "the debugger uses this file of the standard library itself and never stops in it",
        "Stop where the program calls it.",
    ),
}
NO_PROBE: Final = "this session has no probe (attached by port), which would find the function"
LOOKED_FOR: Final = "the function is searched in each module that the program loads"
_INNER: Final = frozenset({"<locals>", "<lambda>"})
_MOST_SHOWN: Final = 10  # Functions of the same name elsewhere that a breakpoint's message lists.


def entry_of(spec: BreakpointSpec, absolute: Callable[[str], str]) -> Entry:
    """The entry of a request; refused if it also names a line, or no valid function."""
    assert spec.function is not None
    beside = [name for name in ("line", "text", "expected_text") if getattr(spec, name) is not None]
    if beside:
        raise RelayError(
            Code.INVALID_REQUEST,
            f"function cannot be combined with {beside[0]}: a breakpoint has one of them",
            'Send {"function": "K.m"}, or that with "file" for the functions of one file.',
            errors=[
                Problem(name, "not allowed together with function", getattr(spec, name))
                for name in beside
            ],
        )
    _require_name(spec.function)
    file = spec.source.path if spec.source is not None else spec.file
    only_in = None if file is None else os.path.realpath(absolute(file))
    if spec.must_exist and only_in is not None and not os.path.exists(only_in):
        raise RelayError(
            Code.BREAKPOINT_FILE_NOT_FOUND,
            f"{only_in} does not exist",
            "Correct the path, or leave must_exist out to wait for the file.",
            path=only_in,
        )
    entry = Entry(
        id="",
        path="",
        real_path="",
        line=0,
        function=spec.function,
        only_in=only_in,
        condition=spec.condition,
        hit_condition=spec.hit_condition,
        log_message=spec.log_message,
        enabled=spec.enabled,
    )
    return unplaced(entry)


def _require_name(name: str) -> None:
    if all(part.isidentifier() or part in _INNER for part in name.split(".")):
        return
    raise RelayError(
        Code.INVALID_REQUEST,
        f"{name!r} is not the name of a function",
        "Write it with dots and without brackets: work, K.method, package.module.K.method.",
        errors=[Problem("function", "no name of a function", name)],
    )


def plain(entry: Entry) -> str:
    """The name as Python's compiler writes it."""
    assert entry.function is not None
    return unicodedata.normalize("NFKC", entry.function)


def unplaced(entry: Entry) -> Entry:
    """The same breakpoint without a place: none is known."""
    return replace(
        entry,
        path="",
        real_path="",
        line=0,
        verified=False,
        message=LOOKED_FOR,
        suggestion=None,
    )


def is_missed_method(entry: Entry) -> bool:
    """Whether it may be a method that its class inherits, and that was not found for this
    reason.
    """
    return entry.function is not None and "." in entry.function and not entry.verified


def explain_owner(entry: Entry, owners: list[str]) -> None:
    """Explains why it cannot stop there: a static method's call does not reveal its class."""
    if not owners or entry.verified:
        return
    owner = entry.function.rpartition(".")[0] if entry.function else ""
    entry.message = f"{owner} inherits this method: it is {owners[0]}"
    entry.suggestion = f"A static method or one in C: set it at {owners[0]}, for all classes."


def _add_places(entry: Entry, places: list[FoundPlace]) -> None:
    """Adds the places not mentioned yet: each process of a program finds them separately."""
    message = entry.message or ""
    others = [one for one in places if (one.path, one.line) != (entry.path, entry.line)]
    words = [f"{one.name} ({one.path}:{one.line})" for one in others[:_MOST_SHOWN]]
    listed = ", ".join(one for one in words if one not in message)
    if listed:
        entry.message = "; ".join(part for part in (message, f"also in {listed}") if part)[:2000]


def place(entry: Entry, found: FoundFunction) -> None:
    """Note the places where the function was found: the entry has the first, and its message names
    the others. The program stops at all of them.
    """
    reached = [one for one in found.places if one.left_out is None]
    if not entry.verified and found.places:
        first = (reached or found.places)[0]
        entry.path, entry.line = first.path, first.line
        entry.real_path = os.path.realpath(first.path)
        entry.verified = bool(reached)
        why = (None, None) if first.left_out is None else LEFT_OUT[first.left_out]
        entry.message, entry.suggestion = why
        if first.inherited and reached:
            owner = (entry.function or "").rpartition(".")[0]
            entry.message = f"{owner} inherits it from {first.name}: stops only for a {owner}"
        reached = reached[1:]
    if entry.verified and reached:
        _add_places(entry, reached)
    elif not entry.verified and not found.places and found.elsewhere:
        entry.suggestion = f"There is {', '.join(found.elsewhere[:_MOST_SHOWN])}: is that meant?"
