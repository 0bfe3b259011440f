"""Asks the probe where the program's threads are now, running or not."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from debug_relay.protocol.models.fields import Location
from debug_relay.protocol.wire import probe_messages as probe
from debug_relay.worker.debugger.connection import LOOK_SECONDS, DebugServer
from debug_relay.worker.debugger.hub import KnownThread
from debug_relay.worker.debugger.probe_client import ProbeClient


class ThreadPosition(Struct):
    is_stopped: bool
    will_stop: bool  # before it runs another line
    place: Location | None


async def of_threads(
    probes: ProbeClient,
    timeout: float = LOOK_SECONDS,
    but: Collection[DebugServer] = (),
) -> dict[int, ThreadPosition]:
    """The position of each thread, by its id; none for a program without the probe, and none for
    the processes in `but`.
    """
    found: dict[int, ThreadPosition] = {}

    async def ask(server: DebugServer) -> tuple[DebugServer, list[probe.ThreadRow]]:
        return server, await probes.ask(server, probe.Threads(), timeout)

    asked = [server for server in probes.probed() if server not in but]
    for server, rows in await probes.hub.each(asked, ask):
        if server.lost:
            continue
        for dap_id, is_stopped, will_stop, top in rows:
            place = None
            if top is not None:
                place = Location(path=top[1], line=top[2], column=1, function=top[0])
            found[probes.hub.thread_id(server, dap_id)] = ThreadPosition(
                is_stopped, will_stop, place
            )
    return found


async def live_stack(
    probes: ProbeClient, thread: KnownThread, start: int, levels: int, timeout: float = LOOK_SECONDS
) -> probe.LiveStack | None:
    """The present stack of a running thread; None for a thread that is stopped, and for a program
    without the probe.
    """
    found = await thread.server.engine.live_stack(thread.dap_id, start, levels, timeout)
    if found is None or found.stands:
        return None
    if found.gone:
        probes.hub.thread_ended(thread.server, thread.dap_id)
        probes.hub.thread(thread.id)  # raises THREAD_NOT_FOUND
    return found
