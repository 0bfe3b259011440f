"""Keeps the session's present stop, and notifies listeners when it changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.hub import Hub
from debug_relay.worker.debugger.stopped_threads import Stop, StoppedThreads
from debug_relay.worker.state.core import Core


class StopListener(Protocol):
    """A part of the session that keeps something about the present stop."""

    def ended(self) -> None:
        """All threads run again, or the program has ended."""

    def turn_to(self, stop: Stop, server: DebugServer) -> None:
        """Another stopped thread is selected now."""

    def located(self, stop: Stop, lines: list[str] | None) -> None:
        """The selected thread's place was found later; `lines` are those of that file."""


class Stops:
    def __init__(self, core: Core, hub: Hub) -> None:
        self._hub = hub
        self._lifecycle = core.lifecycle
        self._log = core.log
        self._publication = core.publication
        self._listeners: Sequence[StopListener] = ()
        self.current: Stop | None = None  # the selected thread's stop
        self.stop_id = core.settings.params.stop_id  # of the last stop
        self.threads = StoppedThreads(hub.process_of)

    def listen(self, *listeners: StopListener) -> None:
        self._listeners = listeners

    def stopped_threads(self) -> list[int]:
        return [thread_id for thread_id in self._hub.thread_ids() if thread_id in self.threads]

    def begin(self, stop: Stop, everyone: bool) -> None:
        """A thread has stopped, and with `everyone` all others of its process."""
        self.stop_id = stop.stop_id
        self.current = stop
        self.threads.stopped(stop, everyone)

    def resumed(self, server: DebugServer, thread_id: int | None = None) -> None:
        """Note that all threads of a process, or this thread, run again: forget what was read."""
        if self.current is None:
            return
        if thread_id is None:
            self._hub.forget_stop(server)
            self.threads.resume_process(server)
        else:
            self._hub.forget_stop(thread_id)
            self.threads.resume(thread_id)
        self._select()
        self._journal_resumed(server, thread_id)

    def thread_ended(self, server: DebugServer, dap_id: int) -> int | None:
        """Forget a thread that has ended; it may have been the last stopped one."""
        thread_id = self._hub.thread_ended(server, dap_id)
        if thread_id is not None and self.current is not None:
            self.threads.ended(thread_id)
            self._select()
        return thread_id

    def server_lost(self, server: DebugServer, had_stopped: bool) -> None:
        """`had_stopped`: a thread of this server was stopped before the hub forgot them."""
        self.threads.resume_process(server)
        if had_stopped and self.current is not None:
            self._select()
            self._journal_resumed(server, None)

    def has_stopped_threads(self, server: DebugServer) -> bool:
        return any(self._hub.process_of(id) is server for id in self.stopped_threads())

    def clear(self) -> None:
        """The program has ended, or runs on without us."""
        for listener in self._listeners:
            listener.ended()
        self.threads.clear()
        self.current = None

    def located(self, stop: Stop, lines: list[str] | None) -> None:
        for listener in self._listeners:
            listener.located(stop, lines)

    def _select(self) -> None:
        """Keep the selected thread while it is stopped; else select another stopped one."""
        assert self.current is not None
        left = self.stopped_threads()
        if not left:
            self.clear()
            self._lifecycle.resumed()
            return
        if self.current.thread_id not in self.threads:
            self.current = self.threads.latest() or self._halted(left[0])
            server = self._hub.thread(self.current.thread_id).server
            for listener in self._listeners:
                listener.turn_to(self.current, server)
        self._publication.changed()

    def _halted(self, thread_id: int) -> Stop:
        """Make the stop of a thread that only another's stop has halted; `RunControl` finds out
        where it is.
        """
        server = self._hub.thread(thread_id).server
        return Stop(
            thread_id, "pause", None, None, [], self.stop_id, server.pid or None, server.is_child
        )

    def _journal_resumed(self, server: DebugServer, thread_id: int | None) -> None:
        self._log.journal(
            "continued",
            {
                "thread_id": thread_id,
                "all_threads_continued": thread_id is None,
                "pid": server.pid or None,
            },
        )
