"""Text renderings of the results that callers read most: stops, stacks, variables, breakpoints,
output.

One function per result type; `text.generic` renders all others. The HTTP front calls this for
`?format=text` and `?format=markdown`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.models import (
    breakpoints,
    execution,
    inspection,
    output_events,
    run,
    sessions,
    stop_report,
)
from debug_relay.protocol.models.fields import Location
from debug_relay.protocol.models.limits import format_amount, format_bytes
from debug_relay.protocol.rendering import stop, traces
from debug_relay.protocol.rendering.text import Code, Line, generic, short

_NOISE: Final = frozenset({"description", "preserve_focus_hint", "all_threads_stopped"})
_VALUE: Final = 100  # Characters of one value in the text of a result.


def render(result: Any) -> Iterator[Line]:
    """The lines of any result."""
    for kind in type(result).__mro__:
        if kind in _RENDERERS:
            return _RENDERERS[kind](result)
    return generic(result)


def render_json(kind: type, data: bytes) -> Iterator[Line]:
    """The lines of a result that is already JSON."""
    try:
        return render(msgspec.json.decode(data, type=kind))
    except msgspec.ValidationError:
        return generic(msgspec.json.decode(data))


# -- where the program is


def _headline(
    status: str, reason: str | None, stop_id: int, location: Location | None, end: str
) -> str:
    if status != "paused":
        return f"{status}{end}"
    place = f" {stop.location_text(location)}" if location is not None else ""
    return f"paused ({reason}, stop {stop_id}){place}"


def _execution(result: execution.Execution) -> Iterator[Line]:
    end = traces.ending(result.exit_code, result.signal, result.end_reason)
    place = None if result.stop is not None else result.current_location
    yield _headline(result.status, result.stop_reason, result.stop_id, place, end)
    if result.child_pid is not None and result.stop is None:
        yield f"in child process {result.child_pid}, thread {result.thread_id}"
    if not result.completed and result.status == "running":
        if result.waiting_for_input:
            how = call_of("input", result.session_id)
            yield f"waits for input: {short(result.prompt or '', 200)!r}: send it with {how}"
        query = f"timeout=30&types=stopped,terminated,input&cursor={result.events_cursor}"
        yield f"not stopped yet: wait with {call_of('events', result.session_id)}?{query}"
    elif not result.completed and result.status == "paused":
        yield "the resumed thread still runs; this is where another thread is paused"
    if result.pause_pending:
        yield "pause pending: a thread is in C code and stops as soon as it returns"
    if result.live_stack is not None:
        yield from _stack(result.live_stack)
    if result.reached is False:
        yield "the line was not reached: the program stopped or ended before"
    if result.native_frame:
        yield f"the step went into {result.native_callee}, which is native"
    if result.stop is not None:
        yield from stop.stop(result.stop, headline=False)
    elif result.return_value is not None:
        yield stop.returned(result.return_value)


def _trace(result: execution.TraceRows) -> Iterator[Line]:
    yield from traces.trace(result)
    yield from _execution(result)


def _history(page: stop_report.HistoryPage) -> Iterator[Line]:
    for report in page.items:
        yield from stop.brief_stop(report)
    yield from _more(page)


# -- stacks and values


def _stack(stack: inspection.Stack) -> Iterator[Line]:
    live = ", as it runs" if stack.live else ""
    where = f" of child process {stack.child_pid}" if stack.child_pid is not None else ""
    yield f"thread {stack.thread_id}{where}, {stack.total_frames} frames{live}"
    yield from stop.frames(stack.frames)
    if stack.has_more:
        following = stack.frames[-1].id + 1 if stack.frames else 0
        yield f"… more: ?start_frame={following}"


def _variables(page: inspection.VariableList) -> Iterator[Line]:
    yield from (stop.variable(variable) for variable in page.variables)
    if page.has_more:
        yield f"… {page.total} in all: ?start={page.start + len(page.variables)}"
    elif not page.variables:
        yield "no variables" if not page.total else f"no variables from {page.start} on"
    if page.repr is not msgspec.UNSET:
        yield stop.SAFE_VALUES_NOTE
    if page.evaluating is True:
        yield "the thread hangs in its own code; none of the program's code was run for this reply"


def _scopes(result: inspection.ScopeList) -> Iterator[Line]:
    for scope in result.scopes:
        count = "" if scope.named_variables is None else f"  [{scope.named_variables} variables]"
        yield f"{scope.name}{count}  (ref {scope.variables_reference})"


def _evaluated(result: inspection.Evaluated) -> Iterator[Line]:
    if result.error is not None:
        yield f"raised {short(result.error, 500)}"
        if result.error_details is not None:
            lines = result.error_details.traceback.splitlines()
            yield Code(tuple(short(line, _VALUE) for line in lines[-20:]))
        return
    text = "done" if result.result is None else short(result.result, 4000)
    kind = f"{result.type} = " if result.type else ""
    reference = f"  (ref {result.variables_reference})" if result.variables_reference else ""
    yield f"{kind}{text}{reference}{'  (cut)' if result.truncated else ''}"


def _watches(result: inspection.WatchList) -> Iterator[Line]:
    yield from (stop.watch(watch) for watch in result.watches)
    if not result.watches:
        yield "no watches"


def _threads(result: inspection.ThreadList) -> Iterator[Line]:
    for thread in result.threads:
        mark = "→" if thread.is_current else " "
        where = f" (child process {thread.pid})" if thread.is_child else ""
        place = thread.current_location
        at = f" {stop.location_text(place)}" if place is not None else ""
        pending = ", stops when it returns from C" * thread.pause_pending
        yield f"{mark} {thread.id} {short(thread.name, 80)}: {thread.status}{where}{at}{pending}"


def _source(result: inspection.SourceText) -> Iterator[Line]:
    guess = ", decompiled: no source text; lines and names are a guess"
    yield f"{result.path}, lines {result.start} to {result.end} of {result.total_lines}" + (
        guess * result.decompiled
    )
    width = len(str(result.end))
    numbered = enumerate(result.lines, result.start)
    yield Code(tuple(f"{n:>{width}}  {short(text, 500)}" for n, text in numbered), "python")


def _modules(page: inspection.ModuleList) -> Iterator[Line]:
    for module in page.items:
        mark = "" if module.is_user_code else "  (library)"
        yield f"{short(module.name, 200)} {module.path or 'built in'}{mark}"
    yield from _more(page)


def _tasks(result: inspection.TaskList) -> Iterator[Line]:
    for task in result.tasks:
        waits = f", waits for {short(task.waiting_for, 200)}" if task.waiting_for else ""
        ended = f", raised {short(task.exception, 200)}" if task.exception else ""
        mark = "→" if task.current else " "
        head = f"{mark} {short(task.name, 80)} {short(task.coroutine, 200)}"
        yield f"{head}: {task.state}{waits}{ended}"
        yield from (f"    {row.name} at {row.path}:{row.line}" for row in task.frames)
    if result.total != len(result.tasks):
        yield f"… {result.total} in all"
    if not result.total:
        yield "no asyncio tasks"


def _completions(result: inspection.CompletionList) -> Iterator[Line]:
    yield from (f"{item.label}{f'  ({item.type})' * bool(item.type)}" for item in result.items)
    if not result.items:
        yield "no completions"


# -- breakpoints


def _breakpoint(point: breakpoints.Breakpoint) -> str:
    place = f"{point.source['path']}:{point.line}" if point.source else ""
    where = f"{point.function} {place}".strip() if point.function else place
    marks = [f"if {point.condition}"] if point.condition else []
    marks += [f"hits {point.hit_condition}"] if point.hit_condition else []
    marks += [f"log {point.log_message!r}"] if point.log_message else []
    marks += [] if point.enabled else ["disabled"]
    marks += [] if point.verified else ["not verified"]
    marks += [f"hit {point.hit_count} times"] if point.hit_count else []
    marks += [short(point.message)] if point.message else []
    marks += [f"→ {short(point.suggestion)}"] if point.suggestion else []
    return "  ".join([f"{point.id} {where}", *(short(mark, 300) for mark in marks)])


def _breakpoints(result: breakpoints.BreakpointList | breakpoints.BreakpointsSet) -> Iterator[Line]:
    yield from (_breakpoint(point) for point in result.breakpoints)
    if not result.breakpoints:
        yield "no breakpoints"


# -- sessions, output, events


def _session(state: sessions.SessionState | sessions.SessionStatus) -> Iterator[Line]:
    name = f" {short(state.name, 80)}" if isinstance(state, sessions.SessionState) else ""
    end = traces.ending(state.exit_code, state.signal, state.end_reason)
    line = _headline(state.status, state.stop_reason, state.stop_id, state.current_location, end)
    yield f"{state.session_id}{name}: {line}"
    if state.waiting_for_input:
        yield f"waits for input: {short(state.prompt or '', 200)!r}"
    if state.warning:
        yield f"warning: {state.warning}"
    if state.passed_limit is not None:
        yield f"passed {state.passed_limit.words()}"
    if isinstance(state, sessions.SessionState):
        if state.program is not None:
            target = state.program.script or state.program.module or "program"
            yield f"program: {short(' '.join([target, *state.program.args]), 600)}"
        if state.exception is not None:
            yield f"exception: {state.exception.type}: {short(state.exception.message, 300)}"
        if state.breakpoint_count:
            suspended = ", suspended" if state.breakpoints_suspended else ""
            yield f"breakpoints: {state.breakpoint_count}{suspended}"
        if state.lease is not None:
            yield from _lease(state.lease)
        if state.worker_signal is not None or state.worker_exit_code is not None:
            how = state.worker_signal or f"exit code {state.worker_exit_code}"
            yield f"its worker died: {how}"
        if state.restored:
            yield f"restored; before: {state.previous_status or 'unknown'}"
        if state.missing_env:
            yield f"missing in env: {short(', '.join(state.missing_env), 300)}"
        if state.missing_fields:
            yield f"hidden, restart must give them: {', '.join(state.missing_fields)}"
        if state.disk_trouble:
            yield f"disk: {short(state.disk_trouble, 300)}"


def _lease(lease: sessions.Lease) -> Iterator[Line]:
    held = lease.holder is not None
    through = f" through {short(lease.front, 40)}" if lease.front else ""
    driven = f"driven by {lease.holder}{through} until {lease.expires_at}"
    yield driven if held else "any caller may drive it"


def _resources(result: sessions.Resources) -> Iterator[Line]:
    yield (
        f"{result.session_id} {result.status}: cpu {result.cpu_seconds:g} s, memory "
        f"{format_bytes(result.memory_bytes)}, {len(result.processes)} processes"
    )
    for name, limit in result.limits.items():
        if limit.allowed:
            used, allowed = format_amount(name, limit.used), format_amount(name, limit.allowed)
            yield f"{name}: {used} of {allowed} ({limit.share or 0:.0%})"
    if result.passed_limit is not None:
        yield f"passed {result.passed_limit.words()}"
    for one in result.processes:
        yield (
            f"{one.pid} (of {one.ppid}) {one.state}: cpu {one.cpu_seconds:g} s, memory "
            f"{format_bytes(one.memory_bytes)}, {one.threads} threads, "
            f"{'?' if one.descriptors is None else one.descriptors} descriptors: "
            f"{short(one.command, 200)}"
        )
    if result.note:
        yield result.note


def _sessions(page: sessions.SessionList) -> Iterator[Line]:
    for item in page.items:
        reason = f" ({item.stop_reason})" if item.stop_reason else ""
        program = f"  {short(item.program, 200)}" if item.program else ""
        yield f"{item.session_id} {short(item.name, 80)}: {item.status}{reason}{program}"
    if not page.items:
        yield "no sessions"
    yield from _more(page)


def _output(page: output_events.OutputPage) -> Iterator[Line]:
    if page.dropped:
        yield f"({page.dropped} entries before these are gone)"
    writer = ""
    lines: list[str] = []
    for entry in page.entries:
        whose = f" of child process {entry.pid}" if entry.pid is not None else ""
        if entry.category + whose != writer:
            if lines:
                yield Code(tuple(lines))
            writer, lines = entry.category + whose, []
            yield f"{writer}:"
        lines += [short(line, 2000) for line in entry.output.splitlines()]
    if lines:
        yield Code(tuple(lines))
    if not page.entries:
        yield "no output"
    yield f"next: ?cursor={page.next_cursor}" + (" (there is more)" if page.has_more else "")


def _events(page: output_events.EventPage) -> Iterator[Line]:
    if page.dropped:
        yield f"({page.dropped} events before these are gone)"
    for event in page.events:
        yield f"{event.seq} {event.type}: {_summary(event)}"
    yield f"session {page.session_status}; next: ?cursor={page.next_cursor}"


def _all_events(page: output_events.AllEventsPage) -> Iterator[Line]:
    if page.dropped:
        yield f"({page.dropped} events before these are gone)"
    for event in page.events:
        yield f"{event.session_id} {event.seq} {event.type}: {_summary(event)}"
    statuses = ", ".join(f"{id} {status}" for id, status in page.statuses.items())
    yield f"sessions: {statuses or 'none'}; next: ?cursor={page.next_cursor}"


def _summary(event: output_events.Event) -> str:
    body = event.body
    try:
        if event.type == "breakpoint":
            point = msgspec.convert(body["breakpoint"], breakpoints.Breakpoint)
            return f"{body['reason']} {_breakpoint(point)}"
        if event.type == "module":
            return f"{body['module']['name']} {body['module']['path']}"
    except (KeyError, TypeError, msgspec.ValidationError):
        pass  # the event is of another version of the relay
    return _body(body)


def _body(body: Any) -> str:
    if not isinstance(body, Mapping):
        return short(body)
    shown = [
        f"{key}={_fact(value)}"
        for key, value in body.items()
        if value not in (None, "", [], {}) and key not in _NOISE
    ]
    return short(" ".join(shown), 600)


def _fact(value: Any) -> str:
    if isinstance(value, Mapping) and "path" in value and "line" in value:
        return f"{value['path']}:{value['line']}"
    return short(value if isinstance(value, str) else repr(value), _VALUE)


def _more(page: Any) -> Iterator[Line]:
    if not page.has_more:
        return
    cursor = getattr(page, "next_cursor", None)
    if cursor is not None:
        yield f"… more: ?cursor={cursor}"
    else:
        yield f"… {page.total} in all: ?offset={page.offset + len(page.items)}"


_RENDERERS: Final[Mapping[type, Callable[[Any], Iterator[Line]]]] = {
    execution.Execution: _execution,
    execution.TraceRows: _trace,
    run.RunReport: traces.run,
    inspection.ExceptionReport: traces.exception,
    stop_report.Stop: stop.stop,
    stop_report.StopReport: lambda report: stop.stop(report.stop),
    stop_report.HistoryPage: _history,
    inspection.Stack: _stack,
    inspection.ScopeList: _scopes,
    inspection.Variable: lambda variable: iter([stop.variable(variable)]),
    inspection.VariableList: _variables,
    inspection.Evaluated: _evaluated,
    inspection.Watch: lambda watch: iter([stop.watch(watch)]),
    inspection.WatchList: _watches,
    inspection.ThreadList: _threads,
    inspection.SourceText: _source,
    inspection.ModuleList: _modules,
    inspection.TaskList: _tasks,
    inspection.CompletionList: _completions,
    sessions.Lease: _lease,
    breakpoints.Breakpoint: lambda point: iter([_breakpoint(point)]),
    breakpoints.BreakpointList: _breakpoints,
    breakpoints.BreakpointsSet: _breakpoints,
    sessions.SessionState: _session,
    sessions.SessionStatus: _session,
    sessions.SessionList: _sessions,
    sessions.Resources: _resources,
    output_events.OutputPage: _output,
    output_events.EventPage: _events,
    output_events.AllEventsPage: _all_events,
}
