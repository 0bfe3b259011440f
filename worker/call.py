"""One request as its handler sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from debug_relay.protocol.frames import RequestHead
from debug_relay.worker.session import Session


class Call(Struct):
    session: Session
    head: RequestHead
    # Set when nobody waits for the answer any more: waiting ends, what was begun goes on.
    abandoned: asyncio.Event


Handler = Callable[[Call, Any], Awaitable[Struct]]
