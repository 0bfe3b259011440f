"""Shrinks a stop report to an exact number of bytes: the largest part is cut first, and each cut is
listed.

The supervisor (history) and the worker (snapshots, replies with a report) both use it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from debug_relay.protocol.models.stop_report import Cut, Stop
from debug_relay.protocol.wire.envelope import encode_json
from debug_relay.protocol.wire.ring_format import Place, output_owner, pack_cursor

ENVELOPE_BYTES: Final = 160  # The envelope around a reply's data, without the request id.
_LISTS: Final = ("frames", "locals", "changed", "watches", "output", "hit_breakpoints")
_LEAST_CUT_BYTES: Final = 64  # A smaller part of a report is not worth cutting.
_MARK: Final = "…"


def calls_for_rest(session_id: str, max_bytes: int, printed_from: Place | None) -> dict[str, str]:
    """For each part of a report, the call that returns what was left out; `printed_from` is where
    its output begins.
    """
    base = f"GET /api/v1/sessions/{session_id}"
    cursor = pack_cursor(output_owner(session_id), printed_from) if printed_from else None
    return {
        "frames": f"{base}/stacktrace?levels=1000",
        "locals": f"{base}/frames/0/variables?count=1000",
        "changed": f"{base}/snapshot?max_bytes={max_bytes * 4}",
        "watches": f"{base}/watch",
        "source": f"{base}/source?frame_id=0",
        "exception": f"{base}",
        "return_value": f"{base}/snapshot?max_bytes={max_bytes * 4}",
        "output": f"{base}/output" + (f"?cursor={cursor}" if cursor else ""),
        "hit_breakpoints": f"{base}/breakpoints",
        "all": f"{base}/snapshot?max_bytes={max(max_bytes * 4, 65536)}",
    }


def fit(stop: Stop, most: int, calls_for_rest: Mapping[str, str]) -> Stop | None:
    """Shrinks the report to at most `most` bytes; None if not even its bare facts fit.

    `calls_for_rest` names, for each part, the call that returns the rest.
    """
    totals: dict[str, int] = {}
    while (over := len(encode_json(stop)) - most) > 0:
        sizes = {part: size for part, size in _sizes(stop).items() if size > _LEAST_CUT_BYTES}
        if not sizes:
            return _bare(stop, most, calls_for_rest)
        part = max(sizes, key=lambda name: sizes[name])
        totals.setdefault(part, _length(stop, part))
        _shrink(stop, part, sizes[part], over)
        _note(stop, part, totals[part], calls_for_rest)
    return stop


def _sizes(stop: Stop) -> dict[str, int]:
    sizes = {name: len(encode_json(getattr(stop, name))) for name in _LISTS}
    if stop.source is not None:
        sizes["source"] = len(encode_json(stop.source))
    for part, text in _texts(stop).items():
        sizes[part] = len(encode_json(text[0]))
    return sizes


def _texts(stop: Stop) -> dict[str, tuple[str, Callable[[str], None]]]:
    """The long texts of a report, each with a function that replaces it."""
    texts: dict[str, tuple[str, Callable[[str], None]]] = {}
    if (raised := stop.exception) is not None:
        for field in ("traceback", "message"):
            text = getattr(raised, field)
            if text:
                texts[f"exception.{field}"] = (text, _put_in_exception(stop, field))
    if (returned := stop.return_value) is not None:
        texts["return_value"] = (
            returned.value,
            lambda new: setattr(stop, "return_value", msgspec.structs.replace(returned, value=new)),
        )
    return texts


def _put_in_exception(stop: Stop, field: str) -> Callable[[str], None]:
    def put(new: str) -> None:
        assert stop.exception is not None
        stop.exception = msgspec.structs.replace(stop.exception, **{field: new})

    return put


def _length(stop: Stop, part: str) -> int:
    if part in _LISTS:
        named = getattr(stop, f"total_{part}", None)
        if part == "output":
            return printed_bytes(stop)
        return int(named) if named is not None else len(getattr(stop, part))
    if part == "source":
        return stop.source.total_lines if stop.source else 0
    return len(_texts(stop)[part][0])


def printed_bytes(stop: Stop) -> int:
    return sum(len(printed.text.encode("utf-8", "replace")) for printed in stop.output)


def _shrink(stop: Stop, part: str, size: int, over: int) -> None:
    """Cuts one part, by at most half at once: other parts may be large too."""
    keep = max(0.5, (size - over) / size - 0.05)
    if part == "output" and len(stop.output) == 1:
        text = stop.output[0].text
        count = int(len(text) * keep)
        stop.output = [msgspec.structs.replace(stop.output[0], text=text[len(text) - count :])]
        if count == 0:
            stop.output = []
    elif part == "output":
        stop.output = stop.output[1:]  # the latest output matters most
    elif part in _LISTS:
        rows = getattr(stop, part)
        setattr(stop, part, rows[: int(len(rows) * keep)])
    elif part == "source":
        _narrow(stop)
    else:
        text, put = _texts(stop)[part]
        kept = text[: min(int(len(text) * keep), len(text) - 2)].removesuffix(_MARK)
        put(kept + _MARK if len(text) > 8 else "")


def _narrow(stop: Stop) -> None:
    """Keeps half of the source lines, around the current one."""
    assert stop.source is not None
    lines = stop.source.lines
    if len(lines) <= 1:
        stop.source = None
        return
    at = next((index for index, line in enumerate(lines) if line.current), 0)
    wanted = len(lines) // 2
    first = min(max(0, at - wanted // 2), len(lines) - wanted)
    kept = lines[first : first + wanted]
    stop.source = msgspec.structs.replace(
        stop.source, lines=kept, start=kept[0].line, end=kept[-1].line
    )


def _note(stop: Stop, part: str, total: int, calls_for_rest: Mapping[str, str]) -> None:
    if part == "source":
        shown = len(stop.source.lines) if stop.source else 0
    elif part == "output":
        shown = printed_bytes(stop)
    elif part in _LISTS:
        shown = len(getattr(stop, part))
    else:
        shown = len(_texts(stop)[part][0])
    total = next((cut.total for cut in stop.cut if cut.part == part), total)
    stop.cut = [cut for cut in stop.cut if cut.part != part]
    stop.cut.append(
        Cut(part=part, shown=shown, total=total, get=calls_for_rest[part.partition(".")[0]])
    )


def _bare(stop: Stop, most: int, calls_for_rest: Mapping[str, str]) -> Stop | None:
    """A report with the place and the reason; with the reason alone if even the place does
    not fit.
    """
    bare = Stop(
        stop_id=stop.stop_id,
        stop_reason=stop.stop_reason,
        timestamp=stop.timestamp,
        thread=stop.thread,
        current_location=stop.current_location,
        total_frames=stop.total_frames,
        total_locals=stop.total_locals,
        cut=[Cut(part="all", shown=0, total=1, get=calls_for_rest["all"])],
    )
    for field in (None, "current_location", "cut"):
        if field is not None:
            setattr(bare, field, None if field == "current_location" else [])
        if len(encode_json(bare)) <= most:
            return bare
    return None
