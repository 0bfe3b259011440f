"""Resumes, steps and pauses the program, and makes the result of such a call."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from msgspec import Struct

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models import execution as e
from debug_relay.protocol.state import STARTED, State
from debug_relay.protocol.wire import probe_messages as probe
from debug_relay.worker.debugger import thread_positions
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.debugging import Debugging
from debug_relay.worker.debugger.hub import KnownThread
from debug_relay.worker.debugger.input_requests import InputRequests
from debug_relay.worker.source.excerpts import Sources
from debug_relay.worker.state.core import Core

# A running main thread has this long to stop by itself before a signal wakes it.
_WAKE_SECONDS: Final = 0.05
_WAKE_AGAIN_SECONDS: Final = 0.5  # The pause before the second signal.
_LOOK_SECONDS: Final = 1.0  # The program says within this time where the selected thread is.
_OTHERS_SECONDS: Final = 0.3  # After one thread has stopped, the others have this long to stop too.


class RunCommand(Struct):
    """A call that resumes a program, and the stop that it waits for."""

    before: int  # the id of the stop before
    thread: KnownThread
    alone: bool
    questions: int  # how often the program had asked for input before
    steps: bool = False

    @property
    def awaited(self) -> int | None:
        """The thread whose stop ends the call; None for any thread."""
        return self.thread.id if self.alone else None

    @property
    def process(self) -> DebugServer | None:
        """The process whose stop ends the call: a step ends in its own process."""
        return self.thread.server if self.steps else None


class RunControl:
    def __init__(
        self, core: Core, debugging: Debugging, input_requests: InputRequests, sources: Sources
    ) -> None:
        self._settings = core.settings
        self._lifecycle = core.lifecycle
        self._log = core.log
        self._publication = core.publication
        self._hub = debugging.hub
        self._probes = debugging.probes
        self._stops = debugging.stops
        self._debuggee = debugging.debuggee
        self._input = input_requests
        self._sources = sources
        # Calls that change the run hold this, one after the other.
        self.lock = asyncio.Lock()

    # -- resuming

    def command(self, thread_id: int | None, *, steps: bool = False) -> RunCommand:
        """Make the command for the named thread, or for the selected one."""
        thread = self.thread_to_move(thread_id)
        named = thread_id is not None
        # Without a named thread `continue` resumes all, and a step as `stop_all` says.
        alone = self.is_alone(thread, named) if named or steps else False
        return RunCommand(self._stops.stop_id, thread, alone, self._input.count, steps)

    def thread_to_move(self, thread_id: int | None) -> KnownThread:
        assert self._stops.current is not None
        thread = self._hub.thread(thread_id or self._stops.current.thread_id)
        if thread.id not in self._stops.threads:
            raise self._thread_state(thread.id, "is running", State.PAUSED)
        return thread

    def _thread_state(self, thread_id: int, does: str, required: State) -> RelayError:
        """409: the session is in the right state, and this thread is not."""
        next_call = "pause" if required is State.PAUSED else "continue"
        stopped = self._stops.stopped_threads()
        return RelayError(
            Code.INVALID_SESSION_STATE,
            f"Thread {thread_id} {does}; paused threads: {stopped}",
            f"{call_of(next_call, self._settings.id, thread_id=thread_id)} first; "
            f"{call_of('threads')} shows the state of each.",
            current_state=self._lifecycle.state.value,
            required_state=required.value,
            thread_id=thread_id,
            stopped_threads=stopped,
        )

    def is_alone(self, thread: KnownThread, named: bool) -> bool:
        """Whether only this thread is to be resumed."""
        if not named and self._settings.config.stop_all:
            return False
        if thread.server.engine.can.move_single_threads:
            return True
        if self._hub.thread_ids() == [thread.id]:
            return False  # there are no others
        raise RelayError(
            Code.ATTACH_UNSUPPORTED if self._debuggee.attached else Code.DEBUGPY_ERROR,
            "This session has no probe (attached by port): all its threads are resumed, or none",
            f"Leave thread_id out: {call_of('continue')}.",
            thread_id=thread.id,
        )

    async def resume(self, command: RunCommand, how: str, stopped: list[int]) -> None:
        """Resume the program. With `stop_all: false` resume exactly the threads that were `stopped`
        when the call was made: another thread may stop meanwhile, and no caller has seen its stop.
        """
        if command.alone:
            await self._resume_alone([command.thread], how)
        elif (
            not self._settings.config.stop_all
            and command.thread.server.engine.can.move_single_threads
        ):
            threads = [self._hub.thread(id) for id in stopped if self._hub.knows(id)]
            await self._resume_alone(threads, how)
        elif how == "continue":
            self.resume_all()
        else:
            self.resume_process(command.thread, how)

    def resume_process(self, thread: KnownThread, how: str) -> None:
        """Resume the thread's process, or step the thread.

        The answer is not awaited: debugpy may leave `continue` unanswered when another thread stops
        at once. The stop that follows is the answer.
        """
        arguments: dict[str, Any] = {"threadId": thread.dap_id}
        server = thread.server
        if server.lost:
            self._hub.main_server()  # raises DEBUGPY_ERROR if no server is left
        self._stops.resumed(server)
        server.resumes += 1
        server.post(how, arguments)

    def resume_all(self) -> None:
        """Resume all threads of every process that has a stopped thread."""
        resumed: set[DebugServer] = set()
        for thread_id in self._stops.stopped_threads():
            thread = self._hub.thread(thread_id)
            if thread.server not in resumed:
                resumed.add(thread.server)
                self.resume_process(thread, "continue")

    async def _resume_alone(self, threads: list[KnownThread], how: str) -> None:
        """Resume these threads; the others stay as they are."""
        numbers: dict[DebugServer, list[int]] = {}
        for thread in threads:
            numbers.setdefault(thread.server, []).append(thread.dap_id)
            self._stops.resumed(thread.server, thread.id)
        await self._hub.each(
            numbers,
            lambda server: self._probes.ask(server, probe.Alone(threads=numbers[server], how=how)),
        )
        await self._locate()

    async def _locate(self) -> None:
        """Find out where the selected thread is, if another thread's stop has halted it."""
        stop = self._stops.current
        if stop is None or stop.location is not None:
            return
        known = await thread_positions.of_threads(self._probes, _LOOK_SECONDS)
        if self._stops.current is not stop:
            return
        here = known.get(stop.thread_id)
        if here is None or not here.is_stopped:
            stopped = self._stops.stopped_threads()
            suspended = [id for id in stopped if id in known and known[id].is_stopped]
            stop.thread_id = suspended[0] if suspended else stop.thread_id
            here = known.get(stop.thread_id)
        stop.location = here.place if here is not None else None
        if stop.location is not None:
            self._stops.located(stop, await self._sources.lines(stop.location.path))
        self._publication.changed()

    async def until_stopped(
        self, command: RunCommand, timeout: float, abandoned: asyncio.Event
    ) -> bool:
        """Wait; whether the command's stop came in time, or the program ended. The wait also ends
        when the program asks for input.
        """

        def stopped() -> bool:
            return self.has_stopped(command.before, command.awaited, command.process)

        def over() -> bool:
            return stopped() or self._input.began_since(command.questions)

        await self._publication.until(over, timeout, abandoned)
        return stopped()

    async def until_started(
        self, after: int, timeout: float, abandoned: asyncio.Event, questions: int | None = None
    ) -> bool:
        """Wait; whether a program that was just started stopped, or ended, in time. With
        `questions` the wait also ends when the program has asked for input more often than that.
        """

        def at_rest() -> bool:
            state = self._lifecycle.state
            return state not in (State.RUNNING, State.LAUNCHING) and (
                self._stops.stop_id > after or state is not State.PAUSED
            )

        def over() -> bool:
            asks = questions is not None and self._input.began_since(questions)
            return at_rest() or asks

        await self._publication.until(over, timeout, abandoned)
        return at_rest()

    # -- pausing

    def request_pause(self) -> None:
        self._hub.main_server()
        for server in self._hub.servers:
            server.post("pause", {"threadId": "*"})

    def request_halt(self, thread: KnownThread) -> None:
        """Ask the probe to stop this thread; with `stop_all` its stop halts the others too."""
        self._hub.main_server()
        self._probes.send(thread.server, probe.Halt(thread=thread.dap_id))

    def has_none_to_pause(self, thread_id: int | None) -> bool:
        """Whether all threads are stopped. A named thread that is stopped raises 409."""
        if thread_id is None:
            return self._stops.stopped_threads() == self._hub.thread_ids()
        self._hub.thread(thread_id)
        if thread_id in self._stops.threads:
            raise self._thread_state(thread_id, "is already paused", State.RUNNING)
        return False

    async def until_paused(
        self,
        before: int,
        timeout: float,
        abandoned: asyncio.Event,
        thread_id: int | None = None,
    ) -> bool:
        """Wait for the stop; wake a main thread that sleeps in the kernel, so that it stops."""

        def at_rest() -> bool:
            return self.has_stopped(before, thread_id)

        for patience in (_WAKE_SECONDS, _WAKE_AGAIN_SECONDS):
            if await self._publication.until(at_rest, min(patience, timeout), abandoned):
                return True
            timeout -= patience
            target = self._debuggee.target
            if timeout <= 0 or abandoned.is_set() or target is None:
                return False
            target.wake()
        is_running = self._lifecycle.state is State.RUNNING
        if thread_id is not None and is_running and self._settings.config.stop_all:
            # The named thread does not stop. The others can: report their stop.
            self.request_pause()
        return await self._publication.until(at_rest, timeout, abandoned)

    async def until_others_stop(self, abandoned: asyncio.Event) -> None:
        """A pause stops all processes. Wait for those that stop soon, or a `continue` that follows
        at once would miss them. Wake those that sleep in the kernel, as the first was.
        """
        servers = self._hub.servers

        def all_stopped() -> bool:
            return all(self._stops.threads.latest(server) is not None for server in servers)

        for patience in (_WAKE_SECONDS, _WAKE_AGAIN_SECONDS):
            if len(servers) < 2 or await self._publication.until(all_stopped, patience, abandoned):
                return
            if abandoned.is_set() or self._debuggee.target is None:
                return
            self._debuggee.target.wake()
        await self._publication.until(all_stopped, _OTHERS_SECONDS, abandoned)

    def has_stopped(
        self, before: int, thread_id: int | None, process: DebugServer | None = None
    ) -> bool:
        """Whether the program, or just this process or thread, has stopped anew or ended."""
        state = self._lifecycle.state
        if state not in STARTED:
            return True
        if process is not None and thread_id is None:
            stop = self._stops.threads.latest(process)
            if stop is not None and stop.stop_id > before:
                return True
            # The kernel reports the end of the program itself; the state then shows it.
            return process.is_child and process.lost
        if thread_id is None:
            return state is State.PAUSED and self._stops.stop_id > before
        return thread_id in self._stops.threads or not self._hub.knows(thread_id)

    # -- ending

    async def end_program(self, grace: float, for_all: bool = False) -> None:
        """End the program and all its children; with `for_all` the children have the grace, too."""
        target = self._debuggee.target
        if target is not None and self._lifecycle.state in STARTED:
            await target.end(grace, for_all)

    async def detach(self) -> None:
        """Detach from the program, which runs on; the session's state is `created` again."""
        target = self._debuggee.target
        assert target is not None
        await target.detach()
        await target.release()
        self._lifecycle.detached()

    # -- the result of a call

    def result(
        self,
        completed: bool,
        thread_id: int | None = None,
        process: DebugServer | None = None,
    ) -> e.Execution:
        """The result of an execution call: the place of the selected thread, or of this thread or
        process if it is stopped.
        """
        stop = self._stops.current
        if stop is not None and thread_id is not None:
            stop = self._stops.threads.of(thread_id) or stop
        elif stop is not None and process is not None:
            stop = self._stops.threads.latest(process) or stop
        waiting = self._input.waiting
        return e.Execution(
            session_id=self._settings.id,
            status=self._lifecycle.state,
            completed=completed,
            stop_reason=stop.reason if stop else None,
            stop_id=stop.stop_id if stop else self._stops.stop_id,
            thread_id=stop.thread_id if stop else None,
            child_pid=stop.pid if stop and stop.is_child else None,
            current_location=stop.location if stop else None,
            exception=stop.passed if stop else None,
            exit_code=self._lifecycle.exit_code,
            signal=self._lifecycle.signal,
            end_reason=self._lifecycle.end_reason,
            waiting_for_input=waiting is not None,
            prompt=waiting.prompt if waiting else None,
            events_cursor=self._log.events.cursor,
        )
