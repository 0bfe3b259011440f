"""Converts variables as the engine answers with them into the shape of the API."""

from __future__ import annotations

from typing import Any

from debug_relay.protocol.models import inspection as i
from debug_relay.protocol.models.fields import UNSET
from debug_relay.protocol.wire.probe_answers import Variable
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.hub import Hub


def as_variable(
    hub: Hub, server: DebugServer, thread_id: int, told: Variable, present: bool = True
) -> i.Variable:
    """Convert a variable; `present`: it can still be expanded."""
    return i.Variable(**_fields(hub, server, thread_id, told, present))


def as_listed(hub: Hub, server: DebugServer, thread_id: int, told: Variable) -> i.ListedVariable:
    """Convert a variable of a page, which has the numbers of its children too."""
    named, indexed = counts(told)
    fields = _fields(hub, server, thread_id, told, True)
    return i.ListedVariable(**fields, named_variables=named, indexed_variables=indexed)


def _fields(
    hub: Hub, server: DebugServer, thread_id: int, told: Variable, present: bool
) -> dict[str, Any]:
    return {
        "name": told.name,
        "value": told.value,
        "type": told.type or "",
        "variables_reference": hub.reference(server, told.reference, thread_id) if present else 0,
        "length": told.length,
        "expandable": told.reference != 0,
        "presentation_hint": told.hint,
        "truncated": told.truncated,
        "base64": UNSET if told.base64 is None else told.base64,
        "circular": told.circular or UNSET,
    }


def counts(told: Variable) -> tuple[int | None, int | None]:
    """The numbers of named and indexed children; None if they were not counted."""
    if not told.reference:
        return 0, 0
    if told.uncounted:
        return None, None
    if told.length is None:
        return None, 0
    named, indexed = (0, told.length) if told.indexed else (told.length, 0)
    return None if told.more else named, indexed
