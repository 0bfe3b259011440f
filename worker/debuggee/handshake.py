"""What a program is told when it comes under the debugger, before it goes on."""

from __future__ import annotations

from pathlib import Path

from debug_relay.worker import bundle
from debug_relay.worker.breakpoints.exceptions import ExceptionFilters
from debug_relay.worker.breakpoints.manager import Breakpoints
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.probe_client import ProbeClient
from debug_relay.worker.debugger.target import Debuggee
from debug_relay.worker.inspection.watches import Watches
from debug_relay.worker.state.settings import Settings


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
        """What the debug server of a program must know before that goes on."""
        await self._begin_run()
        await self.introduce(server)

    async def introduce(self, server: DebugServer) -> None:
        """The same for any of its processes."""
        target = self._debuggee.target
        await self._probes.find_probe(server)
        # Before it is told what there is: what changes meanwhile is sent to it as well.
        server.takes_changes = True
        if target is not None and target.shows == "safe":
            await server.engine.show_safely()
        await self._breakpoints.send_all(server)
        await self._watches.begin(server)
        await self._exceptions.begin(server)
        if not self._settings.config.stop_all:
            await self.send_stop_all(server)

    async def prepare_plainly(self, server: DebugServer) -> None:
        """A program whose debugger is its own: there is no probe to look for."""
        await self._begin_run()
        server.takes_changes = True
        await self._breakpoints.send_all(server)
        await self._exceptions.begin(server)

    async def _begin_run(self) -> None:
        await self._breakpoints.verify_again()
        self._breakpoints.new_run()

    async def send_stop_all(self, server: DebugServer) -> None:
        """Whether the stop of one thread halts the others; from the next stop on."""
        await server.engine.stop_all(self._settings.config.stop_all)


def kept_bytecode(prefix: str) -> str | None:
    try:
        # FileExistsError: a file lies there.
        Path(prefix).parent.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        return None  # a full or read-only disk: it starts slower
    return f"{prefix}.{bundle.HASH}"
