"""Reads of output, events and stop reports: from the rings on disk, past the worker."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections import Counter
from collections.abc import Mapping
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

_Place = tuple[str, int, str]  # The session's id or _SEVERAL, and the caller's uid and name.


@functools.lru_cache(maxsize=256)
def _names(types: str) -> set[str]:
    """The types that a caller names; a thousand long-polls share one set."""
    return {name.strip() for name in types.split(",")}


class OutputHandlers:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._several = SeveralSessions(registry)
        self._waiting: Counter[_Place] = Counter()

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
        types = _names(params.types) if params.types else None
        page = self._event_page(session, params.cursor, params, types)
        if page.events or not params.timeout:
            return page
        place = self._take_place(session.id, caller)
        deadline = time.monotonic() + params.timeout
        seen, came_from = session.events_end, params.cursor
        try:
            while not page.events and (left := deadline - time.monotonic()) > 0:
                # Each page looks at a bounded number of events; wanted ones may come after many
                # others.
                if page.has_more and page.next_cursor != came_from:
                    await asyncio.sleep(0)
                elif not await session.wait_for_events(seen, left):
                    break
                session.use.touch()
                seen, came_from, dropped = session.events_end, page.next_cursor, page.dropped
                page = self._event_page(session, came_from, params, types)
                page.dropped += dropped
        finally:
            self._leave_place(place)
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
        place = self._take_place(_SEVERAL, caller)
        try:
            return await self._several.awaited(params, page)
        finally:
            self._leave_place(place)

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

    def _take_place(self, id: str, caller: Caller) -> _Place:
        """Counts a request that waits, until it leaves its place. One caller leaves room for
        others, in each session too. A context manager here would weigh 600 bytes for each wait.
        """
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
        return mine

    def _leave_place(self, place: _Place) -> None:
        self._waiting[place] -= 1
        if not self._waiting[place]:
            del self._waiting[place]

    def _waiters(self, id: str | None = None, caller: tuple[int, str] | None = None) -> int:
        return sum(
            count
            for (place, *who), count in self._waiting.items()
            if id in (None, place) and caller in (None, tuple(who))
        )
