"""Text about the relay and this machine: health, settings, processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.models import breakpoints, relay
from debug_relay.protocol.models.processes import Process
from debug_relay.protocol.rendering.breakpoints import place_of
from debug_relay.protocol.rendering.text import Line, more, plural, short, table

_PROCESS_CHARACTERS: Final = 160  # One line of the list of processes.
_SETTING: Final = 120  # Characters of one setting's value.


def health(result: relay.Health) -> Iterator[Line]:
    debugpy = "" if result.debugpy_available else ", debugpy is missing"
    yield (
        f"{result.status}: relay {result.version}, up {duration(result.uptime_seconds)}, "
        f"{plural(result.active_sessions, 'active session')}{debugpy}"
    )
    yield from (f"warning: {warning}" for warning in result.warnings)


def info(result: relay.Info) -> Iterator[Line]:
    debugpy = f"debugpy {result.debugpy_version}" if result.debugpy_version else "no debugpy"
    root = ", runs as root" if result.runs_as_root else ""
    yield (
        f"{result.name} {result.version} (API {result.api_version}): Python "
        f"{result.python_version}, {debugpy}{root}"
    )
    for said, is_there in (("supports", True), ("does not support", False)):
        names = [name for name, value in result.capabilities.items() if value is is_there]
        if names:
            yield f"{said}: {', '.join(name.removeprefix('supports_') for name in names)}"
    if "max_sessions" in result.capabilities:
        yield f"at most {result.capabilities['max_sessions']} sessions"
    yield f"{len(result.endpoints)} endpoints: GET /llms.txt shows how to use them"


def configuration(result: relay.Configuration) -> Iterator[Line]:
    """One setting a line; a star marks those that PATCH may change."""
    rows = [("setting", "value", "from")]
    for name, value in _settings(result.config):
        mark = "*" if name in result.changeable else ""
        rows.append((name + mark, short(_value(value), _SETTING), result.origins.get(name, "")))
    yield from table(rows)
    if result.changeable:
        yield f"* may be changed while the relay runs: {call_of('patch-config')}"
    if not result.persisted:
        yield "warning: changes are not on disk and are lost when the relay stops"


def _settings(config: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for section, values in config.items():
        if isinstance(values, dict):
            yield from ((f"{section}.{name}", value) for name, value in values.items())
        else:
            yield section, values


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value in (None, "") else str(value)


def shutting_down(result: relay.ShuttingDown) -> Iterator[Line]:
    s = "s" if result.sessions == 1 else ""
    what = f"stay{s} for the next relay" if result.keep_sessions else f"end{s} with it"
    yield f"the relay stops; {plural(result.sessions, 'session')} {what}"


def ticket(result: relay.Ticket) -> Iterator[Line]:
    yield f"good once, until {result.expires_at}; WebSocket protocols: {' '.join(result.protocols)}"


def processes(page: relay.ProcessList) -> Iterator[Line]:
    rows = [("pid", "python", "user", "debug", "listens", "command")]
    for one in page.items:
        ports = ",".join(map(str, one.listening_ports))
        command = " ".join(_shown(argument) for argument in one.command)
        version = one.python_version or "?"
        rows.append((str(one.pid), version, one.user, _debuggable(one), ports, command))
    if page.items:
        yield from table(rows, _PROCESS_CHARACTERS)
    else:
        yield "no Python processes"
    yield from more(page)
    if page.not_looked_into:
        yield f"({page.not_looked_into} more processes may embed a Python: call again)"


def _shown(argument: str) -> str:
    """An argument in one line; the interpreter's folder is of no use to a reader."""
    head, _, name = argument.rpartition("/")
    return name if head.endswith("/bin") and name.startswith("python") else argument


def _debuggable(one: Process) -> str:
    if one.debugged_by is not None:
        return one.debugged_by
    if one.attachable:
        return f"yes, {one.greenlets}" if one.greenlets else "yes"
    why = one.code.value.removeprefix("ATTACH_").replace("_", " ").lower() if one.code else "?"
    return f"no: {why}"


def process(one: Process) -> Iterator[Line]:
    ports = f", listens on {', '.join(map(str, one.listening_ports))}" * bool(one.listening_ports)
    version = f"Python {one.python_version}" if one.python_version else "unknown Python"
    yield f"{one.pid} {version}, user {one.user}{ports}: {short(' '.join(one.command), 400)}"
    if one.cwd is not None:
        yield f"cwd: {one.cwd}"
    if one.venv is not None:
        yield f"venv: {one.venv}"
    if one.debugged_by is not None:
        yield f"debugged by {one.debugged_by}"
    if one.greenlets is not None:
        yield f"uses {one.greenlets}"
    if one.attachable:
        body = f'{{"mode": "attach", "pid": {one.pid}}}'
        yield f"can be attached to: {call_of('create-session')} {body}"
    elif one.debugged_by is None:
        yield f"cannot be attached to: {one.reason or 'unknown reason'}"
        if one.suggestion:
            yield f"next: {one.suggestion}"
    yield f"identity: {one.identity}"


def profiles(page: breakpoints.ProfileList) -> Iterator[Line]:
    for item in page.items:
        yield f"{item.name}: {plural(item.breakpoint_count, 'breakpoint')}"
    if not page.items:
        yield "no breakpoint profiles"
    yield from more(page)


def profile(data: breakpoints.ProfileData) -> Iterator[Line]:
    yield f"profile {data.name}: {plural(len(data.breakpoints), 'breakpoint')}"
    yield from (f"  {place_of(spec)}" for spec in data.breakpoints)
    if isinstance(data, breakpoints.ProfileKept) and not data.persisted:
        yield "warning: it is not on disk"


def duration(seconds: float) -> str:
    """A time as people say it: 4.2 s, 3 min 5 s, 2 h 10 min."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
