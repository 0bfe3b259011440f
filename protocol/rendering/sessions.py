"""Text of sessions: their state, lists of them, their resources, and how they end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from debug_relay.protocol.models import export_import, program, sessions
from debug_relay.protocol.models.fields import Location
from debug_relay.protocol.models.limits import format_amount, format_bytes
from debug_relay.protocol.rendering import stop
from debug_relay.protocol.rendering.breakpoints import place_of
from debug_relay.protocol.rendering.text import Line, more, plural, short, table
from debug_relay.protocol.rendering.traces import ending

_LINE = 200  # Characters of one line of a list.


def headline(
    status: str, reason: str | None, stop_id: int, location: Location | None, end: str
) -> str:
    if status != "paused":
        return f"{status}{end}"
    place = f" {stop.location_text(location)}" if location is not None else ""
    return f"paused ({reason}, stop {stop_id}){place}"


def session(state: sessions.SessionState | sessions.SessionStatus) -> Iterator[Line]:
    name = f" {short(state.name, 80)}" if isinstance(state, sessions.SessionState) else ""
    end = ending(state.exit_code, state.signal, state.end_reason)
    line = headline(state.status, state.stop_reason, state.stop_id, state.current_location, end)
    yield f"{state.session_id}{name}: {line}"
    if state.waiting_for_input:
        yield f"waits for input: {short(state.prompt or '', 200)!r}"
    if state.warning:
        yield f"warning: {state.warning}"
    if state.passed_limit is not None:
        yield f"passed {state.passed_limit.words()}"
    if isinstance(state, sessions.SessionState):
        yield from _more_of(state)


def _more_of(state: sessions.SessionState) -> Iterator[Line]:
    if state.program is not None:
        yield f"program: {short(target(state.program), 600)}"
    if state.debugger is not None and state.program is not None:
        native = state.program.is_native
        who = f"debugger: {state.debugger.adapter}" if native else "an IDE joins"
        yield f"{who} at {state.debugger.uri}"
    if state.debugger is not None and state.debugger.clients:
        yield f"joined by {short(', '.join(state.debugger.clients), 300)}"
    if state.exception is not None:
        yield f"exception: {state.exception.type}: {short(state.exception.message, 300)}"
    if state.breakpoint_count:
        suspended = ", suspended" if state.breakpoints_suspended else ""
        yield f"breakpoints: {state.breakpoint_count}{suspended}"
    if state.lease is not None:
        yield from lease(state.lease)
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


def target(of: sessions.Program) -> str:
    """The program in a few words: its command, or where it was attached to."""
    pid = f" (pid {of.pid})" if of.pid is not None else ""
    name = f"-m {of.module}" if of.module else of.target
    if name is not None:
        return f"{' '.join([name, *of.args])}{pid}"
    if of.port is not None:
        return f"attached to {of.host or 'localhost'}:{of.port}{pid}"
    return f"attached to pid {of.pid}" if of.attached else f"code{pid}"


def lease(held: sessions.Lease) -> Iterator[Line]:
    if held.holder is None:
        yield "any caller may drive it"
    else:
        through = f" through {held.front}" if held.front else ""
        yield f"driven by {held.holder}{through} until {held.expires_at}"


def listed(page: sessions.SessionList) -> Iterator[Line]:
    rows = [("session", "name", "status", "program")]
    for item in page.items:
        reason = f" ({item.stop_reason})" if item.stop_reason else ""
        name = short(item.name, 60)
        rows.append((item.session_id, name, f"{item.status}{reason}", item.program or ""))
    if page.items:
        yield from table(rows, _LINE)
    else:
        yield "no sessions"
    yield from more(page)


def resources(result: sessions.Resources) -> Iterator[Line]:
    yield (
        f"{result.session_id} {result.status}: cpu {result.cpu_seconds:g} s, memory "
        f"{format_bytes(result.memory_bytes)}, {plural(len(result.processes), 'process')}"
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
            f"{short(one.command, _LINE)}"
        )
    if result.note:
        yield result.note


def pong(result: sessions.Pong) -> Iterator[Line]:
    until = f", expires at {result.expires_at}" if result.expires_at else ", does not expire"
    yield f"{result.session_id} {result.status}{until}"
    if result.warning:
        yield f"warning: {result.warning}"


def deleted(result: sessions.SessionDeleted) -> Iterator[Line]:
    yield f"deleted{ending(result.exit_code, None, None)}"


def detached(result: program.Detached) -> Iterator[Line]:
    pid = f" from {result.pid}" if result.pid is not None else ""
    yield f"detached{pid}; the session is {result.status}"
    if result.residue:
        yield f"left in the program: {result.residue}"


def terminated(result: program.Terminated) -> Iterator[Line]:
    yield f"{result.status}{ending(result.exit_code, result.signal, None)}"


def written(result: program.Written) -> Iterator[Line]:
    closed = ", input closed" if result.eof else ""
    yield f"{plural(result.bytes_written, 'byte')} written{closed}"


def export(result: export_import.Export) -> Iterator[Line]:
    """The contents of an export; an import takes the JSON."""
    yield f"export of {short(result.name, 80)} (relay {result.version}); an import takes its JSON"
    config = result.config if isinstance(result.config, Mapping) else {}
    shown = [f"{name} {_plain(value)}" for name, value in config.items() if value not in _EMPTY]
    yield f"config: {short(', '.join(shown), 600)}"
    if isinstance(result.program, Mapping):
        fields = [f"{name} {_plain(value)}" for name, value in result.program.items()]
        yield f"program: {short(', '.join(fields), 1000)}"
    if result.missing_env:
        yield f"without the variables {short(', '.join(result.missing_env), 300)}"
    if result.missing_fields:
        yield f"secrets are hidden in {', '.join(result.missing_fields)}"
    for spec in result.breakpoints:
        yield f"breakpoint {place_of(spec)}"
    filters = result.exception_breakpoints
    if isinstance(filters, Mapping):
        names = [*filters.get("filters", ()), *filters.get("types", ())]
        yield f"exceptions: {short(', '.join(names), 300) or 'none'}"
    for watch in result.watches:
        yield f"watch {short(watch.get('expression', ''), 200)}"


_EMPTY: tuple[Any, ...] = (None, "", [], {}, False)


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        inside = [f"{name}={_plain(one)}" for name, one in value.items() if one not in _EMPTY]
        return f"({', '.join(inside)})" if inside else "none"
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return "yes" if value is True else str(value)
