"""One request as a handler gets it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from debug_relay.protocol.scopes import READS_OUTPUT, RUNS_CODE
from debug_relay.protocol.wire.frames import RequestHead
from debug_relay.worker.session.session import Session


class Call(Struct):
    session: Session
    head: RequestHead
    # Set when the caller has disconnected: waits end, and work that has begun continues.
    abandoned: asyncio.Event

    @property
    def reads_output(self) -> bool:
        return READS_OUTPUT in self.head.caller.scopes

    @property
    def is_safe(self) -> bool:
        """Whether the answer must not run any of the program's code."""
        return RUNS_CODE not in self.head.caller.scopes


Handler = Callable[[Call, Any], Awaitable[Struct]]
