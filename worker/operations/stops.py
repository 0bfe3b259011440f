"""The handlers about stops as a whole: the report in a reply, snapshot, history, watches."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models import inspection as i
from debug_relay.protocol.models import stop_report as st
from debug_relay.protocol.models.execution import Execution
from debug_relay.protocol.models.fields import TEXT_BOUNDS, Bounds, Count
from debug_relay.protocol.rendering import output_withheld
from debug_relay.protocol.rendering.size_limit import ENVELOPE_BYTES, fit
from debug_relay.protocol.rendering.text import CONTENT_TYPES
from debug_relay.protocol.state import ENDED, State
from debug_relay.protocol.wire.envelope import encode_json
from debug_relay.worker.inspection.stop_reports import Composed
from debug_relay.worker.operations.call import Call

_PAUSED = frozenset({State.PAUSED})
_OVER = _PAUSED | ENDED
_WITHOUT_STOP = ("exit_code", "signal", "end_reason", "waiting_for_input", "prompt")
_NO_LOCALS = Bounds(frames=0, locals=0, source_lines=0, output_bytes=0)


async def add_report(call: Call, result: Execution, wanted: bool | Bounds) -> None:
    """Add the stop report to the reply of a call that waited for a stop; at the end, what is to be
    said of breakpoints that could not be hit.
    """
    result.never_found += await call.session.never_found()
    if isinstance(wanted, bool) and call.head.format in CONTENT_TYPES:
        wanted = TEXT_BOUNDS
    if wanted is False or result.status is not State.PAUSED:
        return
    bounds = Bounds() if wanted is True else wanted
    session = call.session
    composed = await session.reports.of_stop(result.stop_id, bounds)
    if composed is None:
        return
    report, calls = _readable_by(call, composed)
    report.return_value = report.return_value or result.return_value
    if (returned := result.return_value) is not None and len(returned.value) > bounds.max_bytes / 8:
        short = returned.value[: bounds.max_bytes // 8] + "…"
        result.return_value = msgspec.structs.replace(returned, value=short)
    room = bounds.max_bytes - len(encode_json(result)) - _envelope(call)
    result.stop = fit(report, room, calls)


def _readable_by(call: Call, composed: Composed) -> Composed:
    """Leave out of the report what this caller may not read."""
    if not call.reads_output:
        output_withheld.in_stop(composed.report)
    return composed


def _envelope(call: Call) -> int:
    return ENVELOPE_BYTES + len(encode_json(_sound(call.head.request_id or "")))


def _sound(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


async def snapshot(call: Call, params: st.Snapshot) -> Struct:
    session = call.session
    lifecycle = session.lifecycle
    if params.wait:
        await session.publication.until(
            lambda: lifecycle.state in _OVER or session.input.began_since(-1),
            params.wait,
            call.abandoned,
        )
        if lifecycle.state is not State.PAUSED:
            now = session.run.result(completed=False)
            return st.StopReport(
                never_found=await session.never_found(),
                **{name: getattr(now, name) for name in ("status", *_WITHOUT_STOP)},
            )
    session.access.require("snapshot", _PAUSED)
    usual = TEXT_BOUNDS if call.head.format in CONTENT_TYPES else Bounds()
    given = {name: getattr(params, name) for name in Bounds.__struct_fields__}
    bounds = msgspec.structs.replace(
        usual, **{name: value for name, value in given.items() if value is not None}
    )
    composed = await session.reports.now(bounds, call.is_safe)
    report, calls = _readable_by(call, composed)
    fitted = fit(report, bounds.max_bytes - _envelope(call), calls)
    assert fitted is not None  # the smallest bound has room for the report without its lists
    return st.StopReport(stop=fitted)


async def add_watch(call: Call, params: i.AddWatch) -> Struct:
    session = call.session
    code_lines = await session.breakpoints.verifier.code_lines()
    problem = await code_lines.check_expression(params.expression, "condition")
    if problem is not None:
        raise RelayError(
            Code.EVALUATE_ERROR,
            f"The expression does not compile: {problem.message}",
            f"Correct it at column {problem.offset}; a watch is an expression, not a statement.",
            expression=params.expression[:200],
            error_message=problem.message,
            offset=problem.offset,
        )
    watch = session.watches.add(params.expression)
    await session.watches.send()
    await _evaluate_watches(call)
    return watch


async def list_watches(call: Call, params: i.ListWatches) -> Struct:
    await call.session.reports.settled()
    listed = call.session.watches.listed()
    return i.WatchList(watches=listed, total=len(listed))


async def delete_watches(call: Call, params: i.DeleteWatches) -> Struct:
    count = call.session.watches.remove(params.watch_id)
    await call.session.watches.send()
    return Count(deleted=count)


async def _evaluate_watches(call: Call) -> None:
    """Evaluate the watches at once if the program is at a stop."""
    session = call.session
    if session.lifecycle.state is State.PAUSED and session.reports.current is not None:
        await session.reports.now(_NO_LOCALS)
