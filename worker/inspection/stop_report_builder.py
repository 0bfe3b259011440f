"""Builds a stop report: from what the probe sent, or from as many DAP calls as it takes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from debug_relay.protocol.errors import RelayError
from debug_relay.protocol.models.fields import Bounds
from debug_relay.protocol.models.inspection import Frame, SourceRef, Variable, Watch
from debug_relay.protocol.models.stop_report import Change, Excerpt, Printed, Stop, StoppedThread
from debug_relay.protocol.wire import probe_answers as answers
from debug_relay.protocol.wire.probe_answers import FrameRow, ThreadReport
from debug_relay.worker.debugger.hub import Hub
from debug_relay.worker.debugger.probe_client import ProbeClient
from debug_relay.worker.inspection.variables import as_variable, of_dap
from debug_relay.worker.source.excerpts import excerpt
from debug_relay.worker.state.settings import Settings

if TYPE_CHECKING:
    from debug_relay.worker.inspection.stop_reports import Kept

_VALUE_CHARACTERS: Final = 200  # One value in a stop report that is made by plain DAP.
_NOTHING: Final = ThreadReport(thread=0)


class DapReport(ThreadReport, kw_only=True):
    """One that was put together call by call, with what the next one is compared with."""

    function: tuple[int, str, str] | None  # DAP's number of the frame, name, path
    values: dict[str, str]


class ReportBuilder:
    """Puts stop reports together."""

    def __init__(
        self,
        settings: Settings,
        hub: Hub,
        probes: ProbeClient,
    ) -> None:
        self._settings = settings
        self._hub = hub
        self._probes = probes

    def composed(
        self, kept: Kept, reported: ThreadReport | None, bounds: Bounds, present: bool
    ) -> Stop:
        """`present`: what can be expanded still can."""
        stop, told = kept.stop, reported or _NOTHING
        return Stop(
            stop_id=kept.stop_id,
            stop_reason=stop.reason,
            timestamp=kept.at,
            thread=StoppedThread(
                id=stop.thread_id, name=told.name, pid=stop.pid, is_child=stop.is_child
            ),
            current_location=stop.location,
            source=_source(kept, told, bounds.source_lines),
            frames=[
                _frame(index, *frame) for index, frame in enumerate(told.frames[: bounds.frames])
            ],
            total_frames=told.total_frames,
            locals=[self._variable(kept, row, present) for row in told.locals[: bounds.locals]],
            total_locals=told.total_locals,
            new_frame=told.new_frame,
            changed=[
                Change(name=name, before=before, after=after)
                for name, before, after in told.changed
            ],
            watches=[
                self._watch(kept, watch, present)
                for watch in told.watches
                if watch.id in kept.watched
            ],
            exception=stop.exception,
            return_value=kept.returned,
            output=_printed(kept, bounds.output_bytes),
            hit_breakpoints=stop.hit_breakpoints,
            note=kept.note if reported is None else None,
        )

    async def by_dap(self, kept: Kept, before: Kept | None, bounds: Bounds) -> DapReport:
        """The same as the probe tells, call by call."""
        hub, thread_id = self._hub, kept.stop.thread_id
        window = await hub.stack(thread_id, 0, max(bounds.frames, 1))
        frames: list[FrameRow] = []
        for frame in window.frames:
            path = frame.source.path if frame.source and frame.source.path else "<unknown>"
            frames.append((frame.name, path, frame.line, hub.module_of(path)))
        rows: list[answers.Variable] = []
        for scope, reference in await hub.scopes(thread_id, 0):
            if scope.name.lower() == "locals":
                rows = [
                    of_dap(variable, _VALUE_CHARACTERS)
                    for variable in await hub.variables(reference)
                ]
        told = DapReport(
            thread=hub.thread(thread_id).dap_id,
            frames=frames,
            total_frames=window.total,
            locals=rows[: bounds.locals],
            total_locals=len(rows),
            function=(window.frames[0].id, *frames[0][:2]) if frames else None,
            values={row.name: row.value for row in rows},
        )
        known = before.told if before else None
        if isinstance(known, DapReport) and known.function == told.function:
            told.changed = _changes(known.values, told.values)
        else:
            told.new_frame = True
        told.watches = [
            await self._evaluated(thread_id, id, expression)
            for id, expression in kept.watched.items()
        ]
        return told

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

    async def _evaluated(self, thread_id: int, id: str, expression: str) -> answers.Watched:
        frame = await self._hub.frame(thread_id, 0)
        try:
            answer = await self._probes.evaluate(
                thread_id, frame, expression, "watch", self._settings.evaluate_timeout
            )
        except RelayError as error:
            return answers.Watched(id=id, error=error.message)
        value, raised, refused = answer.value, answer.raised, answer.refused
        if raised is not None:
            short = raised.type.rpartition(".")[2]
            return answers.Watched(id=id, error=f"{short}: {raised.message}")
        if value is None:
            return answers.Watched(id=id, error=refused.message if refused else "it has no value")
        value.value = value.value[:_VALUE_CHARACTERS]
        return answers.Watched(id=id, value=value)


def _frame(index: int, name: str, path: str, line: int, module: str | None) -> Frame:
    return Frame(
        id=index,
        name=name,
        source=SourceRef(path=path, name=os.path.basename(path)),
        line=line,
        column=1,
        module_name=module,
    )


def _source(kept: Kept, told: ThreadReport, around: int) -> Excerpt | None:
    place = kept.stop.location
    if place is None:
        return None
    if kept.lines:
        return excerpt(place.path, kept.lines, place.line, around)
    if told.text is not None:  # the source of code without a file, around the place
        first, total, lines = told.text
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
    """Without the end of a UTF-8 character whose beginning was cut off."""
    at = 0
    while at < min(3, len(data)) and data[at] & 0xC0 == 0x80:
        at += 1
    return data[at:]


def _changes(old: dict[str, str], new: dict[str, str]) -> list[tuple[str, str | None, str | None]]:
    changed: list[tuple[str, str | None, str | None]] = [
        (name, old.get(name), new[name]) for name in new if old.get(name) != new[name]
    ]
    return changed + [(name, old[name], None) for name in old if name not in new]
