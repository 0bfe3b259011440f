"""The refusals and notes that both supervisor and worker produce, worded in one place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.fields import Location
from debug_relay.protocol.models.sessions import Program
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.scopes import RUNS_CODE
from debug_relay.protocol.secrets import HIDDEN, hide_secrets, looks_secret, masked
from debug_relay.protocol.state import State
from debug_relay.protocol.version import API_PREFIX

_SHOWN_CHARACTERS: Final = 200  # A refused value is shown up to this length.
_SHOWN_FIELD_CHARACTERS: Final = 1000  # A field's name and its message are shown up to this length.
# Problems that are collected and reported: a caller with more needs no longer list.
MOST_PROBLEMS: Final = 100
MISSING: Final = "required"  # the message for a required field that is missing


class Problem(msgspec.Struct):
    """One invalid field."""

    field: str
    message: str
    value: Any = None
    # Entries of a batch may be refused for different reasons, so each has its own code.
    code: Code | msgspec.UnsetType = msgspec.UNSET
    suggestion: str | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        # The refusal shows what was sent, names that the caller chose included, but only the
        # beginning of a large value and nothing that looks secret.
        name = self.field[-_SHOWN_CHARACTERS:].rpartition(".")[2]
        words = HIDDEN if looks_secret(name) else _beginning(self.value)
        if len(words) > _SHOWN_CHARACTERS:
            # We look at a little more than is shown: a token that is cut in two is no longer
            # recognised.
            self.value = hide_secrets(words[: 4 * _SHOWN_CHARACTERS])[:_SHOWN_CHARACTERS] + "…"
        else:
            self.value = masked(name, self.value)
        self.field = _cut(self.field)
        self.message = _cut(self.message)


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_FIELD_CHARACTERS else text[:_SHOWN_FIELD_CHARACTERS] + "…"


def _beginning(value: Any) -> str:
    """A value as text, or a little more of it than is shown; never all of a large one."""
    if isinstance(value, str):
        return value
    pieces: list[str] = []
    length = 0
    for piece in _pieces(value):
        pieces.append(piece)
        length += len(piece)
        if length > _SHOWN_CHARACTERS:
            break
    return "".join(pieces)


def _pieces(value: Any) -> Iterator[str]:
    """The value's `repr`, piece by piece."""
    if isinstance(value, list):
        yield "["
        for index, item in enumerate(value):
            yield ", " if index else ""
            yield from _pieces(item)
        yield "]"
    elif isinstance(value, dict):
        yield "{"
        for index, (name, item) in enumerate(value.items()):
            yield f"{', ' if index else ''}{name[:_SHOWN_CHARACTERS]!r}: "
            yield from _pieces(item)
        yield "}"
    else:
        yield repr(value[:_SHOWN_CHARACTERS] if isinstance(value, str) else value)


OUTPUT_WITHHELD: Final = (
    "The program's output is left out: reading it needs the scope artifacts:read."
)


class Problems(msgspec.Struct):
    """The problems that a worker finds in a part of a request."""

    problems: list[Problem]


def needs_scope_to_run_code() -> RelayError:
    return RelayError(
        Code.INSUFFICIENT_SCOPE,
        "The debugger in this program runs program code to show values, which needs the scope "
        f"{RUNS_CODE}",
        f"Use a token with {RUNS_CODE}. "
        f"{call_of('stacktrace')} and {call_of('threads')} need none.",
        scope=RUNS_CODE,
    )


def wrong_state(
    operation: str,
    current: State,
    states: frozenset[State],
    session_id: str,
    program: Program | None = None,
) -> RelayError:
    """409 with the call that leads to a state in which the operation is allowed.

    `program` is the session's; if we attached to it, we cannot start it again.
    """
    base = f"{API_PREFIX}/sessions/{session_id}"
    needed = " or ".join(sorted(s.value for s in states))
    # Operations that read are named by a noun.
    does = f"show {operation}" if OPERATIONS[operation].safe else operation
    return RelayError(
        Code.INVALID_SESSION_STATE,
        f"Cannot {does}: the session is {current.value}, not {needed}",
        _way_out(current, states, base, program if program and program.attached else None),
        session_id=session_id,
        current_state=current.value,
        required_state=needed,
    )


def not_for_native(operation: str, program: Program) -> RelayError:
    """400 for a call that needs the relay's own debugger: this program has another debugger."""
    client = "gdb" if program.adapter == "gdbserver" else "lldb"
    return RelayError(
        Code.ATTACH_UNSUPPORTED,
        f"{operation} is for Python programs; {program.adapter} debugs this one",
        f"Do it in {client}: connect it to debugger.uri of {call_of('get-session')}, or by "
        f"{call_of('tunnel')}. These work here: {call_of('output')}, {call_of('input')}, "
        f"{call_of('events')}, {call_of('resources')}, {call_of('terminate')} and "
        f"{call_of('restart')}.",
        adapter=program.adapter,
        operation=operation,
    )


def how_to_attach_again(program: Program) -> str:
    """The suggestion for an attached program that has ended."""
    if program.port is not None and program.host is not None:
        whom = f'"host": "{program.host}", "port": {program.port}'
    else:
        whom = '"pid": <its new pid>'
    return (
        "start it again the way it was started, and attach in a new session: "
        f'POST {API_PREFIX}/sessions {{"mode": "attach", {whom}}}'
    )


def _way_out(
    current: State, states: frozenset[State], base: str, attached_to: Program | None
) -> str:
    if current is State.TERMINATED and attached_to is not None:
        return (
            f"The program has ended: {how_to_attach_again(attached_to)}; "
            f"GET {base}/events shows what happened here."
        )
    if current is State.TERMINATED:
        return (
            f"The program has ended: POST {base}/restart runs it again, "
            f"GET {base}/output shows its output."
        )
    if current is State.FAILED:
        return f"The session is lost: GET {base}/output still works. Create a new session."
    if current is State.CREATED:
        return f"Start a program with POST {base}/launch, or attach to one: POST {base}/attach."
    if current is State.LAUNCHING:
        return f"GET {base}/status shows when it runs; DELETE {base} ends it."
    if current is State.RUNNING and State.PAUSED in states:
        return f"POST {base}/pause stops it; {_next_stop(base)} waits for the next stop."
    if State.CREATED in states and attached_to is not None:
        return (
            f"A session debugs one program: POST {base}/detach detaches from this one; "
            f"for another one create a session with POST {API_PREFIX}/sessions."
        )
    if State.CREATED in states:
        return (
            f"A session debugs one program: POST {base}/restart starts it again; "
            f"for another one create a session with POST {API_PREFIX}/sessions."
        )
    return f"It is paused: GET {base}/stacktrace shows where, POST {base}/continue resumes it."


def _next_stop(base: str) -> str:
    return f"GET {base}/snapshot?wait=30"


def has_moved_on(if_stop: int, current: State, stop_id: int, states: frozenset[State]) -> bool:
    """Whether the program has left the stop that the caller has seen: it is at another one, or it
    runs.
    """
    return if_stop != stop_id or (current is State.RUNNING and current not in states)


def stop_changed(
    if_stop: int, current: State, stop_id: int, location: Location | None, session_id: str
) -> RelayError:
    """409: the caller would act on an outdated state."""
    if current is State.PAUSED:
        now, look = f"is at stop {stop_id}", f"Read the present stop, then send If-Stop: {stop_id}."
    else:
        now = f"is {current.value}, its last stop was {stop_id}"
        events = _next_stop(f"{API_PREFIX}/sessions/{session_id}")
        look = f"{events} waits for the next stop. Read it, then send its number."
    return RelayError(
        Code.STOP_CHANGED,
        f"If-Stop says {if_stop}, but the program {now}",
        look,
        if_stop=if_stop,
        stop_id=stop_id,
        status=current.value,
        current_location=location,
    )


def threads_are_greenlets(pid: int, whose: str) -> RelayError:
    return RelayError(
        Code.ATTACH_UNSUPPORTED,
        f"The threads of process {pid} are greenlets of {whose}",
        "Start it with python -m debugpy --listen PORT and GEVENT_SUPPORT=True, and attach by "
        "port.",
        pid=pid,
    )


def decode_error(raw: bytes) -> RelayError:
    """The error that a worker has sent, to be raised in the supervisor."""
    body = msgspec.json.decode(raw)
    details = dict(body["details"])
    suggestion = details.pop("suggestion", None)
    return RelayError(Code(body["code"]), body["message"], suggestion, **details)


def no_such_session(session_id: str, known: list[str]) -> RelayError:
    masked = ", ".join(known[:10]) or "none"
    return RelayError(
        Code.SESSION_NOT_FOUND,
        f"Session with ID '{session_id[:100]}' not found",
        f"Use GET {API_PREFIX}/sessions to list the sessions; open now: {masked}.",
        session_id=session_id[:100],
        sessions=known[:10],
    )


def ambiguous_name(name: str, ids: list[str]) -> RelayError:
    return RelayError(
        Code.SESSION_NOT_FOUND,
        f"{len(ids)} sessions are called {name!r}",
        f"Name one by its id: {', '.join(ids[:10])}.",
        sessions=ids[:10],
    )


def deleted_meanwhile(session_id: str) -> RelayError:
    return RelayError(
        Code.SESSION_NOT_FOUND,
        f"Session {session_id} was deleted meanwhile",
        f"GET {API_PREFIX}/sessions lists the existing ones.",
        session_id=session_id,
    )


def require_project(project_root: str | None) -> None:
    """Breakpoints are saved per project; without a project there are none to restore."""
    if project_root is None:
        raise RelayError(
            Code.INVALID_REQUEST,
            "restore_breakpoints needs project_root: breakpoints are saved for a project",
            "Send project_root as well.",
            errors=[{"field": "project_root", "message": "required", "value": None}],
        )
