"""The program that a session debugs: one that we launched, or that we attached to."""

from __future__ import annotations

from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable
from typing import Any, Literal, Protocol

import msgspec

from debug_relay.protocol.models.blueprint import ShownLaunch
from debug_relay.protocol.models.sessions import Program
from debug_relay.protocol.system.procfs import Stat
from debug_relay.protocol.wire import dap
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.state.log import SessionLog
from debug_relay.worker.system.descendants import Ended


class Target(Protocol):
    """One debugged program, from its start to its end or its release."""

    attached: bool  # it ran before us and outlives us
    keeps_children: bool  # its children are not ended with it

    @property
    def shows(self) -> Literal["safe", "full"]:
        """`safe`: values are rendered without running the program's code."""

    @property
    def pid(self) -> int | None: ...

    def processes(self) -> list[Stat] | None:
        """The program's process and its descendants. None if that cannot be read at the moment;
        empty for a program on another machine or in another container.
        """

    async def start(self) -> None:
        """Return when the program runs under the debugger; raises RelayError if it will not."""

    def on_event(self, server: DebugServer, message: dap.Message) -> bool:
        """Take the events that are about the start; whether this was one."""

    def wake(self) -> None:
        """Make a main thread that sleeps in the kernel run a line, so that a pause reaches it."""

    def state_changed(self) -> None:
        """The session's state has changed."""

    def flush_output(self) -> None:
        """Read all that the program has written so far into the output."""

    async def write_input(self, data: bytes, eof: bool) -> None:
        """Write to the program's standard input; raises RelayError if the worker has none."""

    async def end(self, grace: float, for_all: bool = False) -> None:
        """End the program, after `grace` by SIGKILL; with `for_all` its children, too."""

    async def end_children(self) -> list[Ended]:
        """End the processes that it has left running, unless they are kept; returns them."""

    def kept_pipes(self) -> list[int]:
        """Our descriptors of the pipes that processes which are kept may still write to."""

    async def detach(self) -> None:
        """Detach from the program; raises RelayError for one that we launched."""

    @property
    def residue(self) -> str | None:
        """Describes what a detach has left in the program."""

    async def release(self) -> None:
        """Release our resources; a launched program must have ended before."""


class ServerListener(Protocol):
    """Takes the messages of debug servers, and the end of their connections."""

    def take(self, server: DebugServer, message: dap.Message) -> None: ...

    def server_lost(self, server: DebugServer, why: str) -> None: ...


class Debuggee:
    """The session's program, and the fields with which to launch it again."""

    def __init__(self, log: SessionLog) -> None:
        self._log = log
        self.target: Target | None = None
        self.program: Program | None = None  # the program as callers see it
        # The fields of the last launch, for a restart; the same as they may be shown; and the
        # names of those whose values were not kept.
        self.arguments: dict[str, Any] | None = None
        self.shown_launch: ShownLaunch | None = None
        self.missing_env: list[str] = []
        self.missing_fields: list[str] = []
        # A native program serves the connections to the session's join port itself, and has a
        # notice for callers while it waits for the first one.
        self.serve_debugger: Callable[[StreamReader, StreamWriter], Awaitable[None]] | None = None
        self.notice: str | None = None

    @property
    def attached(self) -> bool:
        """Whether the session has attached to a program that outlives it."""
        return self.target is not None and self.target.attached

    def launched_with(self, arguments: dict[str, Any], shown: ShownLaunch) -> None:
        """Remember the fields of a launch, for the next one."""
        self.arguments, self.shown_launch = arguments, shown

    def clear(self) -> None:
        """Forget the program: none belongs to the session any more."""
        self.target = self.program = None
        self.serve_debugger = self.notice = None

    async def end_children(self) -> list[Ended]:
        """End the processes that an ended program has left running; returns them."""
        swept = await self.target.end_children() if self.target is not None else []
        if swept:
            self._log.journal("process", {"reason": "swept", "swept": msgspec.to_builtins(swept)})
        return swept
