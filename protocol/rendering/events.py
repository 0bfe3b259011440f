"""Text of output and events, one line for each event."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from debug_relay.protocol.models import breakpoints, output_events
from debug_relay.protocol.models.fields import Location
from debug_relay.protocol.rendering import stop
from debug_relay.protocol.rendering.breakpoints import breakpoint
from debug_relay.protocol.rendering.text import Code, Line, short
from debug_relay.protocol.rendering.traces import ending

Body = Mapping[str, Any]
_VALUE: Final = 100  # Characters of one value in an event's line.
_LINE: Final = 600  # Characters of an event's line.


def output(page: output_events.OutputPage) -> Iterator[Line]:
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


def cleared(result: output_events.OutputCleared) -> Iterator[Line]:
    yield f"output cleared; next: ?cursor={result.next_cursor}"


def events(page: output_events.EventPage) -> Iterator[Line]:
    if page.dropped:
        yield f"({page.dropped} events before these are gone)"
    for event in page.events:
        yield f"{event.seq} {event.type}: {summary(event)}"
    yield f"session {page.session_status}; next: ?cursor={page.next_cursor}"


def all_events(page: output_events.AllEventsPage) -> Iterator[Line]:
    if page.dropped:
        yield f"({page.dropped} events before these are gone)"
    for event in page.events:
        yield f"{event.session_id} {event.seq} {event.type}: {summary(event)}"
    statuses = ", ".join(f"{id} {status}" for id, status in page.statuses.items())
    yield f"sessions: {statuses or 'none'}; next: ?cursor={page.next_cursor}"


def summary(event: output_events.Event) -> str:
    body = event.body
    if not isinstance(body, Mapping):
        return short(body)
    words = _SUMMARIES.get(event.type)
    try:
        line = words(body) if words is not None else _facts(body)
    except (KeyError, TypeError, AttributeError, msgspec.MsgspecError):
        line = _facts(body)  # the event is of another version of the relay
    caller = f"  (by {body['caller']})" if body.get("caller") else ""
    note = f"  ({body['note']})" if body.get("note") else ""
    return short(line, _LINE) + caller + note


def _stopped(body: Body) -> str:
    place = ""
    if body.get("current_location"):
        place = f" {stop.location_text(msgspec.convert(body['current_location'], Location))}"
    hit = f" {', '.join(body['hit_breakpoint_ids'])}" if body.get("hit_breakpoint_ids") else ""
    text = f": {short(body['text'], 300)}" if body.get("text") else ""
    return f"{body['reason']}{hit}, stop {body['stop_id']}, thread {body['thread_id']}{place}{text}"


def _continued(body: Body) -> str:
    return f"thread {body['thread_id']}" if body.get("thread_id") else "all threads"


def _terminated(body: Body) -> str:
    swept = f", {len(body['swept'])} processes ended" if body.get("swept") else ""
    end = ending(body.get("exit_code"), body.get("signal"), body.get("end_reason"))
    return (end.strip(" ()") or "ended") + swept


def _printed(body: Body) -> str:
    return f"{body['category']} {short(body['output'].rstrip(), 300)}"


def _breakpoint(body: Body) -> str:
    point = msgspec.convert(body["breakpoint"], breakpoints.Breakpoint)
    return f"{body['reason']} {breakpoint(point)}"


def _thread(body: Body) -> str:
    return f"{body['thread_id']} {body['reason']}"


def _module(body: Body) -> str:
    return f"{body['module']['name']} {body['module']['path']}"


def _subprocess(body: Body) -> str:
    command = f": {short(' '.join(body['command']), 200)}" if body.get("command") else ""
    end = ending(body.get("exit_code"), body.get("signal"), None)
    why = f": {body['why']}" if body.get("why") else ""
    return f"{body['pid']} {body['reason']}{end}{command}{why}"


def _input(body: Body) -> str:
    warning = f"; {body['warning']}" if body.get("warning") else ""
    if not body["waiting_for_input"]:
        return "no longer waited for" + warning
    return f"waited for, prompt {short(body.get('prompt') or '', 200)!r}" + warning


def _session(body: Body) -> str:
    """The state, and the event's other facts in words."""
    before = f" (was {body['previous_status']})" if body.get("previous_status") else ""
    words = body.get("message") or body.get("warning")
    facts = words or _facts({name: one for name, one in body.items() if name not in _OF_STATE})
    return f"{body['status']}{before}{f'; {facts}' if facts else ''}"


def _watch(body: Body) -> str:
    after = body.get("error") or body.get("value")
    return (
        f"{body['watch_id']} {short(body['expression'], 80)}: {short(body['before'], _VALUE)} → "
        f"{short(after, _VALUE)}"
    )


def _process(body: Body) -> str:
    if body.get("message"):
        return str(body["message"])
    swept = body.get("swept")
    return f"{body['reason']} {len(swept)} processes" if swept else _facts(body)


_OF_STATE: Final = frozenset({"status", "previous_status", "caller", "note"})
_SUMMARIES: Final[Mapping[str, Callable[[Body], str]]] = {
    "stopped": _stopped,
    "continued": _continued,
    "terminated": _terminated,
    "output": _printed,
    "breakpoint": _breakpoint,
    "thread": _thread,
    "module": _module,
    "subprocess": _subprocess,
    "input": _input,
    "session": _session,
    "process": _process,
    "watch": _watch,
}


def _facts(body: Body) -> str:
    shown = (
        f"{key.replace('_', ' ')} {_fact(value)}"
        for key, value in body.items()
        if value not in (None, "", [], {}) and key not in ("caller", "note")
    )
    return short(", ".join(shown), _LINE)


def _fact(value: Any) -> str:
    if isinstance(value, Mapping) and "path" in value and "line" in value:
        return f"{value['path']}:{value['line']}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return short(value if isinstance(value, str) else repr(value), _VALUE)
