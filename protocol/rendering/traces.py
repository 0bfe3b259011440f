"""Text rendering of what a program did: rows of a trace, an exception, a whole run."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.models.execution import TraceRow, TraceRows
from debug_relay.protocol.models.inspection import ExceptionReport
from debug_relay.protocol.models.run import RunException, RunFrame, RunRaised, RunReport, RunTrace
from debug_relay.protocol.models.threads import TaskList, ThreadList
from debug_relay.protocol.rendering import live, stop
from debug_relay.protocol.rendering.library_frames import folded_traceback, without_traceback
from debug_relay.protocol.rendering.text import Code, Line, short

_ENDS = {
    "max_rows": "max_rows were recorded",
    "until": "until was true",
    "timeout": "its timeout passed",
    "ended": "the program ended",
    "returned": "the function returned",
    "detached": "the relay detached from the program",
    "exception": "stopped at an exception",
    "breakpoint": "stopped at a breakpoint",
    "pause": "the program was paused",
    "stopped": "it was ended by a call",
}
_VALUE = 100  # Characters of one value in the text of a trace's row.
_TEXT = 200  # Characters of one message or local of an exception in the text of a run.
_TRACEBACK = 60  # Last lines of a traceback in the text of a run.
_OUTPUT = 100  # Last lines of output in the text of a run.


def ending(exit_code: int | None, signal: str | None, reason: str | None) -> str:
    parts = [f"exit code {exit_code}"] if exit_code is not None else []
    parts += [signal] if signal else []
    parts += [reason.replace("_", " ")] if reason else []
    return f" ({', '.join(parts)})" if parts else ""


def trace(recorded: TraceRows | RunTrace) -> Iterator[Line]:
    path = None
    rows = [row for row in recorded.rows if isinstance(row, TraceRow)]
    threads = {row.thread_id for row in rows}
    for index, row in enumerate(rows):
        if index == recorded.head and recorded.left_out and index:
            yield _left_out(recorded, "rows in between")
        if row.path != path:
            path = row.path
            yield f"{path}:"
        yield f"  {_row(row, with_thread=len(threads) > 1)}"
    how = "still running" if recorded.ended is None else _ENDS.get(recorded.ended, recorded.ended)
    yield f"trace of {recorded.total} row{'s' * (recorded.total != 1)}: {how}"
    if recorded.dropped:
        yield f"({recorded.dropped} earlier rows were overwritten by newer ones)"
    if recorded.left_out and not recorded.head:
        yield _left_out(recorded, "later rows")
    yield from (f"warning: {short(warning)}" for warning in recorded.warnings)


def _left_out(recorded: TraceRows | RunTrace, which: str) -> str:
    onwards = ""
    if isinstance(recorded, TraceRows) and recorded.next_cursor:
        read_on = call_of("get-trace", recorded.session_id)
        onwards = f": {read_on}?cursor={recorded.next_cursor}"
    return f"({recorded.left_out} {which} are left out{onwards})"


def in_text(row: TraceRow) -> int:
    """How many characters a row takes in a text; paths of files stand once."""
    return len(_row(row, with_thread=False)) + 3


def _row(row: TraceRow, with_thread: bool) -> str:
    facts = [
        f"{name} = {short(value, _VALUE)}"
        + (f"  ← was {short(row.was[name], _VALUE)}" if name in row.was else "")
        for name, value in row.values.items()
    ]
    facts += [f"{name} ← {short(value, _VALUE)}" for name, value in row.changed.items()]
    if row.returned is not None:
        facts.append(f"returned {short(row.returned, _VALUE)}")
    if row.after is not None:
        # The path of another file is shown, too.
        path = f"{row.after.path}:" if row.after.path != row.path else "line "
        facts.append(f"(after {path}{row.after.line} {row.after.function})")
    thread = f" thread {row.thread_id}" if with_thread else ""
    label = f" [{short(row.label, 60)}]" if row.label else ""
    return "  ".join([f"#{row.seq} line {row.line} {row.function}{thread}{label}", *facts])


def exception(report: ExceptionReport) -> Iterator[Line]:
    yield stop.raised_text(report.full_type_name, report.message, 1000)
    yield f"thread {report.thread_id}, {report.break_mode}"
    yield _last_lines(folded_traceback(report.traceback.splitlines()), _TRACEBACK)
    if report.repr is not UNSET:
        yield stop.SAFE_VALUES_NOTE
    for member in report.members:
        yield f"in the group: {stop.raised_text(member.full_type_name, member.message, _TEXT)}"
    if report.members_omitted:
        yield f"in the group: {report.members_omitted} more"


def run(report: RunReport) -> Iterator[Line]:
    if report.end_reason == "on_stop":
        yield "the program was ended at its first stop"
    elif report.session_id is not None:
        yield f"the program is paused where it crashed; kept as session {report.session_id}"
    else:
        yield f"the program has ended{ending(report.exit_code, report.signal, report.end_reason)}"
    if report.passed_limit is not None:
        yield f"passed {report.passed_limit.words()}"
    output = report.output.splitlines()
    if report.exception is not None:  # its frames follow, with their locals
        raised = stop.raised_line(report.exception.type, report.exception.message)
        output = without_traceback(output, raised, cut=report.output_left_out > 0)
    if output:
        cut = f", without its first {report.output_left_out} bytes" * bool(report.output_left_out)
        yield f"output{cut}:"
        yield _last_lines(output, _OUTPUT)
    if report.note:
        yield f"note: {report.note}"
    yield from (f"warning: {short(words, 600)}" for words in report.never_hit)
    if report.trace is not None:
        yield from trace(report.trace)
    if report.exception is not None:
        yield from _crash(report.exception)
    yield from _raised(report.raised)
    if report.stop is not None:
        yield f"the first of {report.stops} stops:" if report.stops > 1 else "where it stopped:"
        yield from stop.stop(report.stop)
    if report.threads:
        yield "where its threads were at the timeout:"
        listed = ThreadList(
            threads=report.threads, stopped_thread_id=None, deadlocks=report.deadlocks
        )
        yield from live.threads(listed)
    if report.tasks:
        yield "its pending asyncio tasks:"
        yield from live.tasks(TaskList(tasks=report.tasks, total=len(report.tasks)))


def _raised(rows: list[RunRaised]) -> Iterator[Line]:
    """One line for each exception at which the program stopped, if there are several."""
    count = sum(row.times for row in rows)
    if count < 2:
        return
    yield f"it stopped at {count} exceptions:"
    for row in rows:
        times = f", {row.times} times" * (row.times > 1)
        place = f" at {row.path}:{row.line} in {row.function}" if row.path is not None else ""
        yield f"  {stop.raised_text(row.type, row.message, _TEXT)}{place}{times}"


def _crash(crash: RunException) -> Iterator[Line]:
    where = f" in child process {crash.child_pid}" if crash.child_pid is not None else ""
    yield f"exception{where}: {stop.raised_text(crash.type, crash.message, 1000)}"
    rows = [(frame.id, stop.place(frame), list(_locals(frame))) for frame in crash.frames]
    yield from stop.with_folds(rows, crash.folded)
    left_out = crash.total_frames - len(crash.frames) - sum(one.count for one in crash.folded)
    if left_out > 0:
        yield f"… {left_out} more frames"


def _locals(frame: RunFrame) -> Iterator[str]:
    shown, others = stop.split_module_names(frame.locals, frame.name)
    for local in shown:
        yield f"  {short(local.name, _VALUE)}: {local.type} = {short(local.value, _TEXT)}"
    if others:
        yield f"  {others}"
    if frame.locals_left_out:
        yield f"  … {frame.locals_left_out} more"


def _last_lines(all_lines: list[str], most: int) -> Code:
    lines = [short(line, _TEXT) for line in all_lines]
    gone = len(lines) - most
    return Code(tuple([f"… {gone} lines before", *lines[-most:]] if gone > 0 else lines))
