"""What may be changed of a session while it lives."""

from __future__ import annotations

import os
from typing import Final

import msgspec
from msgspec import UNSET

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.refusals import require_one_timeout
from debug_relay.protocol.sessions import PatchSession
from debug_relay.worker.session import Session

_LATER: Final = ("limits", "breakpoints_suspended")
# What holds from the next launch or stop on, as it is sent.
_PLAIN: Final = (
    "timeout_minutes", "max_lifetime", "pause_budget", "labels", "python_path", "stop_on_entry",
    "just_my_code",
)  # fmt: skip


def apply(session: Session, params: PatchSession) -> None:
    """All of it or, when a field is refused, nothing."""
    _refuse_later_fields(params)
    require_one_timeout(params.timeout_minutes, params.idle_timeout, UNSET)
    changed = {name: getattr(params, name) for name in _PLAIN if getattr(params, name) is not UNSET}
    if params.project_root is not UNSET:
        changed["project_root"] = os.path.abspath(os.path.expanduser(params.project_root))
    if params.venv is not UNSET:
        changed.setdefault(
            "python_path", os.path.join(os.path.expanduser(params.venv), "bin", "python")
        )
    if params.idle_timeout is not UNSET:
        changed["timeout_minutes"] = params.idle_timeout / 60
    session.params.config = msgspec.structs.replace(session.params.config, **changed)
    session.idle.idle_timeout = session.params.config.timeout_minutes * 60
    if params.name is not UNSET:
        session.name = params.name
    session.breakpoints.forget_interpreter()
    session.changed()
    session.record.save()


def _refuse_later_fields(params: PatchSession) -> None:
    later = {name: getattr(params, name) is not UNSET for name in _LATER}
    # Their defaults are what is so already.
    later["stop_all"] = params.stop_all is False
    later["restore_breakpoints"] = params.restore_breakpoints is True
    for field, wanted in later.items():
        if wanted:
            raise RelayError(
                Code.NOT_IMPLEMENTED,
                f"Changing {field} is not there yet in this version",
                f"Leave {field} out.",
                field=field,
            )
