"""The lease: which of several callers drives the session, and until when.

It belongs to the caller that took it, by name and, if that caller has one, by its key: anybody may
send a name. It lapses by itself, by the monotonic clock. It does not lapse while a call of the
holder that changes the run is served, however long that call waits.

A person who acts takes a short lease by acting, so that no agent moves the program under their
eyes. An agent takes one by asking for it alone.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models import sessions as s
from debug_relay.protocol.models.retired_session import HeldLease
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.system.procfs import boot_id
from debug_relay.protocol.wire.envelope import timestamp_of
from debug_relay.protocol.wire.frames import Caller
from debug_relay.worker.state.core import Core

_PERSON_SECONDS: Final = 30.0  # The lease that a person's act takes.


class Lease:
    def __init__(self, core: Core) -> None:
        self._settings = core.settings
        self._lifecycle = core.lifecycle
        self._log = core.log
        self._publication = core.publication
        self._holder: str | None = None
        self._front = ""  # the front of the person who holds it; empty for an agent
        self._key = ""  # `Caller.key` of the holder; empty if its name is all that it has
        self._since = 0.0  # seconds since the epoch
        self._ttl = 0.0
        self._until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._driving: Counter[Caller] = Counter()

    def shown(self) -> s.Lease | None:
        if self._holder is None:
            return None
        return s.Lease(
            holder=self._holder,
            expires_at=timestamp_of(time.time() + self._left()),
            since=timestamp_of(self._since) if self._since else None,
            front=self._front or None,
            key_id=s.key_id(self._key),
        )

    def belongs_to(self, caller: Caller) -> bool:
        return self._holder == caller.driver and self._key in ("", caller.key)

    def take(self, caller: Caller, params: s.TakeLease) -> s.Lease:
        """Give the lease to the caller; its holder may also give it to another caller."""
        if not params.take_over:
            self._refuse_others(caller, "take-lease")
        holder = params.holder or caller.driver
        if holder == caller.driver:
            self._give(holder, caller.front, caller.key, params.ttl)
        else:
            self._give(holder, "", "", params.ttl)
        return self.shown() or s.Lease(holder=None, expires_at=None)

    def drop(self, caller: Caller) -> s.Lease:
        self._refuse_others(caller, "drop-lease")
        self._end("given back")
        return s.Lease(holder=None, expires_at=None)

    def act(self, operation: str, caller: Caller) -> None:
        """The caller does this now: raise 423 if it changes the run and another holds the lease."""
        if not OPERATIONS[operation].drives:
            return
        self._refuse_others(caller, operation)
        if self._holder is not None:
            self._front = caller.front
            self._renew()
        elif caller.front:
            self._give(caller.driver, caller.front, caller.key, _PERSON_SECONDS)

    @contextmanager
    def kept(self, operation: str, caller: Caller) -> Iterator[None]:
        """Keep the lease while this call is served; its time begins anew when the call ends."""
        row = OPERATIONS.get(operation)
        if row is None or not row.drives:
            yield
            return
        self._refuse_others(caller, operation)
        was_free = self._holder is None
        if self._holder is not None:
            self._renew()
        self._driving[caller] += 1
        try:
            yield
        except RelayError:
            # A person who could not act drives nothing.
            if was_free and self.belongs_to(caller) and self._driving[caller] == 1:
                self._end("given back")
            raise
        finally:
            self._driving[caller] -= 1
            if not self._driving[caller]:
                del self._driving[caller]
            if self.belongs_to(caller):
                self._renew()

    def held(self) -> HeldLease | None:
        """The lease in the form in which the next worker takes it over."""
        if self._holder is None:
            return None
        return HeldLease(
            holder=self._holder,
            ttl=self._ttl,
            until=self._until,
            boot_id=boot_id(),
            since=self._since,
            front=self._front,
            key=self._key,
        )

    def take_over(self, held: HeldLease) -> None:
        """Take over the lease of the session's earlier worker, for the time that it has left."""
        self._holder, self._front, self._ttl = held.holder, held.front, held.ttl
        self._key, self._since = held.key, held.since
        self._until = held.until if held.boot_id == boot_id() else 0.0
        self._start_timer(self._left())

    def close(self) -> None:
        self._stop_timer()

    def _left(self) -> float:
        return max(self._until - time.monotonic(), 0.0)

    def _refuse_others(self, caller: Caller, operation: str) -> None:
        if self._holder is None or self.belongs_to(caller):
            return
        left = round(self._left(), 3)
        id = self._settings.id
        take = f'{call_of("take-lease", id)} {{"take_over": true}}'
        through = f" through {self._front}" if self._front else ""
        holder = self._holder
        if holder == caller.driver:
            holder = f"another front of {holder}" if caller.front else f"another {holder}"
        if caller.front:
            message = (
                f"{holder} drives this session{through} for another {left:.0f} s, so your "
                f"{operation} was not done"
            )
            suggestion = (
                f"Wait until {holder} has finished, or take over and try again. If your front has "
                f"no button for it, call {take}."
            )
        else:
            message = (
                f"{holder} drives this session{through}, and {operation} came from {caller.driver}"
            )
            suggestion = (
                f"Wait {left:g} s: the lease lapses then unless {self._holder} acts. Or call "
                f"{take}, and repeat this call; {call_of('snapshot', id)}?wait=30 waits for the "
                "next stop."
            )
        raise RelayError(
            Code.SESSION_LEASED,
            message,
            suggestion,
            holder=self._holder,
            caller=caller.driver,
            seconds_left=left,
            **({"front": self._front} if self._front else {}),
        )

    def _give(self, holder: str, front: str, key: str, ttl: float) -> None:
        before, had_key = self._holder, self._key
        self._holder, self._front, self._key, self._ttl = holder, front, key, ttl
        is_new = (before, had_key) != (holder, key)
        if is_new:
            self._since = time.time()
        self._renew()
        if is_new:
            self._journal(before, "taken over" if before else "taken")

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
        if any(self.belongs_to(caller) for caller in self._driving):
            self._renew()
        else:
            self._end("lapsed")

    def _end(self, how: str) -> None:
        self._stop_timer()
        before, self._holder, self._front, self._key = self._holder, None, "", ""
        if before is not None:
            self._journal(before, how)
            self._publication.changed()

    def _journal(self, before: str | None, how: str) -> None:
        body: dict[str, Any] = {
            "status": self._lifecycle.state,
            "lease": self.shown(),
            "previous_holder": before,
            "message": f"The lease was {how}" if how != "lapsed" else "The lease has lapsed",
        }
        self._log.journal("session", body)
