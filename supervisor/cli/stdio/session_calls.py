"""Calls on one session, from both threads of the front.

Each call has a connection of its own: an IDE may rest for an hour between two commands, and the
relay closes a kept connection earlier.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from typing import Any

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.refusals import decode_error
from debug_relay.supervisor.cli.client.calls import Refused, Relay


class SessionCalls:
    def __init__(self, connect: Callable[[], Relay]) -> None:
        self._connect = connect
        self.session_id: str | None = None

    def call(self, operation: str, **fields: Any) -> Any:
        """The reply's data; raises RelayError for a refusal, and NoRelay."""
        if self.session_id is not None:
            fields["session_id"] = self.session_id
        with closing(self._connect()) as relay:
            try:
                return relay.call(operation, **fields).data
            except Refused as refused:
                raise _error(refused) from None


def _error(refused: Refused) -> RelayError:
    try:
        return decode_error(json.dumps(refused.reply.json["error"]).encode())
    except (ValueError, KeyError, TypeError):
        # A code of a newer relay, or no relay at all.
        words = refused.reply.text[:200]
        return RelayError(Code.INTERNAL_ERROR, f"The relay's answer was not understood: {words}")
