"""The hub: one session, any number of debug servers, one set of numbers.

Thread ids, frame indices and variable references that leave this module are the session's own: they
are unique over all its processes and never used twice. debugpy's numbers stay in this module. The
hub decides nothing: `stops` keeps the stops, `breakpoints` the breakpoints.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, Final, TypeVar

from msgspec import Struct

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.wire import dap
from debug_relay.worker.debugger.connection import LOOK_SECONDS, DebugServer
from debug_relay.worker.debugger.stack_frames import FrameList, frame_list

_T = TypeVar("_T")

FIRST_REFERENCE: Final = 1000
# References into frames that run: the oldest go first.
LIVE_REFERENCES: Final = 10_000


class KnownThread(Struct):
    id: int
    server: DebugServer
    dap_id: int
    name: str = ""


class LivePlace(Struct):
    """A value in a frame that runs: the program keeps no object for it, so it is found anew."""

    frame: int
    function: str
    way: list[Any]


class Reference(Struct):
    server: DebugServer
    dap_reference: int
    thread_id: int
    scope: str | None = None  # the scope's name, for the top of a frame
    live: LivePlace | None = None


class Hub:
    def __init__(self, request_timeout: float) -> None:
        self.timeout = request_timeout
        self.servers: list[DebugServer] = []
        self._threads: dict[int, KnownThread] = {}
        self._by_dap: dict[tuple[DebugServer, int], int] = {}
        self._next_thread = 1
        self._references: dict[int, Reference] = {}
        self._reference_of: dict[tuple[DebugServer, int], int] = {}
        self._next_reference = FIRST_REFERENCE
        self._stacks: dict[int, FrameList] = {}
        self._modules: dict[str, str] = {}
        self._next_module = 1

    # -- servers

    def add(self, server: DebugServer, root: bool = False) -> None:
        """`root`: the server is the program's own, not a child's."""
        server.is_child = not root and bool(self.servers)
        self.servers.insert(0 if root else len(self.servers), server)

    def forget(self, server: DebugServer) -> list[int]:
        """Forget a server whose connection has ended; returns its threads' ids."""
        if server in self.servers:
            self.servers.remove(server)
        gone = [t.id for t in self._threads.values() if t.server is server]
        self.forget_stop(server)
        for thread_id in gone:
            self.thread_ended(server, self._threads[thread_id].dap_id)
        return gone

    def close(self) -> None:
        for server in list(self.servers):
            server.close()

    def main_server(self) -> DebugServer:
        """The program's own debug server; raises if its connection was lost."""
        if not self.servers:
            raise RelayError(
                Code.DEBUGPY_ERROR,
                "The program runs without its debugger: the connection to it was lost",
                "Its output can still be read. To debug it, terminate it and launch it in a new "
                "session.",
            )
        return self.servers[0]

    def taking_changes(self) -> list[DebugServer]:
        """The servers to which changes are sent; one in its handshake gets everything by that."""
        return [server for server in self.servers if server.takes_changes]

    async def each(
        self, servers: Iterable[DebugServer], ask: Callable[[DebugServer], Awaitable[_T]]
    ) -> list[_T]:
        """Ask processes side by side; returns the answers of those that gave one.

        The program itself must answer. A child may end at any moment, or hang in C: after
        `LOOK_SECONDS` we do not wait for it. It does what was requested when it runs Python again.
        """

        async def answer(server: DebugServer) -> tuple[_T] | None:
            if not server.is_child:
                return (await ask(server),)
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    return (await ask(server),)
            except TimeoutError:
                return None
            except RelayError as error:
                if server.lost or error.code is Code.DEBUGPY_TIMEOUT:
                    return None
                raise

        chosen = list(servers)
        if len(chosen) == 1:
            answers = [await answer(chosen[0])]
        else:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(_kept(answer(server))) for server in chosen]
            answers = [kept() for kept in (task.result() for task in tasks)]
        return [given[0] for given in answers if given is not None]

    # -- threads

    def thread_id(self, server: DebugServer, dap_id: int) -> int:
        """The session's number for a thread; a thread that is met first gets a new number."""
        key = (server, dap_id)
        known = self._by_dap.get(key)
        if known is None:
            known = self._by_dap[key] = self._next_thread
            self._threads[known] = KnownThread(known, server, dap_id)
            self._next_thread += 1
        return known

    def thread_ended(self, server: DebugServer, dap_id: int) -> int | None:
        thread_id = self._by_dap.pop((server, dap_id), None)
        if thread_id is not None:
            self._threads.pop(thread_id, None)
            self._stacks.pop(thread_id, None)
        return thread_id

    def thread_ids(self) -> list[int]:
        return sorted(self._threads)

    def knows(self, thread_id: int) -> bool:
        return thread_id in self._threads

    def process_of(self, thread_id: int) -> DebugServer | None:
        known = self._threads.get(thread_id)
        return known.server if known is not None else None

    def thread(self, thread_id: int) -> KnownThread:
        thread = self._threads.get(thread_id)
        if thread is None:
            raise RelayError(
                Code.THREAD_NOT_FOUND,
                f"The program has no thread {thread_id}",
                f"Its threads are {self.thread_ids()}; {call_of('threads')} names them.",
                thread_id=thread_id,
                threads=self.thread_ids(),
            )
        return thread

    async def refresh_threads(
        self, silent: Collection[DebugServer] = ()
    ) -> tuple[list[KnownThread], list[DebugServer]]:
        """The threads that live now, with their names; and the servers that do not answer, whose
        threads are those that are known from before. Those that are silent already are not asked.
        """
        alive: list[KnownThread] = []

        async def ask(server: DebugServer) -> tuple[DebugServer, dap.Threads | None]:
            try:
                return server, await server.request("threads", None, dap.Threads, LOOK_SECONDS)
            except RelayError as error:
                if error.code is not Code.DEBUGPY_TIMEOUT:
                    raise
                return server, None

        asked = self.taking_changes()
        answers = dict(await self.each([one for one in asked if one not in silent], ask))
        silent = [server for server in asked if not (server.lost or answers.get(server))]
        for server, listed in answers.items():
            if server.lost or listed is None:
                continue
            for entry in listed.threads:
                thread = self._threads[self.thread_id(server, entry.id)]
                thread.name = entry.name
                alive.append(thread)
        alive += [thread for thread in self._threads.values() if thread.server in silent]
        return sorted(alive, key=lambda thread: thread.id), silent

    # -- stacks

    async def stack(
        self, thread_id: int, start: int, levels: int, timeout: float | None = None
    ) -> FrameList:
        """A part of the thread's stack; it is fetched once for each stop of the thread."""
        known = self._stacks.get(thread_id)
        if known is None or (start + levels > len(known.frames) < known.total):
            known = await self._fetch_stack(
                self.thread(thread_id), start + levels, self.timeout if timeout is None else timeout
            )
            self._stacks[thread_id] = known
        return FrameList(known.frames[start : start + levels], known.total)

    async def _fetch_stack(self, thread: KnownThread, wanted: int, timeout: float) -> FrameList:
        answer = await thread.server.request(
            "stackTrace",
            # One more than wanted, because the top frame may be hidden.
            {"threadId": thread.dap_id, "startFrame": 0, "levels": max(wanted, 20) + 1},
            dap.StackTrace,
            timeout,
        )
        return frame_list(answer)

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

    def forget_stop(self, of: int | DebugServer) -> None:
        """Forget frames and references of a thread, or of a whole process, that runs again."""
        if isinstance(of, int):
            threads = {of}
        else:
            threads = {thread.id for thread in self._threads.values() if thread.server is of}
        for thread_id in threads:
            self._stacks.pop(thread_id, None)
        gone = [ref for ref, entry in self._references.items() if entry.thread_id in threads]
        for reference in gone:
            entry = self._references.pop(reference)
            self._reference_of.pop((entry.server, entry.dap_reference), None)

    def forget_stops(self) -> None:
        """Forget all frames and references: every thread runs again."""
        self._stacks.clear()
        self._references.clear()
        self._reference_of.clear()

    def module_paths(self) -> list[str]:
        return list(self._modules)

    # -- modules: debugpy reports each once, by an event

    def module_loaded(self, module: dap.Module) -> int:
        """The session's number for the module."""
        self._next_module += 1
        if module.path:
            self._modules[module.path] = module.name
        return self._next_module - 1

    def module_of(self, path: str | None) -> str | None:
        return self._modules.get(path) if path else None

    # -- references

    def reference(
        self, server: DebugServer, dap_reference: int, thread_id: int, scope: str | None = None
    ) -> int:
        """The session's number for a value that can be expanded; 0 for one that cannot."""
        if not dap_reference:
            return 0
        key = (server, dap_reference)
        known = self._reference_of.get(key)
        if known is None:
            known = self._reference_of[key] = self._next_reference
            self._references[known] = Reference(server, dap_reference, thread_id, scope)
            self._next_reference += 1
        return known

    def live_reference(self, thread: KnownThread, scope: str, place: LivePlace) -> int:
        """The session's number for a scope, or a value in it, of a frame that runs."""
        live = [number for number, known in self._references.items() if known.live is not None]
        for number in live[: max(0, len(live) - LIVE_REFERENCES + 1)]:
            del self._references[number]
        self._references[self._next_reference] = Reference(
            thread.server, 0, thread.id, scope, place
        )
        self._next_reference += 1
        return self._next_reference - 1

    def is_live(self, reference: int) -> bool:
        entry = self._references.get(reference)
        return entry is not None and entry.live is not None

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
            f"{call_of('scopes')} gives the references of the present stop.",
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


async def _kept(answer: Awaitable[_T]) -> Callable[[], _T]:
    """Keep a result or an error for later, so that an error does not cancel the other requests."""
    try:
        result = await answer
    except RelayError as error:
        failure = error

        def fail() -> _T:
            raise failure

        return fail
    return lambda: result
