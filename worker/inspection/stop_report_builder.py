"""Builds a stop report from what the stopped thread reported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from debug_relay.protocol.models.fields import Bounds, frame_count
from debug_relay.protocol.models.inspection import FoldedFrames, Variable, Watch
from debug_relay.protocol.models.sessions import ExceptionInfo
from debug_relay.protocol.models.stop_report import (
    Change,
    Excerpt,
    Printed,
    Stop,
    StopFrame,
    StoppedThread,
    StopSource,
)
from debug_relay.protocol.rendering.library_frames import brief_traceback
from debug_relay.protocol.wire import probe_answers as answers
from debug_relay.protocol.wire.probe_answers import ThreadReport
from debug_relay.worker.debugger.hub import Hub
from debug_relay.worker.inspection.variables import as_variable
from debug_relay.worker.source.excerpts import excerpt

if TYPE_CHECKING:
    from debug_relay.worker.inspection.stop_reports import Kept

_NOTHING: Final = ThreadReport(thread=0)


class ReportBuilder:
    """Puts stop reports together."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def composed(
        self, kept: Kept, reported: ThreadReport | None, bounds: Bounds, present: bool
    ) -> Stop:
        """Put a report together; `present`: its values can still be expanded."""
        stop, thread = kept.stop, reported or _NOTHING
        numbers = thread.numbers or list(range(len(thread.frames)))
        frames = [
            self._frame(number, *row)
            for number, row in zip(
                numbers, thread.frames[: frame_count(bounds.frames)], strict=False
            )
        ]
        return Stop(
            stop_id=kept.stop_id,
            stop_reason=stop.reason,
            timestamp=kept.at,
            thread=StoppedThread(
                id=stop.thread_id, name=thread.name, pid=stop.pid, is_child=stop.is_child
            ),
            current_location=stop.location,
            source=_source(kept, thread, bounds.source_lines),
            frame_id=numbers[0] if numbers else 0,
            frames=frames,
            folded=[
                FoldedFrames(first=first, count=count, libraries=names)
                for first, count, names in thread.folded
                if frames and first <= frames[-1].id + 1
            ],
            total_frames=thread.total_frames,
            locals=[self._variable(kept, row, present) for row in thread.locals[: bounds.locals]],
            total_locals=thread.total_locals,
            new_frame=thread.new_frame,
            changed=[
                Change(name=name, before=before, after=after)
                for name, before, after in thread.changed
            ],
            watches=[
                self._watch(kept, watch, present)
                for watch in thread.watches
                if watch.id in kept.watched
            ],
            exception=_without_frames(stop.exception) if frames else stop.exception,
            return_value=kept.returned,
            output=_printed(kept, bounds.output_bytes),
            hit_breakpoints=stop.hit_breakpoints,
            value_changes=stop.value_changes,
            note=kept.note if reported is None else None,
        )

    def _frame(self, index: int, name: str, path: str, line: int, module: str | None) -> StopFrame:
        return StopFrame(id=index, name=name, source=StopSource(path=path), line=line)

    def _variable(self, kept: Kept, row: answers.Variable, present: bool) -> Variable:
        return as_variable(self._hub, kept.server, kept.stop.thread_id, row, present)

    def _watch(self, kept: Kept, watch: answers.Watched, present: bool) -> Watch:
        expression = kept.watched[watch.id]
        if watch.value is None:
            return Watch(id=watch.id, expression=expression, error=watch.error)
        variable = self._variable(kept, watch.value, present)
        return Watch(
            id=watch.id,
            expression=expression,
            value=variable.value,
            type=variable.type,
            variables_reference=variable.variables_reference,
        )


def _without_frames(raised: ExceptionInfo | None) -> ExceptionInfo | None:
    """The exception without the entries of its traceback that the report's frames tell."""
    if raised is None:
        return None
    return replace(raised, traceback=brief_traceback(raised.traceback))


def _source(kept: Kept, thread: ThreadReport, around: int) -> Excerpt | None:
    place = kept.stop.location
    if thread.numbers and thread.numbers[0] and thread.frames:
        _, path, line, _ = thread.frames[0]
        return excerpt(path, kept.own_lines, line, around) if kept.own_lines else None
    if place is None:
        return None
    if kept.lines:
        return excerpt(place.path, kept.lines, place.line, around)
    if thread.text is not None:  # the source of code without a file, around the place
        first, total, lines = thread.text
        return excerpt(place.path, lines, place.line, around, first, total)
    return None


def _printed(kept: Kept, most: int) -> list[Printed]:
    """The end of what was printed since the stop before, in whole characters."""
    pieces: list[tuple[str, bytes]] = []
    for category, data in reversed(kept.printed):
        if most <= 0:
            break
        data = data[-most:]
        most -= len(data)
        if pieces and pieces[-1][0] == category:
            data += pieces.pop()[1]
        pieces.append((category, data))
    return [
        Printed(category=category, text=_from_a_character(data).decode("utf-8", "backslashreplace"))
        for category, data in reversed(pieces)
    ]


def _from_a_character(data: bytes) -> bytes:
    """The data without the rest of a UTF-8 character whose beginning was cut off."""
    at = 0
    while at < min(3, len(data)) and data[at] & 0xC0 == 0x80:
        at += 1
    return data[at:]
