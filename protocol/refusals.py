"""Refusals that both sides make, worded once."""

from __future__ import annotations

import msgspec

from debug_relay.protocol import state
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.state import State
from debug_relay.protocol.version import API_PREFIX


def wrong_state(
    operation: str, current: State, states: frozenset[State], session_id: str
) -> RelayError:
    """409 with the call that leads to a state in which it is allowed."""
    base = f"{API_PREFIX}/sessions/{session_id}"
    needed = " or ".join(sorted(s.value for s in states))
    return RelayError(
        Code.INVALID_SESSION_STATE,
        f"Cannot {operation}: the session is {current.value}, not {needed}",
        _way_out(current, states, base),
        session_id=session_id,
        current_state=current.value,
        required_state=needed,
    )


def _way_out(current: State, states: frozenset[State], base: str) -> str:
    if current in state.ENDED:
        return f"The program has ended. Read GET {base}/output, or create a new session."
    if current is State.CREATED:
        return f"Start a program first with POST {base}/launch."
    if current is State.LAUNCHING:
        return f"Wait until it runs: GET {base}/events?timeout=30."
    if current is State.RUNNING and State.PAUSED in states:
        return (
            f"Call POST {base}/pause first, or wait for a breakpoint: GET {base}/events?timeout=30."
        )
    if State.CREATED in states:
        return f"A session debugs one program; create another with POST {API_PREFIX}/sessions."
    return f"Resume it with POST {base}/continue."


def require_one_timeout(minutes: object, seconds: object, absent: object) -> None:
    """`timeout_minutes` and `idle_timeout` are one setting in two units."""
    if minutes is absent or seconds is absent:
        return
    raise RelayError(
        Code.INVALID_REQUEST,
        "timeout_minutes and idle_timeout say the same in minutes and seconds",
        "Send one of them.",
        errors=[
            {"field": name, "message": "give one of the two", "value": None}
            for name in ("timeout_minutes", "idle_timeout")
        ],
    )


def refusal_of(raw: bytes) -> RelayError:
    """The error that a worker has sent, to be raised here."""
    body = msgspec.json.decode(raw)
    details = dict(body["details"])
    suggestion = details.pop("suggestion", None)
    return RelayError(Code(body["code"]), body["message"], suggestion, **details)


def no_such_session(session_id: str, known: list[str]) -> RelayError:
    shown = ", ".join(known[:10]) or "none"
    return RelayError(
        Code.SESSION_NOT_FOUND,
        f"Session with ID '{session_id[:100]}' not found",
        f"Use GET {API_PREFIX}/sessions to list the sessions; open now: {shown}.",
        session_id=session_id[:100],
        sessions=known[:10],
    )


def deleted_meanwhile(session_id: str) -> RelayError:
    return RelayError(
        Code.SESSION_NOT_FOUND,
        f"Session {session_id} was deleted meanwhile",
        f"GET {API_PREFIX}/sessions lists those there are.",
        session_id=session_id,
    )
