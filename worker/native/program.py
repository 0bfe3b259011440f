"""A launched native program, which gdb or lldb debugs through a server of its own.

The worker is the program's parent, as it is a Python program's, so output, input, exit code, limits
and end are the same. The worker does not see what the debugger does: it passes the bytes on and
reads none of them, but for the breakpoints that an lldb must not leave behind.
"""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from typing import Final

import msgspec

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.wire import dap
from debug_relay.worker.debuggee import start_refusals
from debug_relay.worker.debuggee.owned import OwnedProgram
from debug_relay.worker.debuggee.process import Exit
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.input_requests import InputRequests
from debug_relay.worker.debugger.target import Debuggee
from debug_relay.worker.joining.listener import JoinListener
from debug_relay.worker.native import entry_hold, left_breakpoints, remote_protocol
from debug_relay.worker.native.entry_hold import EntryHold
from debug_relay.worker.native.plan import CLIENTS, NativePlan
from debug_relay.worker.native.server import NativeServer
from debug_relay.worker.state.core import Core
from debug_relay.worker.system import descendants

_TAIL_BYTES: Final = 2000  # The end of the output that a failed start shows.
# A debugger learns of the program's end within this time, before its connection is closed.
_LAST_WORDS_SECONDS: Final = 3.0
_FIRST_BYTES: Final = 4096  # The first read of a connection.
# A connection that sends nothing within this time is no debugger.
_SILENT_SECONDS: Final = 30.0
# A debugger that connects waits so long for another one to leave.
_TURN_SECONDS: Final = 1.0
_DROPPED_SECONDS: Final = 10.0  # A debugger's connection that is cancelled ends within this time.


class NativeTarget(OwnedProgram):
    def __init__(
        self,
        plan: NativePlan,
        core: Core,
        debuggee: Debuggee,
        input_requests: InputRequests,
        joining: JoinListener,
    ) -> None:
        super().__init__(core.lifecycle, core.log, input_requests, plan.keep_children)
        self._plan = plan
        self._settings = core.settings
        self._publication = core.publication
        self._debuggee = debuggee
        self._joining = joining
        self._hold: EntryHold | None = None  # until the first debugger has connected
        self._runs = False
        self._client: asyncio.Task[None] | None = None  # serves the debugger that is connected
        self._server: NativeServer | None = None
        self._farewell: asyncio.TimerHandle | None = None

    # -- starting

    async def start(self) -> None:
        plan, timeout = self._plan, self._settings.params.launch_timeout
        try:
            async with asyncio.timeout(timeout):
                process = self._spawn(
                    [plan.target, *plan.args],
                    cwd=plan.cwd,
                    env=plan.env,
                    terminal=plan.terminal,
                    prepare=entry_hold.ask_parent_to_trace if plan.waits else None,
                )
                if plan.waits:
                    self._hold = EntryHold(process.pid)
                    if not await self._hold.begin():
                        await process.wait(timeout)
                        raise await self._failed(_ending(process.exit))
        except TimeoutError:
            raise await self._failed(start_refusals.too_slow(timeout)) from None
        except OSError as error:
            raise await self._failed(start_refusals.not_startable(error)) from None
        except BaseException:
            await self._give_up()
            raise
        self._debuggee.program = msgspec.structs.replace(plan.program, pid=process.pid)
        self._debuggee.serve_debugger = self.serve
        self._runs = True
        self._publish_wait()

    async def _failed(self, reason: str) -> RelayError:
        exit = self._process.exit if self._process else None
        await self._give_up()
        return RelayError(
            Code.LAUNCH_FAILED,
            f"{self._plan.target} could not be run: {reason}",
            "Read output_tail, correct the launch, and send the same call again.",
            exit_code=exit.code if exit else None,
            output_tail=self._log.tail(_TAIL_BYTES),
            program=self._plan.target,
        )

    async def _give_up(self) -> None:
        await self.end(0)
        await self.release()

    # -- its debugger

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Serve one connection to the session's join port."""
        try:
            async with asyncio.timeout(_SILENT_SECONDS):
                first = await reader.read(_FIRST_BYTES)
        except TimeoutError:
            return
        if not first.startswith(remote_protocol.BEGINNINGS):
            return  # a port scan, or an IDE that speaks DAP, must not stop the program
        if self._client is not None:
            # The one before may be about to leave.
            await asyncio.wait([self._client], timeout=_TURN_SECONDS)
        problem = self._refusal()
        if problem is not None:
            await remote_protocol.refuse(first, reader, writer, problem)
            return
        self._client = asyncio.current_task()
        try:
            await self._debug(first, reader, writer)
        finally:
            self._client = None
            self._publish_wait()

    def _refusal(self) -> str | None:
        if self._process is None or self._process.exit is not None:
            return "The program has ended; restart runs it again"
        if self._client is not None:
            return "Another debugger is connected to this session; one at a time"
        return None

    async def _debug(self, first: bytes, reader: StreamReader, writer: StreamWriter) -> None:
        """Let the debugger have the program; `first` is what it has sent so far."""
        assert self._process is not None
        pid = self._process.pid
        try:
            problem = await self._hand_over()
            if problem is not None:
                self._log.say(f"A debugger could not be let in: {problem}")
                await remote_protocol.refuse(first, reader, writer, problem)
                return
            assert self._server is not None
            self._joined(True)
            try:
                await self._server.carry(pid, first, reader, writer)
            finally:
                self._joined(False)
        finally:
            writer.close()
            await self._end_server()

    async def _hand_over(self) -> str | None:
        """Hand the program over to a new native server; returns why that failed, or None."""
        assert self._process is not None
        plan, pid, hold = self._plan, self._process.pid, self._hold
        try:
            if hold is not None:
                hold.hand_over()  # before the server attaches
            self._server = await NativeServer.start(plan.adapter, plan.server, pid)
            said = await self._server.until_attached(pid)
            if said is None and hold is not None:
                hold.taken()
        except OSError as error:
            said = str(error)
        except BaseException:
            if hold is not None:
                hold.release()
            raise
        if said is None and hold is not None:
            self._hold = None
            self._publish_wait()
        elif said is not None:
            await self._end_server()
            if hold is not None:
                await hold.take_back()
            return f"{plan.adapter} could not attach to process {pid}: {said}"
        return None

    async def _end_server(self) -> None:
        if self._server is None:
            return
        await self._server.end()
        if self._server.was_killed:
            await self._remove_breakpoints()
        self._server = None

    async def _remove_breakpoints(self) -> None:
        """A killed server has left them, and the program runs."""
        assert self._process is not None
        if self._process.exit is not None:
            return
        try:
            count = await asyncio.to_thread(left_breakpoints.remove, self._process.pid)
        except OSError as error:
            self._log.say(f"{self._plan.adapter} was killed; its breakpoints stay: {error}")
            return
        if count:
            self._log.say(
                f"{self._plan.adapter} was killed; removed breakpoints that it left in the "
                f"program: {count}"
            )

    def _joined(self, is_there: bool) -> None:
        """Show callers that a debugger has connected, or has left."""
        name = CLIENTS[self._plan.adapter]
        if is_there:
            self._joining.clients.append(name)
        else:
            self._joining.clients.remove(name)
        reason = "debugger_connected" if is_there else "debugger_left"
        self._log.journal("process", {"reason": reason, "adapter": self._plan.adapter})
        self._publication.changed()

    def _publish_wait(self) -> None:
        """Show callers that the program waits for a debugger, as long as it does."""
        notice = None
        if self._hold is not None and self._process is not None and self._process.exit is None:
            notice = (
                "The program waits at its first instruction for a debugger: connect one to "
                f"debugger.uri of {call_of('get-session', self._settings.id)}"
            )
        if notice != self._debuggee.notice:
            self._debuggee.notice = notice
            self._publication.changed()

    def _drop_debugger(self) -> None:
        if self._hold is not None:
            self._hold.release()
            self._hold = None
        if self._server is not None:
            self._server.hang_up()

    # -- its end

    def _report_end(self, exit: Exit, swept: list[descendants.Ended]) -> None:
        if self._client is not None and self._farewell is None:
            loop = asyncio.get_running_loop()
            self._farewell = loop.call_later(_LAST_WORDS_SECONDS, self._client.cancel)
        if self._runs:
            self._runs = False
            self._publish_wait()
            self._lifecycle.ended(exit.code, exit.signal_name, "target_exited", swept)

    async def release(self) -> None:
        if self._farewell is not None:
            self._farewell.cancel()
        if self._client is not None:
            self._client.cancel()
            await asyncio.wait([self._client], timeout=_DROPPED_SECONDS)
        self._debuggee.notice = None
        if self._hold is not None:
            self._hold.release()
            self._hold = None
        await super().release()

    async def detach(self) -> None:
        raise RelayError(
            Code.ATTACH_UNSUPPORTED,
            "The program was launched by this session and ends with it",
            f"In {CLIENTS[self._plan.adapter]}, detach leaves the program running; "
            f"{call_of('terminate')} ends it.",
        )

    # -- what only the relay's own debugger does

    def on_event(self, server: DebugServer, message: dap.Message) -> bool:
        return False

    def wake(self) -> None:
        """Nothing to do: only its debugger pauses the program."""


def _ending(exit: Exit | None) -> str:
    if exit is None:
        return "it did not start"
    return start_refusals.ended_early(exit.code, exit.signal_name)
