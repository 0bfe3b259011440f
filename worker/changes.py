"""What may be changed of a session while it lives."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.sessions import PatchSession
from debug_relay.worker.session import Session

_LATER = ("limits", "breakpoints_suspended")


def apply(session: Session, params: PatchSession) -> None:
    """All of it or, when a field is refused, nothing."""
    for field in _LATER:
        if getattr(params, field) is not UNSET:
            raise RelayError(
                Code.NOT_IMPLEMENTED,
                f"Changing {field} is not there yet in this version",
                f"Leave {field} out.",
                field=field,
            )
    if params.timeout_minutes is not UNSET and params.idle_timeout is not UNSET:
        raise RelayError(
            Code.INVALID_REQUEST,
            "timeout_minutes and idle_timeout say the same in minutes and seconds",
            "Send one of them.",
            errors=[
                {"field": name, "message": "give one of the two", "value": None}
                for name in ("timeout_minutes", "idle_timeout")
            ],
        )
    config = session.params.config
    changed = {
        name: value
        for name, value in (
            ("timeout_minutes", params.timeout_minutes),
            ("max_lifetime", params.max_lifetime),
            ("pause_budget", params.pause_budget),
            ("labels", params.labels),
        )
        if value is not UNSET
    }
    if params.idle_timeout is not UNSET:
        changed["timeout_minutes"] = params.idle_timeout / 60
    session.params.config = msgspec.structs.replace(config, **changed)
    session.idle.idle_timeout = session.params.config.timeout_minutes * 60
    if params.name is not UNSET:
        session.name = params.name
    session.changed()
    session.record.save()
