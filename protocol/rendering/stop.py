"""Text rendering of a stop: place, source lines, changes, callers, output.

A language model pays for every character: nothing is repeated, and a step with its changes takes at
most 600 characters. Paths are still written in full, because the next call needs them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final, TypeVar

from msgspec import UNSET

from debug_relay.protocol.models import inspection, stop_report
from debug_relay.protocol.models.fields import Location
from debug_relay.protocol.models.run import RunFrame, RunLocal
from debug_relay.protocol.rendering.repeats import repeats_in
from debug_relay.protocol.rendering.text import Code, Line, plural, short

SAFE_VALUES_NOTE: Final = "(shown without running the program's code, which needs sessions:write)"
_VALUE: Final = 100  # Characters of one value in the text of a stop.
# Characters of one line of source or output, or of one message, in the text of a stop.
_TEXT: Final = 120
_STEP: Final = 600  # Characters of the whole text of a stop after a step.
_WAS: Final = 60  # Characters of the earlier value of a local that a step has changed.
_RAISED: Final = re.compile(r"\w+(:|$)")
_UNITS: Final = {"str": "character", "bytes": "byte", "bytearray": "byte"}
_DEFINED: Final = frozenset(
    {"module", "function", "type", "ABCMeta", "EnumMeta", "EnumType", "builtin_function_or_method"}
)
_CHAINED: Final = re.compile(
    r"\n\n(The above exception was the direct cause of the following exception"
    r"|During handling of the above exception, another exception occurred):\n\n"
)
_RAISED_AT: Final = re.compile(r'^  File "(.+)", line (\d+).*$', re.MULTILINE)


_Row = TypeVar("_Row", inspection.Variable, RunLocal)


def stop(report: stop_report.Stop, headline: bool = True) -> Iterator[Line]:
    """The whole report; without the headline if the reply already has one."""
    place = _place(report)
    yield f"stop {report.stop_id} ({report.stop_reason}) {place}" if headline else place
    stepped = report.stop_reason == "step" and not report.new_frame
    if report.hit_breakpoints:
        yield f"hit: {', '.join(report.hit_breakpoints)}"
    for change in report.value_changes:
        values = f"{short(change.before, _VALUE)} → {short(change.after, _VALUE)}"
        by = location_text(change.location) if change.location else "code that is not watched"
        yield f"{change.watch}: {values}, by {by}"
    if report.exception is not None:
        yield f"exception: {raised_text(report.exception.type, report.exception.message, 300)}"
        yield from _causes(report.exception.traceback or "")
    if report.return_value is not None:
        yield returned(report.return_value)
    if stepped:
        yield from _within(_STEP - len(place) - 40, report)
    else:
        yield from _excerpt(report, None, _TEXT)
        yield from _locals(report)
    yield from (f"watch {watch(one)}" for one in report.watches)
    if report.stop_reason != "step":
        yield from _callers(report)
    for printed in report.output:
        yield f"{printed.category}:"
        yield Code(tuple(short(line, _TEXT) for line in printed.text.splitlines()))
    yield from _cuts(report, stepped)
    if report.note:
        yield f"note: {short(report.note)}"
    if report.repr is not UNSET:
        yield SAFE_VALUES_NOTE


def _place(report: stop_report.Stop) -> str:
    thread = report.thread
    name = f" {short(thread.name, 60)}" if thread.name else ""
    # In most programs only the main thread matters, so it is not named.
    is_main = thread.id == 1 or thread.name == "MainThread"
    where = "" if is_main and not thread.is_child else f", thread {thread.id}{name}"
    if thread.is_child:
        where += f" of child process {thread.pid}"
    if not report.frame_id or not report.frames:
        return location_text(report.current_location) + where
    # The thread waits in a library, called from this frame.
    waits = next((fold for fold in report.folded if fold.first == 0), None)
    inside = f", waits in {waits.libraries[0]}" if waits is not None else ""
    first = report.frames[0]
    return f"{first.source.path}:{first.line} in {first.name} (frame {first.id}{inside}){where}"


def location_text(location: Location | None) -> str:
    return (
        f"{location.path}:{location.line} in {location.function}" if location else "unknown place"
    )


def brief_stop(report: stop_report.Stop) -> Iterator[Line]:
    """One stop of a list: the current line, and what was new there."""
    yield f"stop {report.stop_id} ({report.stop_reason}) {_place(report)}"
    if report.source is not None:
        yield from (
            f"→ {short(row.text.strip(), _TEXT)}" for row in report.source.lines if row.current
        )
    if report.exception is not None:
        yield f"exception: {raised_text(report.exception.type, report.exception.message, _TEXT)}"
    if report.return_value is not None:
        yield returned(report.return_value)
    yield from _locals(report) if report.new_frame else _changed(report)
    yield from (f"watch {watch(one)}" for one in report.watches)
    for printed in report.output:
        yield f"{printed.category}: {short(printed.text.rstrip(), _TEXT)}"


def raised_text(type: str, message: str, longest: int) -> str:
    return raised_line(type, short(message, longest))


def raised_line(type: str, message: str) -> str:
    """The last line of a traceback: what was raised."""
    return f"{type}: {message}" if message else type


def _causes(traceback: str) -> Iterator[Line]:
    """The exceptions that led to this one, the nearest first: the last line of each earlier
    traceback.
    """
    parts = _CHAINED.split(traceback)
    for index in range(len(parts) - 3, -1, -2):
        places = list(_RAISED_AT.finditer(parts[index]))
        rest = parts[index][places[-1].end() :] if places else ""
        last = next((line for line in rest.splitlines() if line and not line[0].isspace()), None)
        if last is not None:
            how = "caused by" if parts[index + 1].startswith("The above") else "while handling"
            yield f"  {how} {short(last, 200)} at {places[-1][1]}:{places[-1][2]}"


# -- the lines around


def _excerpt(report: stop_report.Stop, around: int | None, width: int) -> Iterator[Line]:
    if report.source is None:
        return
    lines = report.source.lines
    if around is not None:
        here = next((index for index, row in enumerate(lines) if row.current), 0)
        lines = lines[max(0, here - around) : here + around + 1]
    yield from excerpt_lines(lines, width)


def excerpt_lines(lines: list[stop_report.SourceLine], width: int = _TEXT) -> Iterator[Line]:
    digits = len(str(lines[-1].line)) if lines else 1
    yield Code(
        tuple(
            f"{'→' if row.current else ' '} {row.line:>{digits}}  {short(row.text, width)}"
            for row in lines
        ),
        "python",
    )


def _within(room: int, report: stop_report.Stop) -> Iterator[Line]:
    """The source lines around a step and its changes; fewer lines if they are long."""
    changed = list(_changed(report))
    for around, width in ((None, _TEXT), (1, _TEXT), (1, 60), (0, 60)):
        shown = [*_excerpt(report, around, width), *changed]
        if sum(map(_length, shown)) <= room:
            yield from shown
            return
    for index, line in enumerate(shown):
        room -= _length(line)
        if room < 0 and index > 0:
            yield f"… {len(shown) - index} more lines: see snapshot"
            return
        yield line


def _length(line: Line) -> int:
    parts = (line,) if isinstance(line, str) else line.lines
    return sum(len(part) + 1 for part in parts)


# -- values


def _locals(report: stop_report.Stop) -> Iterator[Line]:
    changes = {change.name: change for change in report.changed}
    place = report.current_location
    function = place.function if place is not None else ""
    shown, others = split_module_names(report.locals, function, changes)
    for row in shown:
        change = changes.pop(row.name, None)
        yield variable(row) + (_was(change) if change is not None else "")
    yield from (_change(change) for change in changes.values())
    if others:
        yield others
    if not report.total_locals and not changes:
        yield "(no locals)"


def split_module_names(
    rows: list[_Row], function: str, changed: Collection[str] = ()
) -> tuple[list[_Row], str]:
    """Split a module's names: data and changed names are shown with their values; functions,
    classes and modules by name only.
    """
    if function != "<module>":
        return rows, ""
    shown = [row for row in rows if row.type not in _DEFINED or row.name in changed]
    others = [row.name for row in rows if row.type in _DEFINED and row.name not in changed]
    return shown, f"(and {short(', '.join(others), 300)})" if others else ""


def _changed(report: stop_report.Stop) -> Iterator[Line]:
    known = {row.name: row for row in report.locals}
    for change in report.changed:
        row = known.get(change.name)
        yield variable(row) + _was(change) if row is not None else _change(change)
    others = report.total_locals - sum(change.after is not None for change in report.changed)
    if others > 0:
        yield f"({others} local{'s' * (others > 1)} unchanged)"


def _change(change: stop_report.Change) -> str:
    after = "gone" if change.after is None else short(change.after, _VALUE)
    return f"{change.name} = {after}{_was(change)}"


def _was(change: stop_report.Change) -> str:
    return "  ← new" if change.before is None else f"  ← was {short(change.before, _WAS)}"


def typed(name: str, type: str | None, value: str | None, cut: bool = False) -> str:
    head = f"{name}: {type}" if name and type else name or type or ""
    if cut:  # the probe cut it before, so its length does not say how much is missing
        shown = short((value or "")[:_VALUE]).removesuffix("…")
        # A short text says inside what it leaves out.
        shown += "…" * (len(value or "") > _VALUE or "…" not in shown)
    else:
        shown = short(value or "", _VALUE)
    return f"{head} = {shown}" if head and shown else head or shown


def returned(value: stop_report.ReturnValue) -> str:
    return f"returned: {typed('', value.type, value.value)}"


def variable(row: inspection.Variable) -> str:
    text = typed(row.name, row.type, row.value, row.truncated)
    if row.expandable or row.truncated:
        text += length_text(row.length, row.type)
    if row.expandable and row.variables_reference:
        text += f"  (ref {row.variables_reference})"
    if row.circular is not UNSET and row.circular:
        text += "  (circular)"
    return text


def length_text(length: int | None, type: str | None) -> str:
    return "" if length is None else f"  [{plural(length, _UNITS.get(type or '', 'item'))}]"


def watch(one: inspection.Watch) -> str:
    if one.error is not None:
        how = "raised " if _RAISED.match(one.error) else ""
        return f"{one.id} {short(one.expression, 80)}: {how}{short(one.error, _VALUE)}"
    if one.value is None:
        return f"{one.id} {short(one.expression, 80)}: evaluated at the next stop"
    return f"{one.id} {typed(short(one.expression, 80), one.type, one.value)}"


# -- who called, and what is left out


def frame(row: inspection.Frame) -> str:
    return f"#{row.id} {place(row)}"


def place(row: inspection.Frame | RunFrame) -> str:
    path = row.source.path if isinstance(row, inspection.Frame) else row.path
    return f"{row.name} at {path}:{row.line}"


def frames(rows: list[inspection.Frame]) -> Iterator[str]:
    """One frame per line; of a recursion only the first, and how far it repeats."""
    yield from folded([(row.id, place(row), []) for row in rows])


def folded(rows: list[tuple[int, str, list[str]]]) -> Iterator[str]:
    """`#number place` and the lines that belong to it; repeated entries are folded."""
    shown = 0
    for repeat in repeats_in([(where, *lines) for _, where, lines in rows]):
        first = repeat.first + repeat.period
        yield from _numbered(rows[shown:first])
        again = "the same" if repeat.period == 1 else f"the same {repeat.period} frames again"
        yield f"#{rows[first][0]} to #{rows[repeat.end - 1][0]} {again}"
        shown = repeat.end
    yield from _numbered(rows[shown:])


def _numbered(rows: list[tuple[int, str, list[str]]]) -> Iterator[str]:
    for number, where, lines in rows:
        yield f"#{number} {where}"
        yield from lines


def with_folds(
    rows: list[tuple[int, str, list[str]]], folds: list[inspection.FoldedFrames]
) -> Iterator[str]:
    """Frames in their order, with a line where some are folded."""
    for fold in folds:
        before = [row for row in rows if row[0] < fold.first]
        yield from folded(before)
        yield _fold(fold)
        rows = rows[len(before) :]
    yield from folded(rows)


def _fold(fold: inspection.FoldedFrames) -> str:
    count = plural(fold.count, "frame")
    if not fold.repeats:
        return f"… {count} of {', '.join(fold.libraries)}"
    times = plural(fold.count // fold.repeats, "more time")
    those = "frame" if fold.repeats == 1 else f"{fold.repeats} frames"
    return f"… {count}: the {those} above, {times}"


def _callers(report: stop_report.Stop) -> Iterator[Line]:
    top = report.frames[0].id if report.frames else 0
    rows = [(row.id, place(row), list[str]()) for row in report.frames[1:]]
    behind = [fold for fold in report.folded if fold.first > top]
    if not rows and not behind:
        return
    yield "called from:"
    yield from (f"  {line}" for line in with_folds(rows, behind))


def _cuts(report: stop_report.Stop, stepped: bool) -> Iterator[Line]:
    for cut in report.cut:
        # A step shows neither frames nor locals, only the changes.
        if not (cut.part in ("frames", "locals") and stepped):
            unit = " bytes" if cut.part == "output" else ""
            yield f"cut: {cut.part}, {cut.shown} of {cut.total}{unit} shown; all: {cut.get}"
