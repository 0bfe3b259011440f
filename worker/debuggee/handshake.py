"""Sends a program its breakpoints and settings when it comes under the debugger."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from debug_relay.worker import bundle
from debug_relay.worker.breakpoints.exceptions import ExceptionFilters
from debug_relay.worker.breakpoints.session_breakpoints import Breakpoints
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.hub import Hub
from debug_relay.worker.debugger.probe_client import ProbeClient
from debug_relay.worker.debugger.target import Debuggee, ServerListener
from debug_relay.worker.inspection.watches import Watches
from debug_relay.worker.state.settings import Settings


class NewServers(NamedTuple):
    """The way of a new debug server into the session: the hub lists it, it goes through the
    handshake, and the listener takes its events.
    """

    hub: Hub
    handshake: Handshake
    listener: ServerListener


class Handshake:
    def __init__(
        self,
        settings: Settings,
        probes: ProbeClient,
        debuggee: Debuggee,
        breakpoints: Breakpoints,
        exceptions: ExceptionFilters,
        watches: Watches,
    ) -> None:
        self._settings = settings
        self._probes = probes
        self._debuggee = debuggee
        self._breakpoints = breakpoints
        self._exceptions = exceptions
        self._watches = watches

    async def prepare(self, server: DebugServer) -> None:
        """Send everything to the debug server of a program before the program runs."""
        await self._begin_run()
        await self.introduce(server)

    async def introduce(self, server: DebugServer) -> None:
        """Send everything to the debug server of any of the program's processes."""
        target = self._debuggee.target
        await self._probes.find_probe(server)
        # Set before we send the present breakpoints and settings, so that a change made meanwhile
        # is sent to this server, too.
        server.takes_changes = True
        if target is not None and target.shows == "safe":
            await server.engine.show_safely()
        await self._breakpoints.send_all(server)
        await self._watches.begin(server)
        await self._exceptions.begin(server)
        if not self._settings.config.stop_all:
            await self.send_stop_all(server)

    async def prepare_plainly(self, server: DebugServer) -> None:
        """Send everything to a debug server that the program started itself: it has no probe."""
        await self._begin_run()
        server.takes_changes = True
        await self._breakpoints.send_all(server)
        await self._exceptions.begin(server)

    async def _begin_run(self) -> None:
        await self._breakpoints.verify_again()
        self._breakpoints.new_run()

    async def send_stop_all(self, server: DebugServer) -> None:
        """Send whether the stop of one thread halts the others; it holds from the next stop on."""
        await server.engine.stop_all(self._settings.config.stop_all)


def kept_bytecode(prefix: str) -> str | None:
    """The prefix of the files with the probe's compiled code; None if there can be none."""
    try:
        # FileExistsError: there is a file of that name.
        Path(prefix).parent.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        return None  # with a full or read-only disk programs only start slower
    return f"{prefix}.{bundle.HASH}"
