"""Dispatch: turns a request of any front into a finished answer.

Every front builds a `Request` and gets a `Finished` answer. `admission` decides who the caller is,
whether the caller may send the request and what it means; a handler of the supervisor's or the
session's worker answers it; the reply is kept if the request has an Idempotency-Key. Nothing here
reads a socket, parses a path or knows aiohttp; only some names of headers are those of HTTP. What
differs between operations is in their rows: scope, states, deadline, preparation. Only this module
turns a `RelayError` into an answer.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable
from typing import Final

import msgspec
from msgspec import Struct

from debug_relay.protocol.calls import filled
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.fields import Params
from debug_relay.protocol.operation_row import Operation
from debug_relay.protocol.rendering import output_withheld
from debug_relay.protocol.scopes import READS_OUTPUT
from debug_relay.protocol.wire.envelope import encode_json
from debug_relay.protocol.wire.frames import Caller
from debug_relay.supervisor.log import Log
from debug_relay.supervisor.operations import answers
from debug_relay.supervisor.operations.admission import Admission
from debug_relay.supervisor.operations.answers import Answer, Document, Finished
from debug_relay.supervisor.operations.call_records import CallRecords
from debug_relay.supervisor.operations.handlers import Handlers
from debug_relay.supervisor.operations.idempotency import Idempotency
from debug_relay.supervisor.operations.kept_reply import kept_again
from debug_relay.supervisor.operations.output_handlers import REQUEST_ID
from debug_relay.supervisor.operations.request import Call, Request, Understood
from debug_relay.supervisor.operations.worker_calls import FORMAT, WorkerCalls
from debug_relay.supervisor.sessions.mirror import Session
from debug_relay.supervisor.sessions.registry import Registry

_log: Final = Log(__name__)


class Opened(Struct, frozen=True):
    """A stream that the caller may have. Its front sends it."""

    operation: Operation
    session: Session | None  # None: the stream belongs to no session
    params: Params
    caller: Caller


class Dispatch:
    def __init__(
        self,
        registry: Registry,
        admission: Admission,
        handlers: Handlers,
        worker_calls: WorkerCalls,
        kept: Idempotency,
        records: CallRecords,
        log_file: str,
    ) -> None:
        self._registry = registry
        self._admission = admission
        self._handlers = handlers
        self._worker_calls = worker_calls
        self._kept = kept
        self._records = records
        self._log_file = log_file

    async def perform(self, request: Request) -> Finished:
        """The answer or refusal. It is cancelled when the caller leaves."""
        call = Call(request, time.monotonic())
        REQUEST_ID.set(request.id)
        FORMAT.set(request.format)
        try:
            understood = await self._admission.understand(call)
            try:
                finished = await self._answering(request, understood)
            finally:
                call.created = understood.created
        except asyncio.CancelledError:
            # The caller has left; an operation that `finishes` continues.
            self._records.note(call, None)
            raise
        except (ConnectionError, TimeoutError):
            raise
        except Exception as error:
            finished = self._refusal(call, error)
        # A front writes a short answer in this turn of the event loop. We count and note the call
        # in the next turn: its caller does not wait for that.
        asyncio.get_running_loop().call_soon(self._records.note, call, finished)
        return answers.pretty(finished) if request.pretty else finished

    async def open(self, request: Request) -> Opened | Finished:
        """The requested stream, or the refusal."""
        call = Call(request, time.monotonic())
        session = None
        try:
            self._admission.redeem(request)
            understood = await self._admission.understand(call)
            if understood.operation.on_session:
                session = self._registry.get(request.path["session_id"])
                session.require_there()
        except Exception as error:
            finished = self._refusal(call, error)
            self._records.note(call, finished)
            return finished
        self._records.note(call, Finished(101, b"", ""))
        return Opened(understood.operation, session, understood.params, understood.caller)

    def admit(self, request: Request) -> Caller:
        """The caller, who must be allowed to make this request. An open stream is checked
        repeatedly.
        """
        return self._admission.admit(request)

    def refuse(self, request: Request, error: Exception) -> Finished:
        """The answer to a request that a front refuses."""
        call = Call(request, time.monotonic())
        finished = self._refusal(call, error)
        self._records.count_answer(call, finished)
        return finished

    async def close(self) -> None:
        await self._kept.close()

    def _refusal(self, call: Call, error: Exception) -> Finished:
        request = call.request
        if not isinstance(error, RelayError):
            error = self._mistake(request.operation, request.id, error)
        else:
            self._records.count_refusal(call, error)
            error = error.for_session(request.path.get("session_id"))
        call.refused_with = error.code.value
        return answers.of_error(error, request.id, request.format)

    def _mistake(
        self, operation: Operation | None, request_id: str, error: Exception
    ) -> RelayError:
        error_id = uuid.uuid4().hex[:12]
        name = operation.name if operation else None
        _log.exception(
            "request.failed", error, error_id=error_id, operation=name, request_id=request_id
        )
        return RelayError(
            Code.INTERNAL_ERROR,
            f"The relay made a mistake: {type(error).__name__}",
            f"Report error_id {error_id} with the traceback in {self._log_file}.",
            error_id=error_id,
            exception=type(error).__name__,
            operation=name,
            log_file=self._log_file,
        )

    def _answering(self, request: Request, understood: Understood) -> Awaitable[Finished]:
        """The answer; for a key that was used before, the answer that it had then. A thousand
        long-polls wait for it, so this is no coroutine of its own.
        """
        key, operation = request.idempotency_key, understood.operation
        if key and Code.IDEMPOTENCY_CONFLICT in operation.errors:
            return self._answer_to_key(request, key, understood)
        answering = self._answer(understood)
        return self._registry.background.carry_out(answering) if operation.finishes else answering

    async def _answer_to_key(self, request: Request, key: str, understood: Understood) -> Finished:
        operation = understood.operation

        async def answer() -> Finished:
            plain = msgspec.structs.replace(understood, format="json")
            try:
                return await self._answer(plain)
            except RelayError as error:
                if error.code is Code.SHUTTING_DOWN:
                    raise  # not kept: the caller may repeat the request at the next relay
                session_id = getattr(understood.params, "session_id", None)
                return answers.of_error(error.for_session(session_id), understood.id, "json")
            finally:
                understood.created = plain.created

        path = filled(operation.path, dict(request.path))
        body = encode_json(understood.params)
        first = await self._kept.once(understood.caller.name, path, key, body, answer)
        return kept_again(first, understood.id, understood.format, operation.result)

    async def _answer(self, understood: Understood) -> Finished:
        operation = understood.operation
        handler = self._handlers.of(operation)
        if handler is None:
            return await self._worker_calls.answer(understood)
        answer = await handler(understood.params, understood.caller)
        if isinstance(answer, Document):
            return answers.of_document(answer, understood.format)
        understood.created = getattr(answer, "session_id", None)
        status = operation.status
        if isinstance(answer, Answer):
            status, answer = answer.status, answer.result
        if READS_OUTPUT not in understood.caller.scopes:
            answer = output_withheld.in_result(answer)
        return answers.of_result(answer, operation, status, understood.id, understood.format)
