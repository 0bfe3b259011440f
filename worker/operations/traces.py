"""The handlers of traces: one that begins it and waits for its end, one that reads its rows."""

from __future__ import annotations

from typing import Final

import msgspec

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.execution import GetTrace, Trace, TraceRows
from debug_relay.protocol.models.fields import Bounds
from debug_relay.protocol.wire.envelope import encode_json
from debug_relay.protocol.wire.ring_format import Place, unpack_cursor
from debug_relay.worker.operations import stops
from debug_relay.worker.operations.call import Call
from debug_relay.worker.tracing import row_file
from debug_relay.worker.tracing.trace import Tracing

_PAGE_BYTES: Final = 1 << 20
_REPORT_BYTES: Final = 16_384


async def trace(call: Call, params: Trace) -> TraceRows:
    session = call.session
    async with session.run.lock, session.probes.nobody_evaluates():
        session.access.require("trace")
        tracing = await session.traces.begin(params)
    await tracing.done(call.abandoned)
    rows = await tracing.page(None, params.max_rows, params.budget, params.budget * 2)
    room = len(encode_json(rows)) + _REPORT_BYTES
    await stops.add_report(call, rows, Bounds(max_bytes=room))
    return rows


async def get_trace(call: Call, params: GetTrace) -> TraceRows:
    tracing = call.session.traces.last()
    place = _place(tracing, params.cursor) if params.cursor else None
    return await tracing.page(place, params.limit, _PAGE_BYTES, _PAGE_BYTES)


def _place(tracing: Tracing, cursor: str) -> Place:
    try:
        (place,) = unpack_cursor(tracing.owner, cursor, 1)
    except (ValueError, msgspec.MsgspecError):
        place = None
    if place is not None and place.epoch == row_file.header_of(tracing.file).epoch:
        return place
    problem = "is of an earlier trace" if place else "is not one that this endpoint returned"
    raise RelayError(
        Code.INVALID_PARAMETER,
        f"cursor {cursor[:80]!r} {problem}",
        "Use next_cursor of an earlier reply as it is, or leave cursor out for the first row.",
        errors=[{"field": "cursor", "message": problem, "value": cursor[:200]}],
    )
