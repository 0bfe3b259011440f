"""Asking the probes inside the programs: commands, and questions that a stopped thread answers.

A command is answered by the debugger's thread at once. A question is posted to the stopped thread;
its answer is an event, and what takes too long is interrupted. What a question means is its
caller's; whose thread or reference it is about, the hub knows.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import asdict, replace

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.wire import dap
from debug_relay.protocol.wire import probe_messages as probe
from debug_relay.worker.debugger.connection import DebugServer, ServerLost
from debug_relay.worker.debugger.hub import Hub

T = TypeVar("T")
PATIENCE: Final = 0.5  # with a program's own code, while values are shown
_SYNTAX_ERRORS: Final = frozenset({"SyntaxError", "IndentationError", "TabError"})


class Question(Struct):
    server: DebugServer
    answer: asyncio.Future[dict[str, Any]]


class Asking:
    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self._questions: dict[int, Question] = {}
        self._next_question = 1

    # -- commands

    async def ask(
        self, server: DebugServer, request: probe.Request[T], timeout: float | None = None
    ) -> T:
        """One request to the probe inside the program."""
        reply: probe.Reply[T] = await server.request(
            probe.COMMAND,
            probe.arguments_of(request),
            probe.reply_to(type(request)),
            self.hub.timeout if timeout is None else timeout,
        )
        return reply.result

    def tell(self, server: DebugServer, request: probe.Request[Any]) -> None:
        """One request whose answer nobody needs: the program may be in C for long."""
        server.post(probe.COMMAND, probe.arguments_of(request))

    async def find_probe(self, server: DebugServer) -> bool:
        """Whether the probe is in the program; without it there is plain DAP."""
        try:
            await self.ask(server, probe.Hits())
        except RelayError as error:
            if error.code is not Code.DEBUGPY_ERROR or server.lost:
                raise
            server.has_probe = False
        else:
            server.has_probe = True
        return server.has_probe

    def probed(self) -> list[DebugServer]:
        return [server for server in self.hub.hearing() if server.has_probe]

    @contextlib.asynccontextmanager
    async def nobody_evaluates(self) -> AsyncIterator[None]:
        """While this is held nothing is evaluated anywhere: threads may be moved.

        Only who is driving takes more than one process' turn, so nobody waits in a circle.
        """
        async with contextlib.AsyncExitStack() as turns:
            for server in list(self.hub.servers):
                await turns.enter_async_context(server.evaluating)
            yield

    # -- questions

    async def evaluate(
        self, thread_id: int, frame: dap.StackFrame, text: str, context: str, timeout: float
    ) -> dict[str, Any]:
        """Evaluate in a stopped frame, one at a time a process, interrupted at the deadline.

        debugpy answers many evaluates at once far slower than one after the other.
        """
        server = self.hub.thread(thread_id).server
        async with _turn(server, text, timeout):
            if not server.has_probe:
                return await self._evaluate_plainly(server, frame, text, context, timeout)
            return await self._ask_thread(
                server, text, timeout, probe.Evaluate(frame=frame.id, text=text, context=context)
            )

    async def scope_sizes(self, thread_id: int, index: int, timeout: float) -> dict[str, int]:
        """How many variables the frame's scopes have, by their names; nothing where unknown."""
        server = self.hub.thread(thread_id).server
        if not server.has_probe:
            return {}
        frame = await self.hub.frame(thread_id, index)
        async with server.evaluating:
            answer = await self._ask_thread(
                server, "the scopes' sizes", timeout, probe.Sizes(frame=frame.id)
            )
        return {name: count for name, count in answer.items() if name in ("locals", "globals")}

    async def page(self, reference: int, timeout: float, **wanted: Any) -> dict[str, Any] | None:
        """A page of what is inside, by the probe; None for programs that have none."""
        entry = self.hub.resolve(reference)
        if not entry.server.has_probe:
            return None
        async with entry.server.evaluating:
            answer = await self._ask_thread(
                entry.server,
                "a page of variables",
                timeout,
                probe.Page(reference=entry.dap_reference, scope=entry.scope, **wanted),
                impatient=True,
            )
        self.hub.resolve(reference)  # raises, if the program has run on meanwhile
        return answer

    async def report(
        self,
        thread_id: int,
        frames: int,
        locals: int,
        width: int,
        timeout: float,
        safe: bool = False,
    ) -> dict[str, Any]:
        """The stop report of a stopped thread, by itself, as it is now.

        With `safe` it runs none of the program's code, and tells no watches and no changes.
        """
        thread = self.hub.thread(thread_id)
        async with thread.server.evaluating:
            return await self._ask_thread(
                thread.server,
                "the stop report",
                timeout,
                probe.Report(
                    thread=thread.dap_id, frames=frames, locals=locals, width=width, safe=safe
                ),
                hasty=True,
            )

    async def raised(
        self, thread_id: int, timeout: float, safe: bool = False
    ) -> dict[str, Any] | None:
        """The exception at which a thread stands; what of it takes too long is left out."""
        thread = self.hub.thread(thread_id)
        async with _turn(thread.server, "the exception", timeout):
            answer = await self._ask_thread(
                thread.server,
                "the exception",
                timeout,
                probe.Raised(thread=thread.dap_id, safe=safe),
                salvage=True,
            )
        return answer if "type" in answer else None

    async def assign(
        self, reference: int, name: str, text: str, timeout: float
    ) -> dict[str, Any] | None:
        """Set a variable; None where only DAP can."""
        entry = self.hub.resolve(reference)
        if not entry.server.has_probe:
            return None
        async with entry.server.evaluating:
            return await self._ask_thread(
                entry.server,
                text,
                timeout,
                probe.Assign(
                    reference=entry.dap_reference, name=name, text=text, scope=entry.scope
                ),
            )

    async def complete(
        self, thread_id: int, frame: dap.StackFrame, text: str, timeout: float
    ) -> dict[str, Any]:
        """What could stand at the end of the text; the program's own code has a moment for it."""
        server = self.hub.thread(thread_id).server
        async with server.evaluating:
            return await self._ask_thread(
                server,
                "what could stand there",
                timeout,
                probe.Complete(frame=frame.id, text=text),
                impatient=True,
            )

    async def keep_returns(self, on: bool) -> None:
        """Whether what functions return is kept for `returned`."""
        request = probe.Returns(on=on)
        await self.hub.each(self.probed(), lambda server: self.ask(server, request))

    async def returned(
        self, server: DebugServer, frame: dap.StackFrame, timeout: float
    ) -> dict[str, Any] | None:
        """What was returned into a stopped frame."""
        if not server.has_probe:
            return None
        async with server.evaluating:
            answer = await self._ask_thread(
                server, "the returned value", timeout, probe.Returned(frame=frame.id)
            )
        return answer if "value" in answer else None

    # -- answers

    def answered(self, server: DebugServer, body: dict[str, Any]) -> None:
        """Only whom it was put to answers a question."""
        number = body.get("id", 0)
        question = self._questions.get(number)
        if question is None or question.server is not server:
            return
        del self._questions[number]
        if not question.answer.done():
            question.answer.set_result(body)

    def server_gone(self, server: DebugServer) -> None:
        """Nobody is left there to answer."""
        for number, question in list(self._questions.items()):
            if question.server is server:
                del self._questions[number]
                if not question.answer.done():
                    question.answer.set_exception(ServerLost("the debug server is gone"))
                    question.answer.exception()

    async def _ask_thread(
        self,
        server: DebugServer,
        what: str,
        timeout: float,
        question: probe.Question[probe.Body],
        *,
        salvage: bool = False,
        hasty: bool = False,
        impatient: bool = False,
    ) -> dict[str, Any]:
        """`salvage`: what was interrupted has an answer all the same, with gaps.

        `hasty`: that soon. `impatient`: and from another thread if the stopped one hangs.
        """
        number = self._next_question
        self._next_question += 1
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._questions[number] = Question(server, future)
        try:
            question = replace(question, id=number)
            posted = await self.ask(server, question)
            if posted.gone:
                return {"gone": True}
            if salvage:
                await self._interrupt_late(server, future, timeout)
            if hasty:
                await self._interrupt_soon(server, future)
            hangs = impatient and await self._interrupt_soon(server, future)
            if hangs and isinstance(question, probe.Page):
                await self.ask(server, probe.PageAside(**asdict(question)))
            return await self._answer(server, future, number, what, timeout)
        finally:
            self._questions.pop(number, None)

    async def _evaluate_plainly(
        self,
        server: DebugServer,
        frame: dap.StackFrame,
        text: str,
        context: str,
        timeout: float,
    ) -> dict[str, Any]:
        """By DAP alone: nothing interrupts what takes too long, and an `exit()` has no answer."""
        arguments = {
            "expression": text,
            "frameId": frame.id,
            "context": "repl" if context == "repl" else "watch",
        }
        try:
            answer = await server.request("evaluate", arguments, dap.Evaluation, timeout)
        except RelayError as error:
            said = error.details.get("debugger_message")
            if error.code is Code.DEBUGPY_TIMEOUT:
                raise _evaluate_timeout(text, timeout, still_running=True) from None
            if said is None:
                raise
            kind, message, is_of_text = _told_exception(said)
            if " " in kind:
                raise  # debugpy's own words, such as those about a program that is gone
            if kind in _SYNTAX_ERRORS and is_of_text:
                return {"refused": {"message": message}}
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
            await self.ask(server, probe.Interrupt(reports=reports))

    async def _interrupt_soon(
        self, server: DebugServer, future: asyncio.Future[dict[str, Any]]
    ) -> bool:
        """Whether the thread hangs all the same: it stands in C, where nothing ends it."""
        for _ in range(3):  # the stop report may be before it
            done, _ = await asyncio.wait([future], timeout=PATIENCE)
            if done:
                return False
            await self.ask(server, probe.Interrupt(after=PATIENCE * 0.8))
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
                    await self.ask(server, probe.Interrupt(drop=number))
                    done, _ = await asyncio.wait([future], timeout=0.5)
                    if done:
                        break
                raise _evaluate_timeout(text, timeout, still_running=not done)
            return future.result()
        except ServerLost as error:
            raise RelayError(
                Code.DEBUGPY_ERROR,
                f"The program ended while it evaluated: {error}",
                f"{call_of('session-status')} tells how it ended.",
            ) from None


@contextlib.asynccontextmanager
async def _turn(server: DebugServer, what: str, timeout: float) -> AsyncIterator[None]:
    """While this is held nobody else evaluates in that process."""
    try:
        async with asyncio.timeout(timeout):
            await server.evaluating.acquire()
    except TimeoutError:
        raise _evaluate_timeout(what, timeout, still_running=True) from None
    try:
        yield
    finally:
        server.evaluating.release()


def _evaluate_timeout(text: str, timeout: float, still_running: bool) -> RelayError:
    shown = text if len(text) <= 80 else text[:80] + "…"
    if still_running:
        suggestion = (
            "It blocks in C code and ends by itself; "
            f"{call_of('session-status')} tells how it goes, "
            f"{call_of('delete-session')} ends the session."
        )
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


def _told_exception(said: str) -> tuple[str, str, bool]:
    """From a traceback, or from its last line alone: type, message (which may have several lines),
    and whether it is about the text that was evaluated."""
    place, _, below = said.strip("\n").rpartition("  File ")[2].partition("\n")
    lines = below.splitlines() if "  File " in said else said.strip().splitlines()
    told = list(itertools.dropwhile(lambda line: line.startswith(" "), lines)) or lines[-1:]
    kind, _, message = "\n".join(told).partition(": ")
    return kind, message, place.startswith('"<string>"') or "(<string>, line" in message
