"""Events of several sessions in one call, and one wait for the next event of any of them."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterable
from typing import Final

import msgspec

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.output_events import (
    EVENT_NUMBERS,
    AllEventsPage,
    GetAllEvents,
    SessionEvent,
)
from debug_relay.protocol.refusals import Problem
from debug_relay.supervisor.output.pages import numbers
from debug_relay.supervisor.sessions.mirror import Session, has_label
from debug_relay.supervisor.sessions.registry import Registry

_MOST_SESSIONS: Final = 32  # Sessions of one call: their cursors together fit into a request line.

# A program that prints wakes the call with each line, and each look reads all the sessions.
_PACE_SECONDS: Final = 0.02


class SeveralSessions:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def page(self, params: GetAllEvents, before: AllEventsPage | None = None) -> AllEventsPage:
        """The next events, the oldest first. `before` is an empty page of the same call."""
        cursors = _cursors(before.next_cursor if before is not None else params.cursor)
        types = {name.strip() for name in params.types.split(",")} if params.types else None
        if types is not None:
            numbers("types", types, EVENT_NUMBERS)  # refused also while there is no session
        found: list[SessionEvent] = []
        has_more, dropped, statuses = False, before.dropped if before is not None else 0, {}
        sessions = self._chosen(params, before)
        # Each session has its share of the page, so that a loud one leaves room for the others.
        share = max(params.limit // max(len(sessions), 1), 1)
        for session in sessions:
            status = statuses[session.id] = session.state.status
            cursor = cursors.get(session.id)
            page = session.events.page(cursor, share, types, status, session.events_end)
            cursors[session.id] = page.next_cursor
            has_more, dropped = has_more or page.has_more, dropped + page.dropped
            found += [
                SessionEvent(
                    session_id=session.id,
                    seq=event.seq,
                    type=event.type,
                    timestamp=event.timestamp,
                    body=event.body,
                )
                for event in page.events
            ]
        kept = {id: cursor for id, cursor in cursors.items() if id in statuses}
        return AllEventsPage(
            events=sorted(found, key=lambda event: event.timestamp),
            next_cursor=base64.urlsafe_b64encode(msgspec.json.encode(kept)).decode().rstrip("="),
            has_more=has_more,
            statuses=statuses,
            dropped=dropped,
        )

    async def awaited(self, params: GetAllEvents, page: AllEventsPage) -> AllEventsPage:
        """The next page with events, or an empty page after the timeout or the end of a session."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + params.timeout
        named = set(page.statuses) if params.sessions is not None else set()
        came_from = params.cursor
        while not page.events and loop.time() < deadline and named <= page.statuses.keys():
            if page.has_more and page.next_cursor != came_from:
                await asyncio.sleep(0)
            elif not await _has_more(
                self._chosen(params, page), self._registry, deadline, touches=_names_some(params)
            ):
                break
            came_from = page.next_cursor
            page = self.page(params, page)
            if not page.events:
                await asyncio.sleep(_PACE_SECONDS)
        return page

    def _chosen(self, params: GetAllEvents, before: AllEventsPage | None) -> list[Session]:
        if params.sessions is not None:
            given = (address.strip() for address in params.sessions.split(","))
            ids = list(dict.fromkeys(self._registry.id_of(address) for address in given))
            there = self._registry.sessions
            # A session that is deleted while the call waits ends the waiting, not the call.
            known = [there[id] for id in ids if id in there] if before is not None else None
            found = known if known is not None else [self._registry.get(id) for id in ids]
        else:
            found = list(self._registry.sessions.values())
        found = [one for one in found if has_label(one.state, params.label) and not one.closed]
        if len(found) > _MOST_SESSIONS:
            raise RelayError(
                Code.INVALID_PARAMETER,
                f"{len(found)} sessions fit; one call follows at most {_MOST_SESSIONS}",
                "Name some with sessions=, or choose a label that fewer sessions have.",
                errors=[Problem("sessions", f"at most {_MOST_SESSIONS}", len(found))],
            )
        return found


def _names_some(params: GetAllEvents) -> bool:
    """Whether the caller waits for certain sessions. A wait for whatever there is uses none of
    them, as a list does not: it must not keep forgotten sessions alive.
    """
    return params.sessions is not None or params.label is not None


async def _has_more(
    sessions: Iterable[Session], registry: Registry, deadline: float, *, touches: bool
) -> bool:
    """Whether any of the sessions has more to read, or another one came, before the deadline."""
    woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    followed = list(sessions)
    registry.listeners.add(wake)
    for session in followed:
        if touches:
            session.use.attend()
        session.listeners.add(wake)
    try:
        async with asyncio.timeout_at(deadline):
            await woken
    except TimeoutError:
        return False
    finally:
        registry.listeners.discard(wake)
        for session in followed:
            session.listeners.discard(wake)
            if touches:
                session.use.leave()
    return True


def _cursors(cursor: str | None) -> dict[str, str]:
    if cursor is None:
        return {}
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True)
        return msgspec.json.decode(raw, type=dict[str, str])
    except (ValueError, msgspec.MsgspecError):
        problem = "is not one that a relay returned"
        raise RelayError(
            Code.INVALID_PARAMETER,
            f"cursor {cursor[:80]!r} {problem}",
            "Use next_cursor of an earlier reply of this endpoint as it is, or leave cursor out.",
            errors=[Problem("cursor", problem, cursor[:200])],
        ) from None
