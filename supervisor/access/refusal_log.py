"""Logs refused connections and requests, so that a refused caller cannot fill the logs.

The relay's log and the audit log get one line for each uid, or address elsewhere, and reason within
a period, and one more at the period's end with the count of the others. This module does not decide
who is refused.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

from msgspec import Struct

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.supervisor.access.audit import Audit
from debug_relay.supervisor.log import Log

_log: Final = Log(__name__)
# Refusals of one user for one reason within this time are counted, not logged one by one.
_PERIOD_SECONDS: Final = 60.0
_MOST_KINDS: Final = 256  # Users and reasons whose refusals are counted apart.
_OTHERS: Final = "others"
# The method and path of a refused request are logged up to this length.
_SHOWN_CHARACTERS: Final = 200
# Errors of the guard, raised before the caller is known.
BEFORE_AUTHENTICATION: Final = frozenset(
    {Code.FORBIDDEN_HOST, Code.FORBIDDEN_ORIGIN, Code.UNAUTHENTICATED}
)

_Key = tuple[str, int, str | None, str]  # event, uid, address elsewhere, reason


class _Counted(Struct):
    """The refusals of one kind in the current period."""

    ends: asyncio.TimerHandle
    more: int = 0  # after the first one, which is logged already


class RefusalLog:
    def __init__(self, audit: Audit | None = None, period: float = _PERIOD_SECONDS) -> None:
        self._audit = audit
        self._period = period
        self._counted: dict[_Key, _Counted] = {}
        # How often each event has happened since the start.
        self.totals: Counter[str] = Counter()

    def note(
        self, event: str, uid: int, reason: str, *, address: str | None = None, **seen: Any
    ) -> None:
        """Counts one refusal; `seen` are further fields for the line of the first one."""
        self.totals[event] += 1
        key = event, uid, address, reason
        if key not in self._counted and len(self._counted) >= _MOST_KINDS:
            key, seen = (event, -1, None, _OTHERS), {}
        if (counted := self._counted.get(key)) is not None:
            counted.more += 1
            return
        ends = asyncio.get_running_loop().call_later(self._period, self._end, key)
        self._counted[key] = _Counted(ends)
        self._write(key, 1, seen)

    def request(
        self,
        error: RelayError,
        uid: int,
        address: str | None,
        caller: str | None,
        id: str,
        method: str,
        path: str,
    ) -> None:
        # Host and Origin can be any text, so they are not part of the reason: the line of the
        # first refusal has them in its message.
        reason = "Sec-Fetch-Site" if "sec_fetch_site" in error.details else ""
        if error.code not in (Code.FORBIDDEN_HOST, Code.FORBIDDEN_ORIGIN):
            reason = error.message
        self.note(
            "request.refused",
            uid,
            f"{error.code.value}: {reason}" if reason else error.code.value,
            address=address,
            caller=caller,
            request_id=id,
            method=method[:_SHOWN_CHARACTERS],
            path=path[:_SHOWN_CHARACTERS],
            message=error.message,
        )

    def close(self) -> None:
        """Logs the counts of all periods that have not ended."""
        for key in list(self._counted):
            self._end(key)

    def _end(self, key: _Key) -> None:
        counted = self._counted.pop(key)
        counted.ends.cancel()
        if counted.more:
            self._write(
                key, counted.more, {"besides": "those of this uid and reason logged before"}
            )

    def _write(self, key: _Key, count: int, seen: dict[str, Any]) -> None:
        event, uid, address, reason = key
        fields = {"uid": uid, "reason": reason, "count": count, **seen}
        if address is not None:
            fields["address"] = address
        _log.warning(event, **fields)
        if self._audit is not None:
            self._audit.refused(event, fields)
