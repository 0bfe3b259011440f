"""What a session debugs: a program we launched, one we attached to, a native one."""

from __future__ import annotations

from typing import Any, Literal, Protocol

import msgspec

from debug_relay.protocol.models.sessions import Program
from debug_relay.protocol.system.procfs import Stat
from debug_relay.protocol.wire import dap
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.state.log import SessionLog
from debug_relay.worker.system.descendants import Ended


class Target(Protocol):
    """One debugged program, from its start to its end or its release."""

    attached: bool  # it was there before us and outlives us
    keeps_children: bool  # what it has started is not ended with it

    @property
    def shows(self) -> Literal["safe", "full"]:
        """`safe`: values are shown without running a line of its code."""

    @property
    def pid(self) -> int | None: ...

    def processes(self) -> list[Stat] | None:
        """Itself and what it has started. None when that cannot be told at the moment; nothing
        of a program whose processes are not to be seen."""

    async def start(self) -> None:
        """Until the program runs under the debugger; raises RelayError when it will not."""

    def on_event(self, server: DebugServer, message: dap.Message) -> bool:
        """Take the events that are about starting; whether this was one."""

    def wake(self) -> None:
        """Make a main thread that sleeps in the kernel run a line, so that a pause reaches it."""

    def state_changed(self) -> None:
        """The session's state is another now."""

    def flush_output(self) -> None:
        """All that the program has written so far is in the output."""

    async def write_input(self, data: bytes, eof: bool) -> None:
        """To its standard input; raises RelayError when it has none."""

    async def end(self, grace: float, for_all: bool = False) -> None:
        """End the program: politely, then not; what it has started too, if it is `for_all`."""

    async def end_children(self) -> list[Ended]:
        """End what it has left running, unless that is to be kept; who that was."""

    async def detach(self) -> None:
        """Let the program run on without us; raises RelayError for one that is ours."""

    @property
    def residue(self) -> str | None:
        """What a detach has left in the program, in words."""

    async def release(self) -> None:
        """Give back what is ours; a launched program must have ended before."""


class ServerListener(Protocol):
    """Who is told what debug servers report, and of their end."""

    def take(self, server: DebugServer, message: dap.Message) -> None: ...

    def server_lost(self, server: DebugServer, why: str) -> None: ...


class Debuggee:
    """The program of the session, and what it takes to launch it again."""

    def __init__(self, log: SessionLog) -> None:
        self._log = log
        self.target: Target | None = None
        self.program: Program | None = None  # as it is shown
        # The fields of the last launch, for the next one, and which of their values were not kept.
        self.arguments: dict[str, Any] | None = None
        self.missing_env: list[str] = []
        self.missing_fields: list[str] = []

    @property
    def attached(self) -> bool:
        """Whether the session has attached to a program that outlives it."""
        return self.target is not None and self.target.attached

    def clear(self) -> None:
        """No program belongs to the session any more."""
        self.target = self.program = None

    async def end_children(self) -> None:
        """End what an ended program has left running."""
        swept = await self.target.end_children() if self.target is not None else []
        if swept:
            self._log.journal("process", {"reason": "swept", "swept": msgspec.to_builtins(swept)})
