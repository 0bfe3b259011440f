"""The handlers about stops as a whole: the report in a reply, snapshot, history, watches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec
from msgspec import Struct

from debug_relay.protocol import inspection as i
from debug_relay.protocol import stops as st
from debug_relay.protocol.envelope import encode_json
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.execution import Execution
from debug_relay.protocol.fields import Bounds, Count
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.records import Place, pack_cursor, unpack_cursor
from debug_relay.protocol.state import State
from debug_relay.protocol.text import CONTENT_TYPES
from debug_relay.worker.call import Call
from debug_relay.worker.fitting import ENVELOPE, fit
from debug_relay.worker.stop_reports import Kept, Told

# Who reads text is shown the place without having to ask for it.
_IN_TEXT = Bounds(frames=4, locals=20, source_lines=2, output_bytes=1024)
_NO_LOCALS = Bounds(frames=0, locals=0, source_lines=0, output_bytes=0)


async def add_report(call: Call, result: Execution, wanted: bool | Bounds) -> None:
    """The stop report into the reply of a call that has come to a stop."""
    if wanted is False and call.head.format in CONTENT_TYPES:
        wanted = _IN_TEXT
    if wanted is False or result.status is not State.PAUSED:
        return
    bounds = Bounds() if wanted is True else wanted
    session = call.session
    told = await session.reports.of_stop(result.stop_id, bounds)
    if told is None:
        return
    report, calls = told
    report.return_value = report.return_value or result.return_value
    if (returned := result.return_value) is not None and len(returned.value) > bounds.max_bytes / 8:
        short = returned.value[: bounds.max_bytes // 8] + "…"
        result.return_value = msgspec.structs.replace(returned, value=short)
    room = bounds.max_bytes - len(encode_json(result)) - _envelope(call)
    result.stop = fit(report, room, calls)


def _envelope(call: Call) -> int:
    return ENVELOPE + len(encode_json(_sound(call.head.request_id or "")))


def _sound(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


async def snapshot(call: Call, params: st.Snapshot) -> Struct:
    session = call.session
    session.require("snapshot", OPERATIONS["snapshot"].states)
    bounds = Bounds(
        **{name: getattr(params, name) for name in Bounds.__struct_fields__},
    )
    report, calls = await session.reports.now(bounds)
    fitted = fit(report, bounds.max_bytes - _envelope(call), calls)
    assert fitted is not None  # the least bound has room for the bare facts
    return st.StopReport(stop=fitted)


async def history(call: Call, params: st.History) -> Struct:
    """The newest first: what was true two stops ago is the third."""
    session = call.session
    await session.reports.settled()
    below = _below(session.id, params.cursor)
    kept = [one for one in reversed(session.reports.kept) if below is None or one.stop_id < below]
    bounds = Bounds(max_bytes=params.max_bytes)
    room = params.max_bytes - _envelope(call) - 256
    items: list[st.Stop] = []
    for report, calls in _reports(call, islice(kept, params.limit), bounds):
        size = len(encode_json(report)) + 1
        if size > room and items:
            break
        fitted = fit(report, room, calls)
        if fitted is None:
            break
        items.append(fitted)
        room -= size
    has_more = len(items) < len(kept)
    oldest = session.reports.kept[0].stop_id if session.reports.kept else 1
    return st.HistoryPage(
        items=items,
        next_cursor=pack_cursor(_owner(session.id), Place(position=items[-1].stop_id))
        if has_more and items
        else None,
        has_more=has_more,
        dropped=oldest - 1,
    )


def _reports(call: Call, kept: Iterator[Kept], bounds: Bounds) -> Iterator[Told]:
    for one in kept:
        yield call.session.reports.past(one, bounds)


def _owner(session_id: str) -> str:
    return f"history of {session_id}"


def _below(session_id: str, cursor: str | None) -> int | None:
    if cursor is None:
        return None
    try:
        (place,) = unpack_cursor(_owner(session_id), cursor, 1)
    except (ValueError, msgspec.MsgspecError):
        raise RelayError(
            Code.INVALID_PARAMETER,
            f"cursor {cursor[:80]!r} is none that this endpoint gave",
            "Use next_cursor of an earlier reply as it is, or leave cursor out for the newest.",
            errors=[
                {
                    "field": "cursor",
                    "message": "not a cursor of this endpoint",
                    "value": cursor[:200],
                }
            ],
        ) from None
    return place.position


async def add_watch(call: Call, params: i.AddWatch) -> Struct:
    session = call.session
    book = await session.breakpoints.book()
    problem = await book.check_expression(params.expression, "condition")
    if problem is not None:
        raise RelayError(
            Code.EVALUATE_ERROR,
            f"The expression does not compile: {problem.message}",
            f"Correct it at column {problem.offset}; a watch is an expression, no statement.",
            expression=params.expression[:200],
            error_message=problem.message,
            offset=problem.offset,
        )
    watch = session.watches.add(params.expression)
    await session.watches.send()
    await _look(call)
    return watch


async def list_watches(call: Call, params: i.ListWatches) -> Struct:
    await call.session.reports.settled()
    listed = call.session.watches.listed()
    return i.WatchList(watches=listed, total=len(listed))


async def delete_watches(call: Call, params: i.DeleteWatches) -> Struct:
    count = call.session.watches.remove(params.watch_id)
    await call.session.watches.send()
    return Count(deleted=count)


async def _look(call: Call) -> None:
    """At a stop the watches have values at once."""
    session = call.session
    if session.state is State.PAUSED and session.reports.current is not None:
        await session.reports.now(_NO_LOCALS)
