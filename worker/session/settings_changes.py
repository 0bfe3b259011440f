"""Changes a session's settings while it lives."""

from __future__ import annotations

import asyncio
import os
from typing import Final

import msgspec
from msgspec import UNSET

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.sessions import PatchSession
from debug_relay.protocol.refusals import require_project
from debug_relay.worker.breakpoints.project_breakpoints import SavedBreakpoints
from debug_relay.worker.breakpoints.session_breakpoints import Breakpoints
from debug_relay.worker.debuggee.handshake import Handshake
from debug_relay.worker.debugger.hub import Hub
from debug_relay.worker.debugger.program_changes import ProgramChanges
from debug_relay.worker.interpreter.resolve import choose
from debug_relay.worker.limits.watch import LimitWatch
from debug_relay.worker.session.blueprint import Blueprints
from debug_relay.worker.state.publication import Publication
from debug_relay.worker.state.settings import Settings

# These fields are stored as they are sent, and hold from the next launch or stop on.
_PLAIN: Final = (
    "timeout_minutes", "max_lifetime", "pause_budget", "labels", "python_path", "stop_on_entry",
    "just_my_code", "stop_all",
)  # fmt: skip


class SettingsChanges:
    """Applies a PATCH of the session: first the settings, then what follows from them."""

    def __init__(
        self,
        settings: Settings,
        publication: Publication,
        hub: Hub,
        changes: ProgramChanges,
        breakpoints: Breakpoints,
        saved: SavedBreakpoints,
        blueprints: Blueprints,
        limits: LimitWatch,
        handshake: Handshake,
    ) -> None:
        self._settings = settings
        self._publication = publication
        self._hub = hub
        self._changes = changes
        self._breakpoints = breakpoints
        self._saved = saved
        self._blueprints = blueprints
        self._limits = limits
        self._handshake = handshake

    def apply(self, params: PatchSession) -> None:
        """Apply all fields or, if one is refused, none."""
        if params.stop_all is False:
            self._require_probe()
        if params.restore_breakpoints is True and params.project_root is UNSET:
            require_project(self._settings.config.project_root)
        changed = {
            name: getattr(params, name) for name in _PLAIN if getattr(params, name) is not UNSET
        }
        if params.project_root is not UNSET:
            changed["project_root"] = os.path.normpath(os.path.expanduser(params.project_root))
        if params.python_path is not UNSET:
            changed["venv"] = None
        elif params.venv is not UNSET:
            changed["python_path"] = os.path.join(os.path.expanduser(params.venv), "bin", "python")
            changed["venv"] = params.venv
        if params.idle_timeout is not UNSET:
            changed["timeout_minutes"] = params.idle_timeout / 60
        self._settings.config = msgspec.structs.replace(self._settings.config, **changed)
        if params.limits is not UNSET:
            self._limits.change(params.limits)
        if params.name is not UNSET:
            self._settings.name = params.name
        self._breakpoints.verifier.forget_interpreter()
        self._publication.changed()
        self._publication.save()

    def _require_probe(self) -> None:
        """Refuse `stop_all: false` without the probe: pydevd alone always stops all threads."""
        if any(not server.engine.can.move_single_threads for server in self._hub.servers):
            raise stop_all_needs_probe()

    async def carry_out(self, params: PatchSession) -> None:
        """Do what follows from a change that was applied."""
        if params.stop_all is not UNSET:
            await self._changes.make(self._handshake.send_stop_all)
        await self._change_breakpoints(params)
        await self.find_interpreter()

    async def find_interpreter(self) -> None:
        """Find the interpreter that the settings mean now, and show it to callers."""
        config = self._settings.config
        found: str | None
        try:
            choice = await asyncio.to_thread(
                choose,
                None if config.venv else config.python_path,
                config.venv,
                config.project_root,
                self._settings.params.python_default,
            )
            found = choice.path
        except RelayError:
            found = config.python_path  # the launch will say what is wrong with it
        # Otherwise another PATCH has changed the settings meanwhile, and looks for itself.
        if config is self._settings.config:
            self._settings.interpreter = found
            self._publication.changed()

    async def _change_breakpoints(self, params: PatchSession) -> None:
        """Suspend the breakpoints or not; restore the project's, or save them for a new project."""
        if params.breakpoints_suspended is not UNSET:
            await self._breakpoints.suspend(params.breakpoints_suspended)
        if params.restore_breakpoints is True:
            await self._blueprints.restore_breakpoints()
        elif params.project_root is not UNSET:
            await self._saved.save()


def stop_all_needs_probe() -> RelayError:
    return RelayError(
        Code.ATTACH_UNSUPPORTED,
        "This session has no probe (attached by port): a stop always stops all threads",
        "PATCH the session with stop_all true; programs that the relay launches, or attaches to "
        "by pid, can stop one thread alone.",
        field="stop_all",
    )
