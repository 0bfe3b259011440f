"""Converts variables as the engine answers with them into the shape of the API."""

from __future__ import annotations

from msgspec.structs import asdict

from debug_relay.protocol.models import inspection as i
from debug_relay.protocol.models.fields import UNSET
from debug_relay.protocol.wire.probe_answers import Variable
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.hub import Hub


def as_variable(
    hub: Hub, server: DebugServer, thread_id: int, row: Variable, present: bool = True
) -> i.Variable:
    """Convert a variable; `present`: it can still be expanded."""
    reference = row.reference
    return i.Variable(
        name=row.name,
        value=row.value,
        type=row.type or "",
        variables_reference=hub.reference(server, reference, thread_id) if present else 0,
        length=row.length,
        expandable=reference != 0,
        presentation_hint=row.hint,
        truncated=row.truncated,
        base64=UNSET if row.base64 is None else row.base64,
        circular=row.circular or UNSET,
    )


def as_listed(hub: Hub, server: DebugServer, thread_id: int, row: Variable) -> i.ListedVariable:
    """Convert a variable of a page, which has the numbers of its children too."""
    named, indexed = counts(row)
    plain = as_variable(hub, server, thread_id, row)
    return i.ListedVariable(**asdict(plain), named_variables=named, indexed_variables=indexed)


def counts(row: Variable) -> tuple[int | None, int | None]:
    """The numbers of named and indexed children; None if they were not counted."""
    if not row.reference:
        return 0, 0
    if row.uncounted:
        return None, None
    if row.length is None:
        return None, 0
    named, indexed = (0, row.length) if row.indexed else (row.length, 0)
    return None if row.more else named, indexed
