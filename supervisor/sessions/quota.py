"""The bounds on open sessions, in all and for each caller."""

from __future__ import annotations

from collections import Counter
from typing import Any

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.version import API_PREFIX
from debug_relay.supervisor.config.settings import Sessions
from debug_relay.supervisor.sessions.mirror import Session


class Quota:
    def __init__(self) -> None:
        # Sessions whose worker is being started; they are not in the registry yet.
        self._starting: Counter[str] = Counter()

    @property
    def starting(self) -> int:
        """The number of workers that are being started."""
        return self._starting.total()

    def take(self, caller: str) -> None:
        """Counts a start. Call it before any await, so that one of two requests for the last place
        fails.
        """
        self._starting[caller] += 1

    def release(self, caller: str) -> None:
        """Ends the count of a start: the session is in the registry, or the start has failed."""
        self._starting[caller] -= 1
        if not self._starting[caller]:
            del self._starting[caller]

    def require_room(self, counted: list[Session], settings: Sessions, caller: str) -> None:
        """Refuses another session if there are too many; the error lists some to delete."""
        self._require(counted, self._starting.total(), settings.max_sessions, "")
        of_caller = [session for session in counted if session.state.created_by == caller]
        if settings.max_sessions_per_caller:
            limit = settings.max_sessions_per_caller
            self._require(of_caller, self._starting[caller], limit, f" of {caller}")

    @staticmethod
    def _require(counted: list[Session], starting: int, limit: int, whose: str) -> None:
        if len(counted) + starting < limit:
            return
        idle = sorted(counted, key=lambda session: -session.use.idle_for())
        raise RelayError(
            Code.SESSION_LIMIT_REACHED,
            f"{len(counted) + starting} of {limit} sessions{whose} are open",
            f"DELETE {API_PREFIX}/sessions/{idle[0].id} frees the one that idles longest."
            if idle
            else "Wait a moment and try again.",
            max_sessions=limit,
            sessions=[_shown(session) for session in idle],
        )


def _shown(session: Session) -> dict[str, Any]:
    return {
        "session_id": session.id,
        "name": session.state.name,
        "status": session.state.status,
        "created_by": session.state.created_by,
        "idle_seconds": round(session.use.idle_for(), 1),
        "free_with": f"DELETE {API_PREFIX}/sessions/{session.id}",
    }
