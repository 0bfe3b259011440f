"""Operations on sessions, profiles and processes that the supervisor answers.

They answer from mirrors of the workers' states; few of them wait for a worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from msgspec import Struct

from debug_relay.protocol.models import breakpoints, relay, sessions
from debug_relay.protocol.models.creation import CreateSession
from debug_relay.protocol.models.export_import import CloneSession, ImportSession
from debug_relay.protocol.models.fields import TEXT_BOUNDS, SessionParams
from debug_relay.protocol.models.run import Run
from debug_relay.protocol.scopes import RUNS_CODE
from debug_relay.protocol.wire.frames import Caller
from debug_relay.supervisor.operations import export_import
from debug_relay.supervisor.operations.answers import Handler
from debug_relay.supervisor.operations.create_and_start import create_and_start
from debug_relay.supervisor.operations.run import Runs
from debug_relay.supervisor.operations.worker_calls import FORMAT, WorkerCalls
from debug_relay.supervisor.processes.listing import Processes
from debug_relay.supervisor.sessions.mirror import has_label
from debug_relay.supervisor.sessions.registry import Registry
from debug_relay.supervisor.storage.breakpoint_profiles import Profiles


class SessionHandlers:
    def __init__(self, registry: Registry, processes: Processes, worker_calls: WorkerCalls) -> None:
        self._registry = registry
        self._processes = processes
        self._worker_calls = worker_calls
        self._runs = Runs(registry, worker_calls)
        self._profiles = Profiles(registry.directories.profiles)

    def table(self) -> Mapping[str, Handler]:
        return {
            "list-processes": self._list_processes,
            "get-process": self._get_process,
            "process-stacks": self._process_stacks,
            "run": self._run,
            "create-session": self._create,
            "list-sessions": self._list,
            "get-session": self._get,
            "session-status": self._status,
            "delete-session": self._delete,
            "ping": self._ping,
            "get-ping": self._ping,
            "export-session": self._export,
            "import-session": self._import,
            "clone-session": self._clone,
            "list-profiles": self._list_profiles,
            "get-profile": self._get_profile,
            "put-profile": self._put_profile,
            "delete-profile": self._delete_profile,
            "apply-profile": self._apply_profile,
        }

    async def _shown(
        self, params: SessionParams, with_token: bool = False
    ) -> sessions.SessionState:
        session = self._registry.used(params.session_id)
        await session.refresh()
        return session.present(with_token)

    async def _list_processes(self, params: relay.ListProcesses, caller: Caller) -> Struct:
        return await self._processes.listed(params)

    async def _get_process(self, params: relay.OneProcess, caller: Caller) -> Struct:
        return await self._processes.one(params.pid)

    async def _process_stacks(self, params: relay.ReadStacks, caller: Caller) -> Struct:
        return await self._processes.stacks(params.pid, params.locals)

    async def _run(self, params: Run, caller: Caller) -> Struct:
        return await self._runs.run(params, caller)

    async def _create(self, params: CreateSession, caller: Caller) -> Struct:
        if params.mode is not None and params.snapshot in (False, True) and FORMAT.get() != "json":
            params.snapshot = TEXT_BOUNDS
        return await create_and_start(self._registry, self._worker_calls, params, caller)

    async def _list(self, params: sessions.ListSessions, caller: Caller) -> Struct:
        shown = [session.present() for session in reversed(self._registry.sessions.values())]
        shown = [one for one in shown if params.status in (None, one.status)]
        shown = [one for one in shown if has_label(one, params.label)]
        page = shown[params.offset : params.offset + params.limit]
        return sessions.SessionList(
            items=[_item(one) for one in page],
            total=len(shown),
            offset=params.offset,
            limit=params.limit,
            has_more=params.offset + len(page) < len(shown),
        )

    async def _get(self, params: SessionParams, caller: Caller) -> Struct:
        return await self._shown(params, with_token=RUNS_CODE in caller.scopes)

    async def _status(self, params: SessionParams, caller: Caller) -> Struct:
        shown = await self._shown(params)
        return sessions.SessionStatus(
            **{name: getattr(shown, name) for name in sessions.SessionStatus.__struct_fields__}
        )

    async def _ping(self, params: SessionParams, caller: Caller) -> Struct:
        shown = await self._shown(params)
        return sessions.Pong(
            session_id=shown.session_id,
            status=shown.status,
            expires_at=shown.expires_at,
            warning=shown.warning,
        )

    async def _delete(self, params: sessions.DeleteSession, caller: Caller) -> Struct:
        session = self._registry.get(params.session_id)
        return await self._registry.delete(session, params.terminate_debuggee, params.force, caller)

    # -- blueprints of sessions, and breakpoints under a name

    async def _export(self, params: SessionParams, caller: Caller) -> Struct:
        blueprint = await self._registry.blueprint(self._registry.used(params.session_id))
        return await asyncio.to_thread(export_import.export, blueprint)

    async def _import(self, params: ImportSession, caller: Caller) -> Struct:
        blueprint = export_import.read_import(params, self._registry.settings)
        return (await self._registry.create_from_blueprint(blueprint, caller)).present()

    async def _clone(self, params: CloneSession, caller: Caller) -> Struct:
        # The blueprint comes from the worker's memory: it has secrets that no file has.
        blueprint = await self._registry.blueprint(self._registry.used(params.session_id))
        clone = export_import.clone(blueprint, params.name, params.labels)
        return (await self._registry.create_from_blueprint(clone, caller)).present()

    async def _list_profiles(self, params: breakpoints.ListProfiles, caller: Caller) -> Struct:
        return await self._profiles.listed(params.offset, params.limit)

    async def _get_profile(self, params: breakpoints.Profile, caller: Caller) -> Struct:
        return await self._profiles.shown(params.name)

    async def _put_profile(self, params: breakpoints.PutProfile, caller: Caller) -> Struct:
        return await self._profiles.put(params.name, params.breakpoints)

    async def _delete_profile(self, params: breakpoints.Profile, caller: Caller) -> Struct:
        return await self._profiles.delete(params.name)

    async def _apply_profile(self, params: breakpoints.ApplyProfile, caller: Caller) -> Struct:
        session = self._registry.used(params.session_id)
        specs = await self._profiles.specs(params.name)
        if not specs:
            return breakpoints.BreakpointsSet(breakpoints=[])
        batch = breakpoints.SetBreakpoints(session_id=session.id, breakpoints=specs)
        return await self._worker_calls.ask(
            session, "set-breakpoints", batch, caller, breakpoints.BreakpointsSet
        )


def _item(shown: sessions.SessionState) -> sessions.SessionItem:
    program = shown.program
    return sessions.SessionItem(
        session_id=shown.session_id,
        name=shown.name,
        status=shown.status,
        stop_reason=shown.stop_reason,
        created_at=shown.created_at,
        expires_at=shown.expires_at,
        program=program.target if program else None,
        labels=shown.config.labels,
        created_by=shown.created_by,
        warning=shown.warning,
        current_location=shown.current_location,
        exit_code=shown.exit_code,
        lease=shown.lease,
    )
