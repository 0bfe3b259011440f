"""Follows the events of sessions: one long-poll after the other, by cursor, also when the relay
goes and comes back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from debug_relay.supervisor.cli.client.address import NoRelay
from debug_relay.supervisor.cli.client.calls import Refused
from debug_relay.supervisor.cli.client.invocation import Invocation

GONE_SECONDS = 40.0  # A relay that is gone for longer is not waited for.
_POLL_SECONDS = 30.0  # One call waits this long for an event.
_AGAIN_SECONDS = 0.25  # After a failed connection the next one is tried so soon.
_PAGE = 1000  # Events of one call.
FORGOTTEN = ("SESSION_NOT_FOUND", "SESSION_EXPIRED")
ENDED = ("terminated", "failed")


class RelayGone(Exception):
    """No relay has answered for GONE_SECONDS."""


class Follower:
    """The events of some sessions, or of all if none is named.

    `statuses` is the status of each session that exists, as of the last page. `notice` is called
    when the relay goes and when it is back.
    """

    def __init__(
        self,
        invocation: Invocation,
        ids: list[str],
        types: str | None,
        notice: Callable[[str], None],
        cursor: str | None = None,
        until: float | None = None,
    ) -> None:
        self.ids = ids
        self.cursor = cursor
        self.statuses: dict[str, str] = {}
        self.dropped = 0
        self._here = invocation
        self._types = types
        self._notice = notice
        self._is_all = not ids
        self._until = until  # the moment after which nothing is waited for, a lost relay neither

    def kept(self) -> Iterator[dict[str, Any]]:
        """The events that there are already, without waiting."""
        has_more = True
        while has_more:
            page = self._page(0)
            yield from page.get("events") or ()
            has_more = page.get("has_more", False)

    @property
    def is_late(self) -> bool:
        return self._until is not None and time.monotonic() >= self._until

    def next(self) -> list[dict[str, Any]]:
        """The next events; none after a while, or when a session has been deleted."""
        left = _POLL_SECONDS if self._until is None else self._until - time.monotonic()
        wait = min(max(left, 0), _POLL_SECONDS)
        found: list[dict[str, Any]] = self._page(wait).get("events") or []
        return found

    def _page(self, wait: float) -> dict[str, Any]:
        lost: float | None = None
        while True:
            try:
                page = self._ask(wait if lost is None else 0)
            except NoRelay as error:
                now = time.monotonic()
                if lost is None:
                    lost = now
                    self._notice(f"{error}; trying again for {GONE_SECONDS:g} s")
                if now - lost > GONE_SECONDS:
                    raise RelayGone from error
                if self.is_late:
                    return {"events": [], "has_more": False}
                self._here.find_again()
                time.sleep(_AGAIN_SECONDS)
            else:
                if lost is not None:
                    self._notice(f"the relay is back after {time.monotonic() - lost:.0f} s")
                return page

    def _ask(self, wait: float) -> dict[str, Any]:
        if not self.ids and not self._is_all:
            self.statuses = {}
            return {"events": [], "has_more": False}
        try:
            page: dict[str, Any] = self._here.relay.call(
                "all-events",
                sessions=",".join(self.ids) or None,
                types=self._types,
                cursor=self.cursor,
                limit=_PAGE,
                timeout=wait or None,
            ).data
        except Refused as refused:
            if refused.code not in FORGOTTEN or self._is_all or self.cursor is None:
                raise
            named = refused.reply.json["error"]["details"].get("session_id")
            if named not in self.ids:
                raise
            self.ids = [id for id in self.ids if id != named]
            return {"events": [], "has_more": bool(self.ids)}
        self.cursor = page["next_cursor"]
        self.statuses = page.get("statuses") or {}
        self.dropped += page.get("dropped") or 0
        return page
