"""`POST /sessions` with `mode`: the launch or attach that follows in the same call."""

from __future__ import annotations

from debug_relay.protocol.meaning import OF_MODE
from debug_relay.protocol.program import Attach, Launch
from debug_relay.protocol.sessions import CreateSession


def first_program(params: CreateSession) -> Launch | Attach | None:
    """What is to be started; that fields and mode fit has been seen."""
    if params.mode is None:
        return None
    fields = {name: getattr(params, name) for name in (*OF_MODE[params.mode], "wait")}
    given = {name: value for name, value in fields.items() if value not in (None, [], {})}
    # The id is filled in when there is one.
    kind = Launch if params.mode == "launch" else Attach
    return kind(session_id="", **given)
