"""The text of every result: one function for each type, here or in the module of its group.

`?format=text` and `?format=markdown` use it. A test goes through the operations table, so that no
result is a dump of its fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.models import (
    breakpoints,
    creation,
    execution,
    export_import,
    fields,
    inspection,
    output_events,
    processes,
    program,
    run,
    sessions,
    sources,
    stop_report,
    threads,
)
from debug_relay.protocol.models import relay as relay_models
from debug_relay.protocol.rendering import breakpoints as breakpoint_text
from debug_relay.protocol.rendering import events, library_frames, live, relay, stop, traces
from debug_relay.protocol.rendering import sessions as session_text
from debug_relay.protocol.rendering.text import Code, Line, generic, more, plural, short

_VALUE: Final = 100  # Characters of one value in the text of a result.
_WHOLE: Final = 4000  # Characters of an evaluated value that has no parts, such as a text.
_PARTS: Final = 400  # Characters of one that has: a reference leads to the rest.
_MODULES: Final = 3000  # Characters of the names of library modules.


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


def _execution(result: execution.Execution) -> Iterator[Line]:
    end = traces.ending(result.exit_code, result.signal, result.end_reason)
    place = None if result.stop is not None else result.current_location
    yield session_text.headline(result.status, result.stop_reason, result.stop_id, place, end)
    if result.exception is not None:
        raised = result.exception
        passed = raised.message  # says why the type is not known
        if raised.type != "unknown":
            passed = stop.raised_text(raised.type, raised.message, 300)
        yield f"the step left its line by an exception: {passed}"
    if result.child_pid is not None and result.stop is None:
        yield f"in child process {result.child_pid}, thread {result.thread_id}"
    if not result.completed and result.status == "running":
        if result.waiting_for_input:
            how = call_of("input", result.session_id)
            yield f"waits for input: {short(result.prompt or '', 200)!r}: send it with {how}"
        yield f"not stopped yet: wait with {call_of('snapshot', result.session_id)}?wait=30"
    elif not result.completed and result.status == "paused":
        yield "the resumed thread still runs; this is where another thread is paused"
    if result.pause_pending:
        yield "pause pending: a thread is in C code and stops as soon as it returns"
    if result.note:
        yield f"note: {short(result.note, 600)}"
    if result.live_stack is not None:
        frames, folds = library_frames.folded(result.live_stack.frames, waits=True)
        yield from _stack(msgspec.structs.replace(result.live_stack, frames=frames, folded=folds))
    if result.reached is False:
        yield "the line was not reached: the program stopped or ended before"
    if result.native_frame:
        yield f"the step went into {result.native_callee}, which is native"
    yield from (f"warning: {short(words, 600)}" for words in result.never_found)
    if result.stop is not None:
        yield from stop.stop(result.stop, headline=False)
    elif result.return_value is not None:
        yield stop.returned(result.return_value)


def _created(result: creation.SessionCreated) -> Iterator[Line]:
    """The state, breakpoints that will not be hit as they are, and the first stop."""
    known = result
    if result.stop is not None:  # which tells these two
        known = msgspec.structs.replace(known, current_location=None, exception=None)
    if result.program is None or not result.program.is_native:
        # The caller who creates a session drives it; a person who joins reads `get-session`.
        known = msgspec.structs.replace(known, debugger=None)
    yield from session_text.session(known)
    for point in result.breakpoints:
        if not point.verified or point.message:
            yield breakpoint_text.breakpoint(point)
    if result.stop is not None:
        yield from stop.stop(result.stop, headline=False)
    elif result.status == "running" and not (result.program and result.program.attached):
        yield f"not stopped yet: wait with {call_of('snapshot', result.session_id)}?wait=30"


def _snapshot(result: stop_report.StopReport) -> Iterator[Line]:
    if result.stop is not None:
        yield from stop.stop(result.stop)
    else:
        yield result.status + traces.ending(result.exit_code, result.signal, result.end_reason)
        if result.waiting_for_input:
            prompt = short(result.prompt or "", 200)
            yield f"waits for input: {prompt!r}: send it with {call_of('input')}"
        elif result.status == "running":
            yield "not stopped yet: call again"
        yield from (f"warning: {short(words, 600)}" for words in result.never_found)


def _trace(result: execution.TraceRows) -> Iterator[Line]:
    yield from traces.trace(result)
    if result.ended is None:
        read, end = (call_of(name, result.session_id) for name in ("get-trace", "end-trace"))
        yield f"the program runs on: {read} reads rows, {end} ends the trace"
    else:
        yield from _execution(result)


def _history(page: stop_report.HistoryPage) -> Iterator[Line]:
    for report in page.items:
        yield from stop.brief_stop(report)
    yield from more(page)


# -- stacks and values


def _stack(stack: inspection.Stack) -> Iterator[Line]:
    live = ", as it runs" if stack.live else ""
    where = f" of child process {stack.child_pid}" if stack.child_pid is not None else ""
    yield f"thread {stack.thread_id}{where}, {plural(stack.total_frames, 'frame')}{live}"
    rows = [(row.id, stop.place(row), list[str]()) for row in stack.frames]
    yield from stop.with_folds(rows, stack.folded)
    if stack.has_more:
        ends = [row.id + 1 for row in stack.frames]
        ends += [fold.first + fold.count for fold in stack.folded]
        following = max(ends, default=0)
        yield f"… more: ?start_frame={following}"


def _variables(page: inspection.VariableList) -> Iterator[Line]:
    yield from (stop.variable(variable) for variable in page.variables)
    if page.has_more:
        yield f"… {page.total} in all: ?start={page.start + len(page.variables)}"
    elif not page.variables:
        yield "no variables" if not page.total else f"no variables from {page.start} on"
    if page.live is not msgspec.UNSET:
        yield "(live: read from outside, without running the program's code)"
    elif page.repr is not msgspec.UNSET:
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
            # The expression's own frame tells nothing.
            if sum(line.startswith('  File "') for line in lines) > 1:
                yield Code(tuple(short(line, _VALUE) for line in lines[-20:]))
        return
    longest = _PARTS if result.variables_reference else _WHOLE
    text = "done" if result.result is None else short(result.result, longest)
    kind = f"{result.type} = " if result.type else ""
    is_cut = result.truncated and len(result.result or "") <= longest
    length = ""
    if result.variables_reference:
        length = stop.length_text(result.length or None, result.type)
        length += f"  (ref {result.variables_reference})"
    yield f"{kind}{text}{length}{'  (cut)' if is_cut else ''}"
    if result.note is not msgspec.UNSET:
        yield f"note: {result.note}"


def _set(result: inspection.VariableSet) -> Iterator[Line]:
    reference = f"  (ref {result.variables_reference})" if result.variables_reference else ""
    yield stop.typed(result.name, result.type, result.value) + reference


def _watches(result: inspection.WatchList) -> Iterator[Line]:
    yield from (stop.watch(watch) for watch in result.watches)
    if not result.watches:
        yield "no watches"


def _threads(result: threads.ThreadList) -> Iterator[Line]:
    if result.outside or any(one.frames is not msgspec.UNSET for one in result.threads):
        yield from live.threads(result)
        return
    yield from live.briefly(result.threads)
    if result.note is not msgspec.UNSET:
        yield f"note: {result.note}"


def _source(result: sources.SourceText) -> Iterator[Line]:
    guess = ", decompiled: no source text; lines and names are a guess"
    yield f"{result.path}, lines {result.start} to {result.end} of {result.total_lines}" + (
        guess * result.decompiled
    )
    width = len(str(result.end))
    numbered = enumerate(result.lines, result.start)
    yield Code(tuple(f"{n:>{width}}  {short(text, 500)}" for n, text in numbered), "python")


def _modules(page: sources.ModuleList) -> Iterator[Line]:
    for module in page.items:
        if module.is_user_code:
            yield f"{short(module.name, 200)} {module.path}"
    libraries = [module.name for module in page.items if not module.is_user_code]
    if libraries:
        yield f"libraries: {short(', '.join(libraries), _MODULES)}"
    yield from more(page)


def _tasks(result: threads.TaskList) -> Iterator[Line]:
    if any(frame.locals is not msgspec.UNSET for task in result.tasks for frame in task.frames):
        yield from live.tasks(result)
        return
    yield from live.tasks_briefly(result.tasks)
    if result.total != len(result.tasks):
        yield f"… {result.total} in all"
    if not result.total:
        yield "no asyncio tasks"


def _completions(result: inspection.CompletionList) -> Iterator[Line]:
    yield from (f"{item.label}{f'  ({item.type})' * bool(item.type)}" for item in result.items)
    if not result.items:
        yield "no completions"


_RENDERERS: Final[Mapping[type, Callable[[Any], Iterator[Line]]]] = {
    execution.Execution: _execution,
    execution.TraceRows: _trace,
    run.RunReport: traces.run,
    inspection.ExceptionReport: traces.exception,
    stop_report.Stop: stop.stop,
    stop_report.StopReport: _snapshot,
    stop_report.HistoryPage: _history,
    inspection.Stack: _stack,
    inspection.ScopeList: _scopes,
    inspection.Variable: lambda variable: iter([stop.variable(variable)]),
    inspection.VariableList: _variables,
    inspection.Evaluated: _evaluated,
    inspection.Watch: lambda watch: iter([stop.watch(watch)]),
    inspection.WatchList: _watches,
    threads.ThreadList: _threads,
    threads.Stacks: live.stacks,
    sources.SourceText: _source,
    sources.ModuleList: _modules,
    threads.TaskList: _tasks,
    inspection.CompletionList: _completions,
    inspection.VariableSet: _set,
    breakpoints.Breakpoint: lambda point: iter([breakpoint_text.breakpoint(point)]),
    breakpoints.BreakpointChanged: breakpoint_text.changed,
    breakpoints.BreakpointList: breakpoint_text.listed,
    breakpoints.BreakpointsSet: breakpoint_text.listed,
    breakpoints.ExceptionBreakpoints: breakpoint_text.exceptions,
    breakpoints.ProfileList: relay.profiles,
    breakpoints.ProfileData: relay.profile,
    fields.Deleted: breakpoint_text.deleted,
    fields.Count: breakpoint_text.count,
    sessions.Lease: session_text.lease,
    creation.SessionCreated: _created,
    sessions.SessionState: session_text.session,
    sessions.SessionStatus: session_text.session,
    sessions.SessionList: session_text.listed,
    sessions.SessionDeleted: session_text.deleted,
    sessions.Pong: session_text.pong,
    sessions.Resources: session_text.resources,
    export_import.Export: session_text.export,
    program.Detached: session_text.detached,
    program.Terminated: session_text.terminated,
    program.Written: session_text.written,
    output_events.OutputPage: events.output,
    output_events.OutputCleared: events.cleared,
    output_events.EventPage: events.events,
    output_events.AllEventsPage: events.all_events,
    relay_models.Health: relay.health,
    relay_models.Info: relay.info,
    relay_models.Configuration: relay.configuration,
    relay_models.ShuttingDown: relay.shutting_down,
    relay_models.Ticket: relay.ticket,
    relay_models.ProcessList: relay.processes,
    processes.Process: relay.process,
}


def has_text(kind: type) -> bool:
    """Whether a result has a form made for reading."""
    return any(one in _RENDERERS for one in kind.__mro__)
