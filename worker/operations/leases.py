"""The handlers of the lease: become the one who drives, and stop being that."""

from __future__ import annotations

from msgspec import Struct

from debug_relay.protocol.models.fields import SessionParams
from debug_relay.protocol.models.sessions import TakeLease
from debug_relay.worker.operations.call import Call


async def take_lease(call: Call, params: TakeLease) -> Struct:
    return call.session.lease.take(call.head.caller.name, params)


async def drop_lease(call: Call, params: SessionParams) -> Struct:
    return call.session.lease.drop(call.head.caller.name)
