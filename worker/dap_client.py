"""The hub: one session, any number of debug servers, one set of numbers.

Thread ids, frame indices and variable references that leave this module are the session's own,
unique over all its processes and never used twice; what debugpy calls things stays in here.
Nothing here decides: stops and their meaning are `session`'s, breakpoints are `breakpoints`'.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import msgspec
from msgspec import Struct

from debug_relay.protocol import dap
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.fields import Location
from debug_relay.worker.connection import DebugServer, ServerLost

FIRST_REFERENCE: Final = 1000
PATIENCE: Final = 0.5  # with a program's own code, while values are shown
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


class Ignored(Struct):
    """An answer whose fields nobody needs."""


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
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._next_answer = 1
        # One at a time; and while one runs, nothing moves the program away from under it.
        self.evaluating = asyncio.Lock()

    # -- servers

    def add(self, server: DebugServer) -> None:
        self.servers.append(server)

    def forget(self, server: DebugServer) -> None:
        if server in self.servers:
            self.servers.remove(server)
        for thread in [t for t in self._threads.values() if t.server is server]:
            self.thread_ended(server, thread.dap_id)
        for future in self._answers.values():
            if not future.done():
                future.set_exception(ServerLost("the debug server is gone"))
                future.exception()
        self._answers.clear()

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

    async def scope_sizes(self, thread_id: int, index: int, timeout: float) -> dict[str, int]:
        """How many variables the frame's scopes have, by their names; nothing where unknown."""
        server = self.thread(thread_id).server
        if not server.has_probe:
            return {}
        frame = await self.frame(thread_id, index)
        async with self.evaluating:
            answer = await self._ask_thread(
                server, "the scopes' sizes", timeout, "sizes", frame=frame.id
            )
        return {name: count for name, count in answer.items() if name in ("locals", "globals")}

    async def variables(self, reference: int) -> list[dap.Variable]:
        entry = self.resolve(reference)
        answer = await entry.server.request(
            "variables", {"variablesReference": entry.dap_reference}, dap.Variables, self.timeout
        )
        return answer.variables

    # -- the probe

    async def probe(
        self, server: DebugServer, do: str, timeout: float | None = None, /, **arguments: Any
    ) -> Any:
        """One command to the probe inside the program."""
        text = json.dumps({"do": do, **arguments})
        answer = await server.request(
            "evaluate",
            {"expression": f"_relay({text!r})", "context": "repl"},
            dap.Evaluation,
            self.timeout if timeout is None else timeout,
        )
        try:
            return msgspec.json.decode(answer.result)
        except msgspec.DecodeError:
            raise RelayError(
                Code.DEBUGPY_ERROR,
                f"The relay's part inside the program failed at {do}",
                debugger_message=answer.result[:2000],
            ) from None

    def tell_probe(self, server: DebugServer, do: str, **arguments: Any) -> None:
        """One command whose answer nobody needs: the program may be in C for long."""
        text = json.dumps({"do": do, **arguments})
        server.post("evaluate", {"expression": f"_relay({text!r})", "context": "repl"})

    async def find_probe(self, server: DebugServer) -> bool:
        """Whether the probe is in the program; without it there is plain DAP."""
        try:
            await self.probe(server, "hits")
        except RelayError as error:
            if error.code is not Code.DEBUGPY_ERROR or server.lost:
                raise
            server.has_probe = False
        else:
            server.has_probe = True
        return server.has_probe

    def probed(self) -> list[DebugServer]:
        return [server for server in self.servers if server.has_probe]

    def probe_answered(self, body: dict[str, Any]) -> None:
        future = self._answers.pop(body.get("id", 0), None)
        if future is not None and not future.done():
            future.set_result(body)

    async def evaluate(
        self, thread_id: int, frame: dap.StackFrame, text: str, statements: bool, timeout: float
    ) -> dict[str, Any]:
        """Evaluate in a stopped frame, one at a time, interrupted at the deadline.

        debugpy answers many evaluates at once far slower than one after the other.
        """
        server = self.thread(thread_id).server
        try:
            async with asyncio.timeout(timeout):
                await self.evaluating.acquire()
        except TimeoutError:
            raise _evaluate_timeout(text, timeout, still_running=True) from None
        try:
            if not server.has_probe:
                return await self._evaluate_plainly(server, frame, text, statements, timeout)
            return await self._ask_thread(
                server, text, timeout, "evaluate", frame=frame.id, text=text, statements=statements
            )
        finally:
            self.evaluating.release()

    async def page(self, reference: int, timeout: float, **wanted: Any) -> dict[str, Any] | None:
        """A page of what is inside, by the probe; None for programs that have none."""
        entry = self.resolve(reference)
        if not entry.server.has_probe:
            return None
        async with self.evaluating:
            answer = await self._ask_thread(
                entry.server,
                "a page of variables",
                timeout,
                "page",
                impatient=True,
                reference=entry.dap_reference,
                scope=entry.scope,
                **wanted,
            )
        self.resolve(reference)  # raises, if the program has run on meanwhile
        return answer

    async def report(
        self, thread_id: int, frames: int, locals: int, width: int, timeout: float
    ) -> dict[str, Any]:
        """The stop report of a stopped thread, by itself, as it is now."""
        thread = self.thread(thread_id)
        async with self.evaluating:
            return await self._ask_thread(
                thread.server,
                "the stop report",
                timeout,
                "report",
                thread=thread.dap_id,
                frames=frames,
                locals=locals,
                width=width,
            )

    async def raised(self, thread_id: int, timeout: float) -> dict[str, Any] | None:
        """The exception at which a thread stands; what of it takes too long is left out."""
        thread = self.thread(thread_id)
        async with self.evaluating:
            answer = await self._ask_thread(
                thread.server,
                "the exception",
                timeout,
                "exception",
                salvage=True,
                thread=thread.dap_id,
            )
        return answer if "type" in answer else None

    async def assign(
        self, reference: int, name: str, text: str, timeout: float
    ) -> dict[str, Any] | None:
        """Set a variable; None where only DAP can."""
        entry = self.resolve(reference)
        if not entry.server.has_probe:
            return None
        async with self.evaluating:
            return await self._ask_thread(
                entry.server,
                text,
                timeout,
                "assign",
                reference=entry.dap_reference,
                name=name,
                text=text,
                scope=entry.scope,
            )

    async def keep_returns(self, on: bool) -> None:
        """Whether what functions return is kept for `returned`."""
        for server in self.probed():
            await self.probe(server, "returns", on=on)

    async def returned(
        self, server: DebugServer, frame: dap.StackFrame, timeout: float
    ) -> dict[str, Any] | None:
        """What was returned into a stopped frame."""
        if not server.has_probe:
            return None
        async with self.evaluating:
            answer = await self._ask_thread(
                server, "the returned value", timeout, "returned", frame=frame.id
            )
        return answer if "value" in answer else None

    async def _ask_thread(
        self,
        server: DebugServer,
        what: str,
        timeout: float,
        do: str,
        *,
        salvage: bool = False,
        impatient: bool = False,
        **arguments: Any,
    ) -> dict[str, Any]:
        """`salvage`: what was interrupted has an answer all the same, with gaps.

        `impatient`: that soon, and from another thread if the stopped one hangs.
        """
        number = self._next_answer
        self._next_answer += 1
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[number] = future
        try:
            posted = await self.probe(server, do, id=number, **arguments)
            if posted["gone"]:
                return {"gone": True}
            if salvage:
                await self._interrupt_late(server, future, timeout)
            if impatient and await self._interrupt_soon(server, future):
                await self.probe(server, do, id=number, aside=True, **arguments)
            return await self._answer(server, future, number, what, timeout)
        finally:
            self._answers.pop(number, None)

    async def _evaluate_plainly(
        self,
        server: DebugServer,
        frame: dap.StackFrame,
        text: str,
        statements: bool,
        timeout: float,
    ) -> dict[str, Any]:
        """By DAP alone: nothing interrupts what takes too long, and an `exit()` has no answer."""
        arguments = {
            "expression": text,
            "frameId": frame.id,
            "context": "repl" if statements else "watch",
        }
        try:
            answer = await server.request("evaluate", arguments, dap.Evaluation, timeout)
        except RelayError as error:
            said = error.details.get("debugger_message")
            if error.code is Code.DEBUGPY_TIMEOUT:
                raise _evaluate_timeout(text, timeout, still_running=True) from None
            if said is None:
                raise
            last = said.strip().splitlines()[-1]
            kind, _, message = last.partition(": ")
            return {"raised": {"type": kind, "message": message, "traceback": said}}
        return {
            "value": answer.result,
            "type": answer.type,
            "reference": answer.variables_reference,
            "hint": answer.presentation_hint,
            "unknown": True,
        }

    async def _interrupt_late(
        self, server: DebugServer, future: asyncio.Future[dict[str, Any]], timeout: float
    ) -> None:
        """The stop report before it may be what takes long; the last goes to code that goes on."""
        for reports in (True, False, False):
            done, _ = await asyncio.wait([future], timeout=timeout / 3)
            if done:
                return
            await self.probe(server, "interrupt", reports=reports)

    async def _interrupt_soon(
        self, server: DebugServer, future: asyncio.Future[dict[str, Any]]
    ) -> bool:
        """Whether the thread hangs all the same: it stands in C, where nothing ends it."""
        for _ in range(3):  # the stop report may be before it
            done, _ = await asyncio.wait([future], timeout=PATIENCE)
            if done:
                return False
            await self.probe(server, "interrupt", after=PATIENCE * 0.8)
        done, _ = await asyncio.wait([future], timeout=PATIENCE)
        return not done

    async def _answer(
        self,
        server: DebugServer,
        future: asyncio.Future[dict[str, Any]],
        number: int,
        text: str,
        timeout: float,
    ) -> dict[str, Any]:
        try:
            done, _ = await asyncio.wait([future], timeout=timeout)
            if not done:
                # Twice: pydevd swallows the first one while it renders a value.
                for _ in range(2):
                    await self.probe(server, "interrupt", drop=number)
                    done, _ = await asyncio.wait([future], timeout=0.5)
                    if done:
                        break
                raise _evaluate_timeout(text, timeout, still_running=not done)
            return future.result()
        except ServerLost as error:
            raise RelayError(
                Code.DEBUGPY_ERROR,
                f"The program ended while it evaluated: {error}",
                "GET …/status tells how it ended.",
            ) from None


def _hidden(frame: dap.StackFrame) -> bool:
    return frame.source is not None and (frame.source.path or "").endswith(_WAKE_FILE)


def _evaluate_timeout(text: str, timeout: float, still_running: bool) -> RelayError:
    shown = text if len(text) <= 80 else text[:80] + "…"
    if still_running:
        suggestion = "It blocks in C code and ends by itself; GET …/status, or DELETE the session."
    else:
        suggestion = "It was interrupted and the session is as before; give a larger timeout."
    return RelayError(
        Code.DEBUGPY_TIMEOUT,
        f"Evaluating {shown!r} took longer than {timeout:g} s",
        suggestion,
        operation="evaluate",
        timeout=timeout,
        evaluating=still_running,
    )
