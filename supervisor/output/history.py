"""Pages of the stop reports that a session's worker keeps in `stops.ring`, for `history`.

This reads only the file, so the answer is the same after the worker has retired or died. A stop can
be in the ring more than once, each time with more details: the last record counts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models import stop_report
from debug_relay.protocol.models.output_events import seq_of
from debug_relay.protocol.rendering import output_withheld
from debug_relay.protocol.rendering.size_limit import (
    ENVELOPE_BYTES,
    calls_for_rest,
    fit,
)
from debug_relay.protocol.wire.envelope import encode_json
from debug_relay.protocol.wire.ring_format import Place, pack_cursor, unpack_cursor
from debug_relay.supervisor.output.ring_reader import Walk, opened

_PAGE_FIELDS_BYTES: Final = 256  # The fields of a page of stop reports beside the reports.
_decode: Final = msgspec.json.Decoder(stop_report.KeptStop).decode


def last_stop(ring: Path) -> int:
    """The number of the newest stop in the ring."""
    return max(_kept(ring), default=0)


def page(
    ring: Path, params: stop_report.History, request_id: str, reads_output: bool = True
) -> stop_report.HistoryPage:
    """A page of reports, the newest first."""
    id = params.session_id
    below = _below(id, params.cursor)
    kept = _kept(ring)
    numbers = [number for number in sorted(kept, reverse=True) if below is None or number < below]
    envelope = ENVELOPE_BYTES + len(encode_json(request_id))
    room = params.max_bytes - envelope - _PAGE_FIELDS_BYTES
    items: list[stop_report.Stop] = []
    for number in numbers[: params.limit]:
        found = _decode(kept[number])
        if not reads_output:
            output_withheld.in_stop(found.report)
        size = len(encode_json(found.report)) + 1
        if size > room and items:
            break
        fitted = fit(found.report, room, calls_for_rest(id, params.max_bytes, found.printed_from))
        if fitted is None:
            break
        items.append(fitted)
        room -= size
    has_more = len(items) < len(numbers)
    return stop_report.HistoryPage(
        items=items,
        next_cursor=pack_cursor(_owner(id), Place(position=items[-1].stop_id))
        if has_more and items
        else None,
        has_more=has_more,
        dropped=min(kept, default=1) - 1,
    )


def _kept(ring: Path) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    with opened(ring) as fd:
        walk = Walk(fd, Place(), None, is_short=False)
        while walk.find() is not None:
            record = walk.take()
            found[seq_of(record.meta)] = record.payload
    newest = sorted(found)[-stop_report.KEPT_STOPS :]
    return {number: found[number] for number in newest}


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
            f"cursor {cursor[:80]!r} is not one that this endpoint returned",
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
