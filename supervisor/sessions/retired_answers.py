"""Answers from the file that a retired worker has left, by operation.

The format is `protocol.models.retired_session`.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from msgspec import Struct

from debug_relay.protocol.models import breakpoints as b
from debug_relay.protocol.models import inspection as i
from debug_relay.protocol.models.retired_session import FILE, Aftermath
from debug_relay.supervisor.storage.json_files import read_json


def answer(folder: Path, operation: str, params: Struct) -> Struct | None:
    """None where only a worker can answer. Blocks for as long as the disk does."""
    if operation not in _ANSWERED:
        return None
    try:
        left = msgspec.convert(read_json(folder / FILE), Aftermath)
    except msgspec.ValidationError:
        return None
    if isinstance(params, b.ListBreakpoints):
        return _listed(left, params)
    if isinstance(params, b.OneBreakpoint):
        # None for an unknown one: the refusal by a worker lists those that there are.
        return next((one for one in left.breakpoints if one.id == params.breakpoint_id), None)
    if operation == "list-watches":
        return i.WatchList(watches=left.watches, total=len(left.watches))
    return left.resources if operation == "resources" else left.exception_breakpoints


_ANSWERED = frozenset(
    {
        "list-breakpoints", "get-breakpoint", "get-exception-breakpoints", "list-watches",
        "resources",
    }
)  # fmt: skip


def _listed(left: Aftermath, params: b.ListBreakpoints) -> b.BreakpointList | None:
    found = left.breakpoints
    if params.file is not None:
        if not os.path.isabs(params.file):
            return None  # only a worker knows what it is relative to
        wanted = os.path.realpath(params.file)
        found = [
            one for one in found if one.source and os.path.realpath(one.source["path"]) == wanted
        ]
    if params.verified is not None:
        found = [one for one in found if one.verified is params.verified]
    return b.BreakpointList(breakpoints=found, total=len(found))
