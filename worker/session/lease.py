"""The lease: which of several callers drives the session, and until when.

It lapses by itself, by the monotonic clock. It does not lapse while a call of the holder that
changes the run is served, however long that call waits.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models import sessions as s
from debug_relay.protocol.models.retired_session import HeldLease
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.system.procfs import boot_id
from debug_relay.protocol.wire.envelope import timestamp_of
from debug_relay.worker.state.lifecycle import Lifecycle
from debug_relay.worker.state.log import SessionLog
from debug_relay.worker.state.publication import Publication
from debug_relay.worker.state.settings import Settings


class Lease:
    def __init__(
        self,
        settings: Settings,
        lifecycle: Lifecycle,
        log: SessionLog,
        publication: Publication,
    ) -> None:
        self._settings = settings
        self._lifecycle = lifecycle
        self._log = log
        self._publication = publication
        self._holder: str | None = None
        self._ttl = 0.0
        self._until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._driving: Counter[str] = Counter()

    def shown(self) -> s.Lease | None:
        if self._holder is None:
            return None
        return s.Lease(holder=self._holder, expires_at=timestamp_of(time.time() + self._left()))

    def take(self, caller: str, params: s.TakeLease) -> s.Lease:
        """Give the lease to the caller; its holder may also give it to another caller."""
        if not params.take_over:
            self._refuse_others(caller, "take-lease")
        before, self._holder = self._holder, params.holder or caller
        self._ttl = params.ttl
        self._renew()
        if before != self._holder:
            self._tell(before, "taken over" if before else "taken")
        return self.shown() or s.Lease(holder=None, expires_at=None)

    def drop(self, caller: str) -> s.Lease:
        self._refuse_others(caller, "drop-lease")
        self._end("given back")
        return s.Lease(holder=None, expires_at=None)

    def admit(self, operation: str, caller: str | None) -> None:
        """Raise 423 if the operation changes the run and another caller holds the lease."""
        if caller is None or not OPERATIONS[operation].drives:
            return
        self._refuse_others(caller, operation)
        if self._holder is not None:
            self._renew()

    @contextmanager
    def kept(self, operation: str, caller: str) -> Iterator[None]:
        """Keep the lease while this call is served; its time begins anew when the call ends."""
        row = OPERATIONS.get(operation)
        if row is None or not row.drives:
            yield
            return
        self.admit(operation, caller)
        self._driving[caller] += 1
        try:
            yield
        finally:
            self._driving[caller] -= 1
            if not self._driving[caller]:
                del self._driving[caller]
            if self._holder == caller:
                self._renew()

    def held(self) -> HeldLease | None:
        """The lease in the form in which the next worker takes it over."""
        if self._holder is None:
            return None
        return HeldLease(holder=self._holder, ttl=self._ttl, until=self._until, boot_id=boot_id())

    def take_over(self, held: HeldLease) -> None:
        """Take over the lease of the session's earlier worker, for the time that it has left."""
        self._holder, self._ttl = held.holder, held.ttl
        self._until = held.until if held.boot_id == boot_id() else 0.0
        self._start_timer(self._left())

    def close(self) -> None:
        self._stop_timer()

    def _left(self) -> float:
        return max(self._until - time.monotonic(), 0.0)

    def _refuse_others(self, caller: str, operation: str) -> None:
        if self._holder in (None, caller):
            return
        left = round(self._left(), 3)
        path = f"/api/v1/sessions/{self._settings.id}/lease"
        raise RelayError(
            Code.SESSION_LEASED,
            f"{self._holder} drives this session, and {operation} came from {caller}",
            f"Wait {left:g} s: the lease lapses then unless {self._holder} acts. Or call "
            f'POST {path} with {{"take_over": true}}, and repeat this call.',
            holder=self._holder,
            caller=caller,
            seconds_left=left,
        )

    def _renew(self) -> None:
        self._until = time.monotonic() + self._ttl
        self._start_timer(self._ttl)
        self._publication.changed()

    def _start_timer(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._lapse)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _lapse(self) -> None:
        if self._holder in self._driving:
            self._renew()
        else:
            self._end("lapsed")

    def _end(self, how: str) -> None:
        self._stop_timer()
        before, self._holder = self._holder, None
        if before is not None:
            self._tell(before, how)
            self._publication.changed()

    def _tell(self, before: str | None, how: str) -> None:
        body: dict[str, Any] = {
            "status": self._lifecycle.state,
            "lease": self.shown(),
            "previous_holder": before,
            "message": f"The lease was {how}" if how != "lapsed" else "The lease has lapsed",
        }
        self._log.journal("session", body)
