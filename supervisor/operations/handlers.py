"""One handler for each operation that the supervisor answers itself, by the operation's name.

They answer from mirrors of the workers' states, from the rings on disk, or about the relay as a
whole; few of them wait for a worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from http import HTTPStatus
from typing import Any, Final

from msgspec import Struct

from debug_relay.protocol.docs import reference_page
from debug_relay.protocol.docs.llms import first_calls, index_text, llms_text
from debug_relay.protocol.docs.openapi import openapi
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models import breakpoints, output_events, relay, sessions, stop_report
from debug_relay.protocol.models.creation import CreateSession
from debug_relay.protocol.models.fields import TEXT_BOUNDS, Empty, SessionParams
from debug_relay.protocol.models.run import Run
from debug_relay.protocol.operations import OPERATIONS, SAVE_STOP_REPORTS, Operation
from debug_relay.protocol.scopes import READS_OUTPUT, RUNS_CODE
from debug_relay.protocol.version import API_PREFIX, API_VERSION, VERSION
from debug_relay.protocol.wire.envelope import encode_json, timestamp_of
from debug_relay.protocol.wire.frames import Caller
from debug_relay.supervisor.access.tickets import (
    PROTOCOL,
    TICKET_PREFIX,
    TICKET_SECONDS,
    Tickets,
)
from debug_relay.supervisor.config.runtime import RuntimeConfig
from debug_relay.supervisor.operations import export_import, metrics
from debug_relay.supervisor.operations.create_and_start import create_and_start
from debug_relay.supervisor.operations.run import Runs
from debug_relay.supervisor.operations.several_sessions import SeveralSessions
from debug_relay.supervisor.operations.worker_calls import FORMAT, WorkerCalls
from debug_relay.supervisor.output import history
from debug_relay.supervisor.processes.listing import Processes
from debug_relay.supervisor.sessions.mirror import Session
from debug_relay.supervisor.sessions.registry import Registry
from debug_relay.supervisor.storage.breakpoint_profiles import Profiles
from debug_relay.supervisor.storage.disk_health import DiskWatch

_JSON_TYPE: Final = "application/json; charset=utf-8"
_NAME: Final = "OpenCode Debug Relay Server"
_LINKED: Final = ("health", "info", "list-sessions", "openapi", "docs", "llms", "metrics", "mcp")
_MAX_WAITERS: Final = 2000  # Requests that wait for events, in all sessions together.
# A worker writes the stop reports that it holds in memory within this time.
_WRITE_SECONDS: Final = 5.0
_MAX_WAITERS_A_SESSION: Final = 200  # Requests that wait for events of one session.

_SEVERAL: Final = "several sessions"  # the name under which their waiters are counted

Handler = Callable[[Any, Caller], Awaitable[Struct]]


# The id of the request that is being answered: it is part of replies that are bounded in bytes.
REQUEST_ID: Final[ContextVar[str]] = ContextVar("request_id", default="")


class Document(Struct):
    """A reply without the envelope."""

    body: bytes
    content_type: str
    is_json: bool = False
    text: str | None = None  # its form for readers, if the body is not made for them
    headers: dict[str, str] = {}


class Answer(Struct):
    """A result with a status that differs from its row's."""

    result: Struct
    status: int


class RelayFacts(Struct):
    """Facts about the relay as a whole, for handlers."""

    url: str
    started: float  # monotonic
    debugpy_version: str | None
    stop: Callable[[bool | None], bool]  # takes and returns whether sessions are kept
    disk: DiskWatch


class Handlers:
    def __init__(
        self,
        registry: Registry,
        processes: Processes,
        worker_calls: WorkerCalls,
        facts: RelayFacts,
        config: RuntimeConfig,
        counted: metrics.Metrics,
        tickets: Tickets,
    ) -> None:
        self._registry = registry
        self._metrics = counted
        self._processes = processes
        self._worker_calls = worker_calls
        self._facts = facts
        self._runs = Runs(registry, worker_calls)
        self._config = config
        self._tickets = tickets
        self._profiles = Profiles(registry.directories.profiles)
        self._openapi: bytes | None = None
        self._docs_page: bytes | None = None
        self._several = SeveralSessions(registry)
        self._waiting: Counter[str] = Counter()
        self._table: dict[str, Handler] = {
            "index": self._index,
            "ticket": self._ticket,
            "health": self._health,
            "info": self._info,
            "get-config": self._get_config,
            "patch-config": self._patch_config,
            "shutdown": self._shutdown,
            "openapi": self._openapi_document,
            "llms": self._llms,
            "docs": self._docs,
            "metrics": self._metrics_page,
            "list-processes": self._list_processes,
            "get-process": self._get_process,
            "process-stacks": self._process_stacks,
            "create-session": self._create,
            "list-sessions": self._list,
            "get-session": self._get,
            "session-status": self._status,
            "delete-session": self._delete,
            "ping": self._ping,
            "get-ping": self._ping,
            "output": self._output,
            "events": self._events,
            "all-events": self._all_events,
            "history": self._history,
            "run": self._run,
            "export-session": self._export,
            "import-session": self._import,
            "clone-session": self._clone,
            "list-profiles": self._list_profiles,
            "get-profile": self._get_profile,
            "put-profile": self._put_profile,
            "delete-profile": self._delete_profile,
            "apply-profile": self._apply_profile,
        }
        wanted = {
            row.name for row in OPERATIONS.values() if row.side == "supervisor" and not row.streams
        }
        if wanted != self._table.keys():
            differ = sorted(wanted ^ self._table.keys())
            raise RuntimeError(f"operations and handlers differ: {differ}")

    def of(self, operation: Operation) -> Handler | None:
        """The handler of an operation; None if the worker answers it."""
        return self._table.get(operation.name)

    async def _shown(
        self, params: SessionParams, with_token: bool = False
    ) -> sessions.SessionState:
        session = self._session(params)
        await session.refresh()
        return session.present(with_token)

    def _session(self, params: SessionParams) -> Session:
        session = self._registry.get(params.session_id)
        session.touch()
        return session

    # -- the relay

    async def _index(self, params: Empty, caller: Caller) -> Struct:
        url = self._facts.url
        linked = (OPERATIONS[name] for name in _LINKED)
        links = {row.name: url + row.path for row in linked}
        index = {
            "name": _NAME,
            "version": VERSION,
            "links": links,
            "try": first_calls(url),
        }
        body = encode_json(index) + b"\n"
        return Document(body, _JSON_TYPE, is_json=True, text=index_text(VERSION, url))

    async def _llms(self, params: Empty, caller: Caller) -> Struct:
        body = llms_text(self._facts.url).encode()
        return Document(body, "text/plain; charset=utf-8")

    async def _ticket(self, params: Empty, caller: Caller) -> Struct:
        ticket = self._tickets.issue(caller)
        return relay.Ticket(
            ticket=ticket,
            protocols=[PROTOCOL, TICKET_PREFIX + ticket],
            expires_at=timestamp_of(time.time() + TICKET_SECONDS),
        )

    async def _health(self, params: Empty, caller: Caller) -> Struct:
        warnings = []
        is_well = self._registry.directories.are_held()
        if not is_well:
            warnings.append("the data directory's lock was lost: another relay may use it")
        if lacking := await self._registry.room.lacking():
            is_well = False
            warnings.append(f"no session can be started: {lacking}")
        if self._facts.debugpy_version is None:
            warnings.append("debugpy is not installed: no program can be debugged")
        warnings += self._facts.disk.warnings()
        health = relay.Health(
            status="healthy" if is_well else "unhealthy",
            version=VERSION,
            uptime_seconds=round(time.monotonic() - self._facts.started, 3),
            active_sessions=len(self._registry.counted()),
            debugpy_available=self._facts.debugpy_version is not None,
            warnings=warnings,
        )
        return health if is_well else Answer(health, HTTPStatus.SERVICE_UNAVAILABLE)

    async def _info(self, params: Empty, caller: Caller) -> Struct:
        return relay.Info(
            name=_NAME,
            version=VERSION,
            api_version=API_VERSION,
            python_version=platform.python_version(),
            debugpy_version=self._facts.debugpy_version,
            runs_as_root=os.geteuid() == 0,
            capabilities={
                "supports_conditional_breakpoints": True,
                "supports_hit_conditional_breakpoints": True,
                "supports_log_points": True,
                "supports_exception_breakpoints": True,
                "supports_function_breakpoints": True,
                "supports_evaluate": True,
                "supports_set_variable": True,
                "supports_restart": True,
                "supports_attach": True,
                "max_sessions": self._registry.settings.sessions.max_sessions,
            },
            endpoints=list(
                dict.fromkeys(API_PREFIX + row.path.rstrip("/") for row in OPERATIONS.values())
            ),
        )

    async def _get_config(self, params: Empty, caller: Caller) -> Struct:
        return self._config.shown()

    async def _patch_config(self, params: relay.PatchConfig, caller: Caller) -> Struct:
        return await self._config.patch(params)

    async def _shutdown(self, params: relay.Shutdown, caller: Caller) -> Struct:
        kept = self._facts.stop(params.keep_sessions)
        return relay.ShuttingDown(
            stopping=True,
            keep_sessions=kept,
            sessions=len(self._registry.counted()),
        )

    async def _openapi_document(self, params: Empty, caller: Caller) -> Struct:
        if self._openapi is None:
            self._openapi = encode_json(openapi(VERSION, self._facts.url)) + b"\n"
        return Document(self._openapi, _JSON_TYPE, is_json=True)

    async def _docs(self, params: Empty, caller: Caller) -> Struct:
        if self._docs_page is None:
            self._docs_page = await asyncio.to_thread(reference_page.html_page, self._facts.url)
        kind, headers = reference_page.CONTENT_TYPE, reference_page.HEADERS
        return Document(self._docs_page, kind, headers=headers)

    async def _metrics_page(self, params: Empty, caller: Caller) -> Struct:
        page = await asyncio.to_thread(self._metrics.text, dict(self._registry.sessions))
        return Document(page, metrics.CONTENT_TYPE)

    async def _list_processes(self, params: relay.ListProcesses, caller: Caller) -> Struct:
        return await self._processes.listed(params)

    async def _get_process(self, params: relay.OneProcess, caller: Caller) -> Struct:
        return await self._processes.one(params.pid)

    async def _process_stacks(self, params: relay.ReadStacks, caller: Caller) -> Struct:
        return await self._processes.stacks(params.pid, params.locals)

    async def _run(self, params: Run, caller: Caller) -> Struct:
        return await self._runs.run(params, caller)

    # -- sessions

    async def _create(self, params: CreateSession, caller: Caller) -> Struct:
        if params.mode is not None and params.snapshot in (False, True) and FORMAT.get() != "json":
            params.snapshot = TEXT_BOUNDS
        return await create_and_start(self._registry, self._worker_calls, params, caller)

    async def _list(self, params: sessions.ListSessions, caller: Caller) -> Struct:
        shown = [session.present() for session in reversed(self._registry.sessions.values())]
        shown = [one for one in shown if params.status in (None, one.status)]
        if params.label is not None:
            key, _, value = params.label.partition("=")
            shown = [one for one in shown if one.config.labels.get(key) == value]
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
        blueprint = await self._registry.blueprint(self._session(params))
        return await asyncio.to_thread(export_import.export, blueprint)

    async def _import(self, params: sessions.ImportSession, caller: Caller) -> Struct:
        blueprint = export_import.read_import(params, self._registry.settings)
        return (await self._registry.create_from_blueprint(blueprint, caller)).present()

    async def _clone(self, params: sessions.CloneSession, caller: Caller) -> Struct:
        # The blueprint comes from the worker's memory: it has secrets that no file has.
        blueprint = await self._registry.blueprint(self._session(params))
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
        session = self._session(params)
        specs = await self._profiles.specs(params.name)
        if not specs:
            return breakpoints.BreakpointsSet(breakpoints=[])
        batch = breakpoints.SetBreakpoints(session_id=session.id, breakpoints=specs)
        return await self._worker_calls.ask(
            session, "set-breakpoints", batch, caller, breakpoints.BreakpointsSet
        )

    # -- output and events: read from the rings, past the worker

    async def _output(self, params: output_events.GetOutput, caller: Caller) -> Struct:
        session = self._session(params)
        cursor = params.cursor or params.since
        if params.tail is not None:
            return await asyncio.to_thread(
                session.output.last, cursor, params.tail, params.category
            )
        return session.output.page(cursor, params.limit, params.category)

    async def _events(self, params: output_events.GetEvents, caller: Caller) -> Struct:
        session = self._session(params)
        types = {name.strip() for name in params.types.split(",")} if params.types else None
        page = self._event_page(session, params.cursor, params, types)
        if page.events or not params.timeout:
            return page
        self._count_waiter(session.id)
        try:
            page = await self._awaited_events(session, page, params, types)
        finally:
            self._waiting[session.id] -= 1
            if not self._waiting[session.id]:
                del self._waiting[session.id]
        # A relay that is stopping still answers with the events that have come.
        if not (page.events and session.left_by_relay):
            session.require_there()
            self._registry.get(session.id)  # it may have expired
        page.session_status = session.state.status
        return page

    async def _all_events(self, params: output_events.GetAllEvents, caller: Caller) -> Struct:
        page = self._several.page(params)
        if page.events or not params.timeout:
            return page
        self._count_waiter(_SEVERAL)
        try:
            return await self._several.awaited(params, page)
        finally:
            self._waiting[_SEVERAL] -= 1

    async def _history(self, params: stop_report.History, caller: Caller) -> Struct:
        session = self._session(params)
        if session.child is not None:
            # The worker writes the report of the present stop into the file. If the worker hangs,
            # the file has the earlier reports.
            with contextlib.suppress(RelayError):
                await session.ask(SAVE_STOP_REPORTS, Empty(), Empty, _WRITE_SECONDS)
            session.require_there()
        return await asyncio.to_thread(
            history.page,
            session.folder / "stops.ring",
            params,
            REQUEST_ID.get(),
            READS_OUTPUT in caller.scopes,
        )

    async def _awaited_events(
        self,
        session: Session,
        page: output_events.EventPage,
        params: output_events.GetEvents,
        types: set[str] | None,
    ) -> output_events.EventPage:
        """The next page with events, or an empty page after the timeout."""
        deadline = time.monotonic() + params.timeout
        seen = session.events_end
        came_from = params.cursor
        while not page.events and (left := deadline - time.monotonic()) > 0:
            # Each page looks at a bounded number of events; wanted ones may come after many others.
            if page.has_more and page.next_cursor != came_from:
                await asyncio.sleep(0)
            elif not await session.wait_for_events(seen, left):
                break
            session.touch()
            seen, came_from, dropped = session.events_end, page.next_cursor, page.dropped
            page = self._event_page(session, came_from, params, types)
            page.dropped += dropped
        return page

    def _event_page(
        self,
        session: Session,
        cursor: str | None,
        params: output_events.GetEvents,
        types: set[str] | None,
    ) -> output_events.EventPage:
        # An event is shown only once the state that came with it is.
        return session.events.page(
            cursor, params.limit, types, session.state.status, session.events_end
        )

    def _count_waiter(self, id: str) -> None:
        of_session = self._waiting[id]
        if of_session >= _MAX_WAITERS_A_SESSION or self._waiting.total() >= _MAX_WAITERS:
            raise RelayError(
                Code.TOO_MANY_WAITERS,
                f"{of_session} requests wait for events of {id} already",
                "Poll without timeout, or close other long-polls.",
                waiting=of_session,
            )
        self._waiting[id] = of_session + 1


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
