"""`POST /sessions` with `mode`: the launch or attach that follows in the same call."""

from __future__ import annotations

import msgspec

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.program import Attach, Launch
from debug_relay.protocol.sessions import CreateSession

_LAUNCH = (
    "script", "module", "code", "args", "cwd", "env", "stop_on_exception", "python_args",
    "stdin_inputs", "pythonpath",
)  # fmt: skip
_ATTACH = ("pid", "host", "port", "stop_on_exception", "connect_timeout", "path_mappings")


def first_program(params: CreateSession) -> Launch | Attach | None:
    """What is to be started; refused before anything is made when fields and mode do not fit."""
    given = {name for name in {*_LAUNCH, *_ATTACH} if _is_given(params, name)}
    allowed = {"launch": set(_LAUNCH), "attach": set(_ATTACH)}.get(params.mode or "", set())
    strange = sorted(given - allowed)
    if strange:
        raise _misfit(params.mode, strange)
    if params.mode is None:
        return None
    fields = {name: getattr(params, name) for name in given}
    if params.wait is not None:
        fields["wait"] = params.wait
    # The id is filled in when there is one.
    kind = Launch if params.mode == "launch" else Attach
    return kind(session_id="", **fields)


def _is_given(params: CreateSession, name: str) -> bool:
    return bool(getattr(params, name) != getattr(_DEFAULTS, name))


_DEFAULTS = msgspec.convert({}, CreateSession)


def _misfit(mode: str | None, strange: list[str]) -> RelayError:
    reason = f"has no place with mode {mode}" if mode else "needs mode launch or attach"
    return RelayError(
        Code.INVALID_REQUEST,
        f"Request validation failed: {', '.join(strange)} {reason}",
        'Send "mode": "launch" with script or module, or "mode": "attach" with port.',
        errors=[{"field": name, "message": reason, "value": None} for name in strange],
    )
