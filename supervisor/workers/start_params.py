"""The parameters that a worker starts with, for a new, imported, cloned or restored session."""

from __future__ import annotations

import os

import msgspec

from debug_relay.protocol.models.creation import CreateSession
from debug_relay.protocol.models.limits import with_changes
from debug_relay.protocol.models.sessions import Blueprint, SessionConfig
from debug_relay.protocol.models.worker_messages import WorkerParams
from debug_relay.protocol.wire.envelope import timestamp
from debug_relay.supervisor.config.settings import Settings
from debug_relay.supervisor.storage.directories import Directories
from debug_relay.supervisor.workers import debugger_fingerprint


class StartParams:
    def __init__(self, directories: Directories, debugpy_dir: str) -> None:
        self._directories = directories
        self._debugpy_dir = debugpy_dir
        self._debugger = debugger_fingerprint.fingerprint(debugpy_dir)
        debugger_fingerprint.forget_others(directories.bytecode, self._debugger)

    def for_request(
        self, id: str, request: CreateSession, created_by: str, settings: Settings
    ) -> WorkerParams:
        """The parameters of a session that `POST /sessions` creates."""
        minutes = request.timeout_minutes
        idle = request.idle_timeout if minutes is None else minutes * 60.0
        idle = settings.sessions.idle_timeout if idle is None else idle
        config = SessionConfig(
            project_root=absolute(request.project_root),
            python_path=request.python_path or _python_of(request.venv),
            venv=None if request.python_path else request.venv,
            stop_on_entry=request.stop_on_entry,
            stop_all=request.stop_all,
            just_my_code=request.just_my_code,
            timeout_minutes=int(idle / 60) if idle % 60 == 0 else idle / 60,
            max_lifetime=_chosen(request.max_lifetime, settings.sessions.max_lifetime),
            pause_budget=_chosen(request.pause_budget, settings.sessions.pause_budget),
            labels=dict(request.labels),
            limits=with_changes(settings.limits, request.limits),
        )
        params = self._params(id, settings, request.name or usual_name(id), config, created_by)
        params.restore_breakpoints = request.restore_breakpoints
        return params

    def for_blueprint(
        self, id: str, blueprint: Blueprint, created_by: str | None, settings: Settings
    ) -> WorkerParams:
        """The parameters of a session that is made again from its own or another's blueprint."""
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
    """The blueprint for a new session, in which ids of breakpoints count from 1 again."""
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
