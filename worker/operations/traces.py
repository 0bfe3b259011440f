"""The handlers of traces: one begins a trace and waits for its end, the other reads its rows."""

from __future__ import annotations

from typing import Final

from debug_relay.protocol.models.execution import EndTrace, GetTrace, Trace, TraceRows
from debug_relay.protocol.models.fields import Bounds
from debug_relay.protocol.rendering.traces import in_text
from debug_relay.protocol.trace_pages import (
    Measure,
    PageSize,
    in_columns,
    in_json,
    turn_to_columns,
)
from debug_relay.protocol.wire.envelope import encode_json
from debug_relay.worker.operations import stops
from debug_relay.worker.operations.call import Call

MOST_ROWS: Final = 100_000  # Rows at the end of a trace that a reply may have.
_REPORT_BYTES: Final = 16_384  # The stop report beside a trace's rows.


async def trace(call: Call, params: Trace) -> TraceRows:
    session = call.session
    async with session.run.lock, session.probes.nobody_evaluates():
        session.access.require("trace")
        # Decides again when the program has the trace: another caller may hold the lease then.
        tracing = await session.traces.begin(params, lambda: session.access.require("trace"))
    if params.background:
        return await session.traces.page(None, PageSize(1), in_json)
    await tracing.done(call.abandoned)
    return await _ending(call, params.rows, params.budget, params.shape)


async def end_trace(call: Call, params: EndTrace) -> TraceRows:
    session = call.session
    session.access.require("end-trace")
    await session.traces.end(call.abandoned)
    return await _ending(call, MOST_ROWS, params.budget, params.shape)


async def _ending(call: Call, most_rows: int, budget: int, shape: str) -> TraceRows:
    """The last rows of a trace, and where the program is now."""
    most = PageSize(rows=most_rows, characters=budget, bytes=budget * 8)
    rows = await call.session.traces.page(None, most, _measure(call, shape))
    _shape(call, rows, shape)
    room = len(encode_json(rows)) + _REPORT_BYTES
    await stops.add_report(call, rows, Bounds(max_bytes=room))
    return rows


async def get_trace(call: Call, params: GetTrace) -> TraceRows:
    # Without a cursor the rows begin with the first one.
    session = call.session
    measure = _measure(call, params.shape)
    rows = await session.traces.page(
        params.cursor, PageSize(params.limit), measure, from_first=True
    )
    _shape(call, rows, params.shape)
    return rows


def _shape(call: Call, rows: TraceRows, shape: str) -> None:
    if shape == "columns" and call.head.format == "json":
        turn_to_columns(rows)


def _measure(call: Call, shape: str) -> Measure:
    """How a row is counted: as it is sent."""
    if call.head.format != "json":
        return in_text
    return in_columns if shape == "columns" else in_json
