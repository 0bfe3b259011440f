"""Where the program's threads are at this moment, running or not, as the probe sees them."""

from __future__ import annotations

from msgspec import Struct

from debug_relay.protocol.models.fields import Location
from debug_relay.protocol.wire import probe_messages as probe
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.hub import KnownThread
from debug_relay.worker.debugger.probe_client import ProbeClient


class ThreadPosition(Struct):
    stands: bool
    held: bool  # it will stand before it runs another line
    place: Location | None


class LiveFrames(Struct):
    rows: list[probe.LiveFrame]
    total: int


async def of_threads(
    asking: ProbeClient, timeout: float | None = None
) -> dict[int, ThreadPosition]:
    """Of each thread by its id; of programs without the probe, nothing."""
    found: dict[int, ThreadPosition] = {}

    async def ask(server: DebugServer) -> tuple[DebugServer, list[probe.ThreadRow]]:
        return server, await asking.ask(server, probe.Threads(), timeout)

    for server, rows in await asking.hub.each(asking.probed(), ask):
        if server.lost:
            continue
        for dap_id, stands, held, top in rows:
            place = None
            if top is not None:
                place = Location(path=top[1], line=top[2], column=1, function=top[0])
            found[asking.hub.thread_id(server, dap_id)] = ThreadPosition(stands, held, place)
    return found


async def live_stack(
    asking: ProbeClient, thread: KnownThread, start: int, levels: int, timeout: float | None = None
) -> LiveFrames | None:
    """The stack of a thread that does not stand, as it is; None for one that does."""
    told = await asking.ask(
        thread.server, probe.Live(thread=thread.dap_id, start=start, levels=levels), timeout
    )
    if "stands" in told:
        return None
    if "gone" in told:
        asking.hub.thread_ended(thread.server, thread.dap_id)
        asking.hub.thread(thread.id)  # raises, in words
    return LiveFrames(told["rows"], told["total"])
