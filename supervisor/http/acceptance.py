"""Which connections are accepted: whose, and how many of one user, of one address, and in all.

A connection is accepted by its uid, or its address elsewhere, before we read a byte of it.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from debug_relay.protocol.system.peers import AnySocket
from debug_relay.supervisor.access.guard import UNKNOWN_UID, Guard
from debug_relay.supervisor.access.refusal_log import RefusalLog

_K = TypeVar("_K", int, str)
_NOWHERE: Final = "an unknown address"


@dataclass(frozen=True, slots=True)
class Limits:
    connections: int = 2048
    connections_per_uid: int = 1024  # callers from elsewhere together have as many
    connections_per_address: int = 256  # of callers from elsewhere
    line_bytes: int = 8190
    headers: int = 128


@dataclass(slots=True)
class Counts:
    accepted: int = 0
    refused_peer: int = 0
    refused_limit: int = 0
    malformed: int = 0
    slow_head: int = 0


class Peer(NamedTuple):
    """The other end of an accepted connection."""

    uid: int
    source: str  # the name under which connections share bounds


class Acceptance:
    def __init__(self, guard: Guard, limits: Limits, refused: RefusalLog) -> None:
        self.guard, self.limits = guard, limits
        self.counts = Counts()
        self._refused = refused
        self._open = 0
        self._by_uid: Counter[int] = Counter()
        self._by_source: Counter[str] = Counter()

    def accept(self, sock: AnySocket) -> Peer | None:
        """Counts the connection as open, until `release`; None if it is refused."""
        if self._open >= self.limits.connections:
            self.counts.refused_limit += 1
            return None
        uid, refusal = self.guard.admit(sock)
        source = source_of(uid, sock)
        address = source if uid == UNKNOWN_UID else None
        if refusal is not None:
            self.counts.refused_peer += 1
            self._refused.note("connection.refused", uid, refusal, address=address)
            return None
        for taken, most in (
            (self._by_uid[uid], self.limits.connections_per_uid),
            (self._by_source[source], self._most_of(uid)),
        ):
            if taken >= most:
                self.counts.refused_limit += 1
                reason = f"{most} connections are open"
                self._refused.note("connection.refused", uid, reason, address=address)
                return None
        self.counts.accepted += 1
        self._open += 1
        self._by_uid[uid] += 1
        self._by_source[source] += 1
        return Peer(uid, source)

    def release(self, peer: Peer) -> None:
        self._open -= 1
        _less(self._by_uid, peer.uid)
        _less(self._by_source, peer.source)

    def _most_of(self, uid: int) -> int:
        limits = self.limits
        return limits.connections_per_address if uid == UNKNOWN_UID else limits.connections_per_uid


def _less(counts: Counter[_K], key: _K) -> None:
    counts[key] -= 1
    if not counts[key]:  # or an entry would remain for every address that ever connected
        del counts[key]


def source_of(uid: int, sock: AnySocket) -> str:
    """The name under which connections share bounds: the user's, if the kernel knows it, else the
    address. An IPv6 network of 64 bits counts as one address, because one machine may have all of
    them.
    """
    if uid != UNKNOWN_UID:
        return f"uid {uid}"
    try:
        peer = sock.getpeername()
    except OSError:  # it has left already
        peer = None
    if not isinstance(peer, tuple):
        return _NOWHERE
    address = ipaddress.ip_address(str(peer[0]).partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        return str(mapped or ipaddress.ip_network((address, 64), strict=False))
    return str(address)
