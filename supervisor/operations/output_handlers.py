"""Reads of output, events and stop reports: from the rings on disk, past the worker."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Final

from msgspec import Struct

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models import output_events, stop_report
from debug_relay.protocol.models.fields import Empty
from debug_relay.protocol.operations import SAVE_STOP_REPORTS
from debug_relay.protocol.scopes import READS_OUTPUT
from debug_relay.protocol.wire.frames import Caller
from debug_relay.supervisor.operations.answers import Handler
from debug_relay.supervisor.operations.several_sessions import SeveralSessions
from debug_relay.supervisor.output import history
from debug_relay.supervisor.sessions.mirror import Session
from debug_relay.supervisor.sessions.registry import Registry

_MAX_WAITERS: Final = 2000  # Requests that wait for events, in all sessions together.
_MAX_WAITERS_A_CALLER: Final = 1000  # Of these, the requests of one caller.
_MAX_WAITERS_A_SESSION: Final = 200  # Requests that wait for events of one session.
# Requests of one caller that wait for events of one session, or of several together.
_MAX_WAITERS_A_PLACE: Final = 100
# A worker writes the stop reports that it holds in memory within this time.
_WRITE_SECONDS: Final = 5.0
_SEVERAL: Final = "several sessions"  # the name under which their waiters are counted

# The id of the request that is being answered: it is part of replies that are bounded in bytes.
REQUEST_ID: Final[ContextVar[str]] = ContextVar("request_id", default="")


class OutputHandlers:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._several = SeveralSessions(registry)
        # The keys are the session (or _SEVERAL), the caller's uid and the caller's name.
        self._waiting: Counter[tuple[str, int, str]] = Counter()

    def table(self) -> Mapping[str, Handler]:
        return {
            "output": self._output,
            "events": self._events,
            "all-events": self._all_events,
            "history": self._history,
        }

    async def _output(self, params: output_events.GetOutput, caller: Caller) -> Struct:
        session = self._registry.used(params.session_id)
        cursor = params.cursor or params.since
        if params.tail is not None:
            return await asyncio.to_thread(
                session.output.last, cursor, params.tail, params.category
            )
        return session.output.page(cursor, params.limit, params.category)

    async def _events(self, params: output_events.GetEvents, caller: Caller) -> Struct:
        session = self._registry.used(params.session_id)
        types = {name.strip() for name in params.types.split(",")} if params.types else None
        page = self._event_page(session, params.cursor, params, types)
        if page.events or not params.timeout:
            return page
        with self._counted_waiter(session.id, caller):
            page = await self._awaited_events(session, page, params, types)
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
        with self._counted_waiter(_SEVERAL, caller):
            return await self._several.awaited(params, page)

    async def _history(self, params: stop_report.History, caller: Caller) -> Struct:
        session = self._registry.used(params.session_id)
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
            session.use.touch()
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

    @contextlib.contextmanager
    def _counted_waiter(self, id: str, caller: Caller) -> Iterator[None]:
        """Counts a request that waits. One caller leaves room for others, in each session too."""
        mine = id, caller.uid, caller.name
        for waiting, most, whose in (
            (self._waiting[mine], _MAX_WAITERS_A_PLACE, f"of {caller.name} wait for {id}"),
            (self._waiters(caller=mine[1:]), _MAX_WAITERS_A_CALLER, f"of {caller.name} wait"),
            (
                self._waiters(id=id),
                _MAX_WAITERS if id == _SEVERAL else _MAX_WAITERS_A_SESSION,
                f"wait for {id}",
            ),
            (self._waiting.total(), _MAX_WAITERS, "wait"),
        ):
            if waiting >= most:
                raise RelayError(
                    Code.TOO_MANY_WAITERS,
                    f"{waiting} requests {whose} already; {most} may",
                    "Poll without timeout, or close other long-polls.",
                    waiting=waiting,
                )
        self._waiting[mine] += 1
        try:
            yield
        finally:
            self._waiting[mine] -= 1
            if not self._waiting[mine]:
                del self._waiting[mine]

    def _waiters(self, id: str | None = None, caller: tuple[int, str] | None = None) -> int:
        return sum(
            count
            for (place, *who), count in self._waiting.items()
            if id in (None, place) and caller in (None, tuple(who))
        )
