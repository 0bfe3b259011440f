"""What a worker is born with: for a session that is asked for, imported, cloned or comes back."""

from __future__ import annotations

import os

import msgspec

from debug_relay.protocol.models.limits import with_changes
from debug_relay.protocol.models.sessions import (
    Blueprint,
    CreateSession,
    SessionConfig,
    WorkerParams,
)
from debug_relay.protocol.wire.envelope import timestamp
from debug_relay.supervisor.config.settings import Settings
from debug_relay.supervisor.storage.directories import Directories
from debug_relay.supervisor.workers import debugger_fingerprint


class Births:
    def __init__(self, directories: Directories, debugpy_dir: str) -> None:
        self._directories = directories
        self._debugpy_dir = debugpy_dir
        self._debugger = debugger_fingerprint.fingerprint(debugpy_dir)
        debugger_fingerprint.forget_others(directories.bytecode, self._debugger)

    def asked(
        self, id: str, asked: CreateSession, created_by: str, settings: Settings
    ) -> WorkerParams:
        """Of `POST /sessions`."""
        minutes = asked.timeout_minutes
        idle = asked.idle_timeout if minutes is None else minutes * 60.0
        idle = settings.sessions.idle_timeout if idle is None else idle
        config = SessionConfig(
            project_root=absolute(asked.project_root),
            python_path=asked.python_path or _python_of(asked.venv),
            venv=None if asked.python_path else asked.venv,
            stop_on_entry=asked.stop_on_entry,
            stop_all=asked.stop_all,
            just_my_code=asked.just_my_code,
            timeout_minutes=int(idle / 60) if idle % 60 == 0 else idle / 60,
            max_lifetime=_chosen(asked.max_lifetime, settings.sessions.max_lifetime),
            pause_budget=_chosen(asked.pause_budget, settings.sessions.pause_budget),
            labels=dict(asked.labels),
            limits=with_changes(settings.limits, asked.limits),
        )
        params = self._params(id, settings, asked.name or usual_name(id), config, created_by)
        params.restore_breakpoints = asked.restore_breakpoints
        return params

    def drawn(
        self, id: str, blueprint: Blueprint, created_by: str | None, settings: Settings
    ) -> WorkerParams:
        """By the blueprint of another session, or of itself at an earlier time."""
        config = blueprint.config
        params = self._params(id, settings, blueprint.name or usual_name(id), config, created_by)
        params.blueprint = blueprint
        return params

    def _params(
        self,
        id: str,
        settings: Settings,
        name: str,
        config: SessionConfig,
        created_by: str | None,
    ) -> WorkerParams:
        return WorkerParams(
            session_id=id,
            session_dir=str(self._directories.run_dir / id),
            record_dir=str(self._directories.sessions / id),
            breakpoints_dir=str(self._directories.breakpoints),
            name=name,
            created_at=timestamp(),
            created_by=created_by,
            config=config,
            debugpy_dir=self._debugpy_dir,
            bytecode=str(self._directories.bytecode / self._debugger),
            interpreters_dir=str(self._directories.interpreters),
            output_max_bytes=settings.output.max_bytes,
            events_max=settings.output.max_events,
            request_timeout=settings.dap.request_timeout,
            launch_timeout=settings.dap.launch_timeout,
            evaluate_timeout=settings.dap.evaluate_timeout,
            orphan_timeout=settings.sessions.orphan_timeout,
            python_default=settings.python.default_path,
        )


def for_another(blueprint: Blueprint, name: str) -> Blueprint:
    """For a session that begins with it: ids of breakpoints count from 1 again."""
    return msgspec.structs.replace(
        blueprint,
        name=name,
        next_breakpoint=1,
        breakpoints=[
            {field: value for field, value in kept.items() if field != "id"}
            for kept in blueprint.breakpoints
        ],
    )


def usual_name(id: str) -> str:
    return f"session-{id.removeprefix('sess_')}"


def absolute(path: str | None) -> str | None:
    return os.path.normpath(os.path.expanduser(path)) if path else None


def _python_of(venv: str | None) -> str | None:
    return os.path.join(os.path.expanduser(venv), "bin", "python") if venv else None


def _chosen(value: float | None, default: float) -> float:
    return default if value is None else value
