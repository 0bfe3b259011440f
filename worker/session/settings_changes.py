"""What may be changed of a session while it lives."""

from __future__ import annotations

import os
from typing import Final

import msgspec
from msgspec import UNSET

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.sessions import PatchSession
from debug_relay.protocol.refusals import require_project
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.session import blueprint as blueprints
from debug_relay.worker.session.session import Session

# What holds from the next launch or stop on, as it is sent.
_PLAIN: Final = (
    "timeout_minutes", "max_lifetime", "pause_budget", "labels", "python_path", "stop_on_entry",
    "just_my_code", "stop_all",
)  # fmt: skip


def apply(session: Session, params: PatchSession) -> None:
    """All of it or, when a field is refused, nothing."""
    if params.stop_all is False:
        require_own_part(session)
    if params.restore_breakpoints is True and params.project_root is UNSET:
        require_project(session.params.config.project_root)
    changed = {name: getattr(params, name) for name in _PLAIN if getattr(params, name) is not UNSET}
    if params.project_root is not UNSET:
        changed["project_root"] = os.path.normpath(os.path.expanduser(params.project_root))
    if params.python_path is not UNSET:
        changed["venv"] = None
    elif params.venv is not UNSET:
        changed["python_path"] = os.path.join(os.path.expanduser(params.venv), "bin", "python")
        changed["venv"] = params.venv
    if params.idle_timeout is not UNSET:
        changed["timeout_minutes"] = params.idle_timeout / 60
    session.params.config = msgspec.structs.replace(session.params.config, **changed)
    if params.limits is not UNSET:
        session.limits.change(params.limits)
    if params.name is not UNSET:
        session.name = params.name
    session.breakpoints.forget_interpreter()
    session.changed()
    session.record.save()


def require_own_part(session: Session) -> None:
    """A stock adapter before the program could not do it."""
    if any(not server.has_probe for server in session.hub.servers):
        raise stop_all_needs_probe()


def stop_all_needs_probe() -> RelayError:
    return RelayError(
        Code.ATTACH_UNSUPPORTED,
        "The program runs without the relay's own part: a stop is one of all its threads",
        "PATCH the session with stop_all true; programs that the relay launches, or attaches to "
        "by pid, can stop one thread alone.",
        field="stop_all",
    )


async def send_stop_all(session: Session, server: DebugServer) -> None:
    """Whether the stop of one thread halts the others; from the next stop on."""
    if server.has_probe:
        await session.asking.ask(server, "stop_all", on=session.params.config.stop_all)


async def bring_breakpoints(session: Session, params: PatchSession) -> None:
    """To another project, or those that are saved for it; suspended ones, or not any more."""
    if params.breakpoints_suspended is not UNSET:
        await session.breakpoints.suspend(params.breakpoints_suspended)
    if params.restore_breakpoints is True:
        await blueprints.restore_breakpoints(session)
    elif params.project_root is not UNSET:
        await session.saved.save()
