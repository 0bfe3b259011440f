"""Sends requests to debug servers by their engines: commands, and questions to a stopped thread.

With the probe, pydevd's own thread answers a command at once. A question is posted to the stopped
thread, which answers by an event; a question that takes too long is interrupted. Only `ask`,
`ask_thread` and `send` need the probe; the other methods call the server's engine. The hub knows
the process of a thread or a reference.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.wire import breakpoint_requests, dap
from debug_relay.protocol.wire import probe_answers as answers
from debug_relay.protocol.wire import probe_messages as probe
from debug_relay.worker.debugger.connection import DebugServer, ServerLost
from debug_relay.worker.debugger.engine import evaluate_timeout
from debug_relay.worker.debugger.hub import Hub
from debug_relay.worker.debugger.probe_engine import ProbeEngine

T = TypeVar("T")
A = TypeVar("A", bound=answers.Answer)
# The program's own code, such as a __repr__, has this long while values are shown; then it is
# interrupted, for a stop report twice if need be.
OWN_CODE_SECONDS: Final = 0.5
_head: Final = msgspec.json.Decoder(answers.Answer).decode


class PendingQuestion(Struct):
    server: DebugServer
    kind: type[answers.Answer]  # the type of its answer
    answer: asyncio.Future[Any]


class ProbeClient:
    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self._questions: dict[int, PendingQuestion] = {}
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

    def send(self, server: DebugServer, request: probe.Request[Any]) -> None:
        """Send a request and do not wait for its answer: the program may be in C for long."""
        server.post(probe.COMMAND, probe.arguments_of(request))

    async def find_probe(self, server: DebugServer) -> None:
        """Find out whether the probe is in the program; without it the engine is plain DAP."""
        try:
            await self.ask(server, breakpoint_requests.Hits())
        except RelayError as error:
            if error.code is not Code.DEBUGPY_ERROR or server.lost:
                raise
        else:
            server.engine = ProbeEngine(server, self)

    def probed(self) -> list[DebugServer]:
        return [server for server in self.hub.taking_changes() if server.engine.can.answer_requests]

    @contextlib.asynccontextmanager
    async def nobody_evaluates(self) -> AsyncIterator[None]:
        """Keep every process from evaluating, so that threads may be resumed.

        Only a holder of `RunControl.lock` takes the locks of several processes, so there is no
        deadlock.
        """
        turns: list[asyncio.Lock] = []
        try:
            for server in list(self.hub.servers):
                await server.evaluating.acquire()
                turns.append(server.evaluating)
            yield
        finally:
            for turn in turns:
                turn.release()

    # -- questions

    async def evaluate(
        self, thread_id: int, frame: dap.StackFrame, text: str, context: str, timeout: float
    ) -> answers.Evaluated:
        """Evaluate in a stopped frame; interrupted at the deadline.

        Each process evaluates one text at a time: debugpy is far slower with many at once.
        """
        server = self.hub.thread(thread_id).server
        async with _turn(server, text, timeout):
            return await server.engine.evaluate(frame, text, context, timeout)

    async def scope_sizes(self, thread_id: int, index: int, timeout: float) -> answers.ScopeSizes:
        """The number of variables in each of the frame's scopes."""
        server = self.hub.thread(thread_id).server
        frame = await self.hub.frame(thread_id, index)
        async with server.evaluating:
            return await server.engine.sizes(frame.id, timeout)

    async def page(self, reference: int, timeout: float, **wanted: Any) -> answers.VariablePage:
        """A page of a value's parts."""
        entry = self.hub.resolve(reference)
        async with entry.server.evaluating:
            answer = await entry.server.engine.page(
                entry.dap_reference, entry.scope, timeout, **wanted
            )
        self.hub.resolve(reference)  # raises if the program was resumed meanwhile
        return answer

    async def report(
        self,
        thread_id: int,
        frames: int,
        locals: int,
        width: int,
        timeout: float,
        safe: bool = False,
        fold: answers.Fold = "top",
    ) -> answers.StopReport:
        """The stop report of a stopped thread as it is now.

        With `safe` it runs none of the program's code, and has no watches and no changes.
        """
        thread = self.hub.thread(thread_id)
        async with thread.server.evaluating:
            return await thread.server.engine.report(
                thread.dap_id, frames, locals, width, timeout, safe, fold
            )

    async def raised(
        self, thread_id: int, timeout: float, safe: bool = False
    ) -> answers.ExceptionReport:
        """The exception at which a thread is stopped; parts that take too long are left out."""
        thread = self.hub.thread(thread_id)
        async with _turn(thread.server, "the exception", timeout):
            return await thread.server.engine.exception(thread.dap_id, timeout, safe)

    async def assign(
        self, reference: int, name: str, text: str, timeout: float
    ) -> answers.Assigned:
        """Set a variable."""
        entry = self.hub.resolve(reference)
        async with entry.server.evaluating:
            return await entry.server.engine.assign(
                entry.dap_reference, entry.scope, name, text, timeout
            )

    async def complete(
        self, thread_id: int, frame: dap.StackFrame, text: str, timeout: float
    ) -> tuple[answers.Answer, list[dap.CompletionItem]]:
        """Completions for the end of the text. The program's own code has `OWN_CODE_SECONDS`."""
        server = self.hub.thread(thread_id).server
        async with server.evaluating:
            return await server.engine.complete(frame.id, text, timeout)

    async def keep_returns(self, on: bool) -> None:
        """Set whether the probe keeps the values that functions return, for `returned`."""
        request = probe.Returns(on=on)
        await self.hub.each(self.probed(), lambda server: self.ask(server, request))

    async def returned(
        self, server: DebugServer, frame: dap.StackFrame, timeout: float
    ) -> answers.Variable | None:
        """The value that was returned into a stopped frame."""
        async with server.evaluating:
            return (await server.engine.returned(frame.id, timeout)).value

    # -- answers

    def answered(self, server: DebugServer, body: bytes) -> None:
        """Take the answer to a question, from the process that it was put to and no other."""
        number = _head(body).id
        question = self._questions.get(number) if number is not None else None
        if number is None or question is None or question.server is not server:
            return
        del self._questions[number]
        if question.answer.done():
            return
        try:
            question.answer.set_result(msgspec.json.decode(body, type=question.kind))
        except msgspec.ValidationError as error:
            question.answer.set_exception(
                RelayError(
                    Code.DEBUGPY_ERROR, f"The program's answer cannot be understood: {error}"
                )
            )

    def server_gone(self, server: DebugServer) -> None:
        """Fail the questions that were put to a process whose connection has ended."""
        for number, question in list(self._questions.items()):
            if question.server is server:
                del self._questions[number]
                if not question.answer.done():
                    question.answer.set_exception(ServerLost("the debug server has disconnected"))
                    question.answer.exception()

    async def ask_thread(
        self,
        server: DebugServer,
        what: str,
        timeout: float,
        question: probe.Question[A],
        *,
        partial: bool = False,
        soon: bool = False,
    ) -> A:
        """Put a question to a stopped thread and wait for its answer.

        The question may run the program's code. `soon` interrupts that code after
        `OWN_CODE_SECONDS`, and then asks another thread for a page if the stopped one hangs.
        `partial` interrupts it near the timeout; the answer then has gaps.
        """
        number = self._next_question
        self._next_question += 1
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        kind: type[A] = probe.answer_to(type(question))
        self._questions[number] = PendingQuestion(server, kind, future)
        try:
            question = replace(question, id=number)
            posted = await self.ask(server, question)
            if posted.gone:
                return kind(gone=True, busy=posted.busy)
            if partial:
                await self._interrupt_late(server, future, timeout)
            hangs = soon and await self._interrupt_soon(server, future)
            if hangs and isinstance(question, probe.Page):
                await self.ask(server, probe.PageAside(**asdict(question)))
            return await self._answer(server, future, number, what, timeout)
        finally:
            self._questions.pop(number, None)

    async def _interrupt_late(
        self, server: DebugServer, future: asyncio.Future[A], timeout: float
    ) -> None:
        """Interrupt three times: first a stop report, which may run before the question, then the
        question's code, and again if that code has caught the first interrupt.
        """
        for reports in (True, False, False):
            if await _comes(future, timeout / 3):
                return
            await self.ask(server, probe.Interrupt(reports=reports))

    async def _interrupt_soon(self, server: DebugServer, future: asyncio.Future[A]) -> bool:
        """Interrupt the question's code; whether the thread hangs in spite of that (it is in C)."""
        for _ in range(3):  # a stop report may run before the question
            if await _comes(future, OWN_CODE_SECONDS):
                return False
            await self.ask(server, probe.Interrupt(after=OWN_CODE_SECONDS * 0.8))
        return not await _comes(future, OWN_CODE_SECONDS)

    async def _answer(
        self,
        server: DebugServer,
        future: asyncio.Future[A],
        number: int,
        text: str,
        timeout: float,
    ) -> A:
        try:
            if not await _comes(future, timeout):
                # Twice, because pydevd swallows the first interrupt while it renders a value.
                for _ in range(2):
                    await self.ask(server, probe.Interrupt(drop=number))
                    if await _comes(future, 0.5):
                        break
                raise evaluate_timeout(text, timeout, still_running=not future.done())
            return future.result()
        except ServerLost as error:
            raise RelayError(
                Code.DEBUGPY_ERROR,
                f"The program ended while it evaluated: {error}",
                f"{call_of('session-status')} shows how it ended.",
            ) from None


async def _comes(answer: asyncio.Future[Any], seconds: float) -> bool:
    """Whether the answer comes in time. A short one comes with the reply to its question, and is
    not waited for: `asyncio.wait` would take two more turns of the event loop.
    """
    return answer.done() or bool((await asyncio.wait([answer], timeout=seconds))[0])


@contextlib.asynccontextmanager
async def _turn(server: DebugServer, what: str, timeout: float) -> AsyncIterator[None]:
    """Wait until no other call evaluates in this process, and keep it so."""
    try:
        async with asyncio.timeout(timeout):
            await server.evaluating.acquire()
    except TimeoutError:
        raise evaluate_timeout(what, timeout, still_running=True) from None
    try:
        yield
    finally:
        server.evaluating.release()
