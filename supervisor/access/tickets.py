"""One-time tickets: a browser cannot send `Authorization` when it opens a WebSocket.

A page gets a ticket by an ordinary POST with its token, and sends the ticket as a subprotocol
(`Sec-WebSocket-Protocol: debug-relay, ticket.TEXT`), which no log of an address contains. A ticket
stands for the token, so a socket that was opened with it ends when the token is revoked.
"""

from __future__ import annotations

import secrets
import time
from typing import Final

from msgspec import Struct

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.wire.frames import Caller
from debug_relay.supervisor.access.tokens import Tokens

PROTOCOL: Final = "debug-relay"
TICKET_PREFIX: Final = "ticket."
TICKET_SECONDS: Final = 30.0  # A ticket is used within this time, or never.
_MOST: Final = 1024  # Tickets that nobody has used yet; the oldest one goes first.
_MOST_OF_A_CALLER: Final = 64  # Of these, the tickets of one caller.
_LONGEST: Final = 100  # Characters of a ticket.


class Ticket(Struct, frozen=True):
    uid: int
    token: str | None  # the hash of the token that it stands for; None if no token is configured
    key: str  # the hash of the caller's X-Lease-Key, which no page can send when it opens a socket
    ends: float  # monotonic


class Tickets:
    def __init__(self, tokens: Tokens | None) -> None:
        self._tokens = tokens
        self._open: dict[str, Ticket] = {}

    def issue(self, caller: Caller) -> str:
        now = time.monotonic()
        for text in [text for text, ticket in self._open.items() if ticket.ends <= now]:
            del self._open[text]
        while len(self._open) >= _MOST:
            del self._open[next(iter(self._open))]
        token = self._tokens.hash_of(caller.name) if self._tokens is not None else None
        who = caller.uid, token
        mine = [text for text, ticket in self._open.items() if (ticket.uid, ticket.token) == who]
        if len(mine) >= _MOST_OF_A_CALLER:
            del self._open[mine[0]]
        text = secrets.token_urlsafe(24)
        self._open[text] = Ticket(caller.uid, token, caller.key, now + TICKET_SECONDS)
        return text

    def redeem(self, text: str, uid: int) -> Ticket:
        """The ticket, which is worthless afterwards."""
        ticket = self._open.pop(text, None)
        if ticket is None or ticket.uid != uid or ticket.ends <= time.monotonic():
            raise RelayError(
                Code.UNAUTHENTICATED,
                "The ticket is unknown, used already, or too old",
                f"Get another with POST /api/v1/ticket; it is good for {TICKET_SECONDS:g} s, once.",
            )
        return ticket


def ticket_in(protocols: str) -> str | None:
    """The ticket among the subprotocols that a client offers."""
    for offered in protocols.split(","):
        name = offered.strip()
        if name.startswith(TICKET_PREFIX):
            return name.removeprefix(TICKET_PREFIX)[:_LONGEST]
    return None
