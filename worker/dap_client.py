"""The hub: one session, any number of debug servers, one set of numbers.

Thread ids, frame indices and variable references that leave this module are the session's own,
unique over all its processes and never used twice; what debugpy calls things stays in here.
Nothing here decides: stops and their meaning are `session`'s, breakpoints are `breakpoints`'.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from debug_relay.protocol import dap
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.fields import Location
from debug_relay.worker.connection import DebugServer

FIRST_REFERENCE: Final = 1000
_WAKE_FILE: Final = "<relay wake>"  # bootstrap's signal handler: where a woken thread stops
_DECORATIONS: Final = (" (Current frame)",)


class KnownThread(Struct):
    id: int
    server: DebugServer
    dap_id: int
    name: str = ""


class Reference(Struct):
    server: DebugServer
    dap_reference: int
    thread_id: int
    scope: str | None = None  # the scope's name, for the top of a frame


class FrameList(Struct):
    frames: list[dap.StackFrame]
    total: int


class Hub:
    def __init__(self, request_timeout: float) -> None:
        self.timeout = request_timeout
        self.servers: list[DebugServer] = []
        self._threads: dict[int, KnownThread] = {}
        self._by_dap: dict[tuple[int, int], int] = {}
        self._next_thread = 1
        self._references: dict[int, Reference] = {}
        self._reference_of: dict[tuple[int, int], int] = {}
        self._next_reference = FIRST_REFERENCE
        self._stacks: dict[int, FrameList] = {}
        self._modules: dict[str, str] = {}
        self._next_module = 1
        self._places: dict[tuple[int, int], Location] = {}

    # -- servers

    def add(self, server: DebugServer) -> None:
        self.servers.append(server)

    def forget(self, server: DebugServer) -> None:
        if server in self.servers:
            self.servers.remove(server)
        for thread in [t for t in self._threads.values() if t.server is server]:
            self.thread_ended(server, thread.dap_id)

    def close(self) -> None:
        for server in list(self.servers):
            server.close()

    def main_server(self) -> DebugServer:
        if not self.servers:
            raise RelayError(
                Code.DEBUGPY_ERROR,
                "The program runs without its debugger: the connection to it was lost",
                "The output can still be read; terminate, and launch in a new session to debug.",
            )
        return self.servers[0]

    # -- threads

    def thread_id(self, server: DebugServer, dap_id: int) -> int:
        """Our number for a thread; a new one if we have not met it."""
        key = (id(server), dap_id)
        known = self._by_dap.get(key)
        if known is None:
            known = self._by_dap[key] = self._next_thread
            self._threads[known] = KnownThread(known, server, dap_id)
            self._next_thread += 1
        return known

    def thread_ended(self, server: DebugServer, dap_id: int) -> int | None:
        thread_id = self._by_dap.pop((id(server), dap_id), None)
        if thread_id is not None:
            self._threads.pop(thread_id, None)
            self._stacks.pop(thread_id, None)
        return thread_id

    def thread_ids(self) -> list[int]:
        return sorted(self._threads)

    def knows(self, thread_id: int) -> bool:
        return thread_id in self._threads

    def thread(self, thread_id: int) -> KnownThread:
        thread = self._threads.get(thread_id)
        if thread is None:
            raise RelayError(
                Code.THREAD_NOT_FOUND,
                f"The program has no thread {thread_id}",
                f"Its threads are {self.thread_ids()}; GET …/threads names them.",
                thread_id=thread_id,
                threads=self.thread_ids(),
            )
        return thread

    async def refresh_threads(self) -> list[KnownThread]:
        """The threads that live now, with their names."""
        alive: list[KnownThread] = []
        for server in self.servers:
            listed = await server.request("threads", None, dap.Threads, self.timeout)
            for entry in listed.threads:
                thread = self._threads[self.thread_id(server, entry.id)]
                thread.name = entry.name
                alive.append(thread)
        return sorted(alive, key=lambda thread: thread.id)

    # -- stacks

    async def stack(self, thread_id: int, start: int, levels: int) -> FrameList:
        """A window of the thread's stack. While the thread is stopped it is asked for once."""
        known = self._stacks.get(thread_id)
        if known is None or (start + levels > len(known.frames) < known.total):
            known = await self._fetch_stack(self.thread(thread_id), start + levels)
            self._stacks[thread_id] = known
        return FrameList(known.frames[start : start + levels], known.total)

    async def _fetch_stack(self, thread: KnownThread, wanted: int) -> FrameList:
        answer = await thread.server.request(
            "stackTrace",
            # one more than wanted: a hidden frame may lie on top
            {"threadId": thread.dap_id, "startFrame": 0, "levels": max(wanted, 20) + 1},
            dap.StackTrace,
            self.timeout,
        )
        frames = [frame for frame in answer.stack_frames if not _hidden(frame)]
        for frame in frames:
            for decoration in _DECORATIONS:
                frame.name = frame.name.removesuffix(decoration)
        hidden = len(answer.stack_frames) - len(frames)
        return FrameList(frames, max(answer.total_frames - hidden, len(frames)))

    async def frame(self, thread_id: int, index: int) -> dap.StackFrame:
        window = await self.stack(thread_id, index, 1)
        if not window.frames:
            last = window.total - 1
            raise RelayError(
                Code.FRAME_NOT_FOUND,
                f"Thread {thread_id} has no frame {index}: its stack has {window.total} frames",
                f"Use a frame_id from 0 to {last}." if last >= 0 else "Pause the thread first.",
                frame_id=index,
                total_frames=window.total,
                thread_id=thread_id,
            )
        return window.frames[0]

    def forget_stop(self, thread_id: int | None = None) -> None:
        """Threads run again: their frames and references are of the past."""
        if thread_id is None:
            self._stacks.clear()
            self._references.clear()
            self._reference_of.clear()
            return
        self._stacks.pop(thread_id, None)
        gone = [ref for ref, entry in self._references.items() if entry.thread_id == thread_id]
        for reference in gone:
            entry = self._references.pop(reference)
            self._reference_of.pop((id(entry.server), entry.dap_reference), None)

    # -- modules: debugpy names them by events, once each

    def module_loaded(self, module: dap.Module) -> int:
        """Our number for it."""
        self._next_module += 1
        if module.path:
            self._modules[module.path] = module.name
        return self._next_module - 1

    def module_of(self, path: str | None) -> str | None:
        return self._modules.get(path) if path else None

    # -- where a thread has just stopped, told in front of its stop

    def keep_place(self, server: DebugServer, dap_thread: int, place: Location) -> None:
        self._places[id(server), dap_thread] = place

    def take_place(self, server: DebugServer, dap_thread: int) -> Location | None:
        return self._places.pop((id(server), dap_thread), None)

    # -- references

    def reference(
        self, server: DebugServer, dap_reference: int, thread_id: int, scope: str | None = None
    ) -> int:
        """Our number for something that can be expanded; 0 for what cannot."""
        if not dap_reference:
            return 0
        key = (id(server), dap_reference)
        known = self._reference_of.get(key)
        if known is None:
            known = self._reference_of[key] = self._next_reference
            self._references[known] = Reference(server, dap_reference, thread_id, scope)
            self._next_reference += 1
        return known

    def resolve(self, reference: int) -> Reference:
        entry = self._references.get(reference)
        if entry is not None:
            return entry
        earlier = FIRST_REFERENCE <= reference < self._next_reference
        raise RelayError(
            Code.VARIABLE_NOT_FOUND,
            f"Reference {reference} is from an earlier stop; the program has run since"
            if earlier
            else f"There is no reference {reference}",
            "GET …/scopes gives the references of the present stop.",
            variables_reference=reference,
            from_earlier_stop=earlier,
        )

    async def scopes(self, thread_id: int, index: int) -> list[tuple[dap.Scope, int]]:
        frame = await self.frame(thread_id, index)
        server = self.thread(thread_id).server
        answer = await server.request("scopes", {"frameId": frame.id}, dap.Scopes, self.timeout)
        return [
            (scope, self.reference(server, scope.variables_reference, thread_id, scope.name))
            for scope in answer.scopes
        ]

    async def variables(self, reference: int) -> list[dap.Variable]:
        entry = self.resolve(reference)
        answer = await entry.server.request(
            "variables", {"variablesReference": entry.dap_reference}, dap.Variables, self.timeout
        )
        return answer.variables


def _hidden(frame: dap.StackFrame) -> bool:
    return frame.source is not None and (frame.source.path or "").endswith(_WAKE_FILE)
