"""The handlers of traces: one begins a trace and waits for its end, the other reads its rows."""

from __future__ import annotations

from typing import Final

from debug_relay.protocol.models.execution import GetTrace, Trace, TraceRows
from debug_relay.protocol.models.fields import Bounds
from debug_relay.protocol.trace_pages import PageSize
from debug_relay.protocol.wire.envelope import encode_json
from debug_relay.worker.operations import stops
from debug_relay.worker.operations.call import Call

_REPORT_BYTES: Final = 16_384  # The stop report beside a trace's rows.


async def trace(call: Call, params: Trace) -> TraceRows:
    session = call.session
    async with session.run.lock, session.probes.nobody_evaluates():
        session.access.require("trace")
        tracing = await session.traces.begin(params)
    await tracing.done(call.abandoned)
    most = PageSize(rows=params.max_rows, characters=params.budget, bytes=params.budget * 2)
    rows = await session.traces.page(None, most)
    room = len(encode_json(rows)) + _REPORT_BYTES
    await stops.add_report(call, rows, Bounds(max_bytes=room))
    return rows


async def get_trace(call: Call, params: GetTrace) -> TraceRows:
    return await call.session.traces.page(params.cursor, PageSize(params.limit))
