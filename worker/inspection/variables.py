"""Converts variables from the probe or from DAP into the shape of the API.

A row from the probe includes the number of children; one from DAP (`of_dap`) says that it is
unknown.
"""

from __future__ import annotations

from typing import Any, Final

from debug_relay.protocol.models import inspection as i
from debug_relay.protocol.models.fields import UNSET
from debug_relay.protocol.wire import dap
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.hub import Hub

VALUE_LIMIT: Final = 65536
_PLAIN: Final = len(("name", "value", "type"))
Row = dict[str, Any]


def of_dap(variable: dap.Variable, width: int = VALUE_LIMIT) -> Row:
    row: Row = {
        "name": variable.name,
        "value": variable.value,
        "type": variable.type,
        "reference": variable.variables_reference,
        "hint": variable.presentation_hint,
        "unknown": True,
    }
    if len(variable.value) > width:
        row["value"] = variable.value[: width - 1] + "…"
        row["truncated"] = True
    return row


def as_variable(
    hub: Hub, server: DebugServer, thread_id: int, row: Row, present: bool = True
) -> i.Variable:
    """`present`: what can be expanded still can."""
    if len(row) == _PLAIN:
        # Most are: nothing is known of it but its name, type and value.
        return i.Variable(
            name=row["name"],
            value=row["value"],
            type=row["type"] or "",
            variables_reference=0,
            named_variables=0,
            indexed_variables=0,
        )
    reference = 0
    if present:
        reference = hub.reference(server, row.get("reference", 0), thread_id)
    named, indexed = counts(row)
    return i.Variable(
        name=row["name"],
        value=row["value"],
        type=row["type"] or "",
        variables_reference=reference,
        named_variables=named,
        indexed_variables=indexed,
        length=row.get("length"),
        expandable=bool(row.get("reference")),
        presentation_hint=row.get("hint"),
        truncated=row.get("truncated", False),
        base64=row.get("base64", UNSET),
        circular=row.get("circular", UNSET),
    )


def counts(row: Row) -> tuple[int | None, int | None]:
    """The numbers of named and indexed children; None if they were not counted."""
    if not row.get("reference"):
        return 0, 0
    if row.get("unknown"):
        return None, None
    length: int | None = row.get("length")
    if length is None:
        return None, 0
    named, indexed = (0, length) if row["indexed"] else (length, 0)
    return None if row["more"] else named, indexed
