"""Performs the commands that come over a WebSocket: each is an operation of the table, by way of
dispatch.
"""

from __future__ import annotations

import asyncio
import difflib
import uuid
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.fields import Params
from debug_relay.protocol.operation_row import Operation
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.refusals import Problem
from debug_relay.protocol.secrets import masked, masked_arguments
from debug_relay.protocol.validation.json_body import parse_json
from debug_relay.protocol.validation.params import convert
from debug_relay.protocol.wire.envelope import encode_json
from debug_relay.supervisor.operations.answers import Finished
from debug_relay.supervisor.operations.dispatch import Dispatch
from debug_relay.supervisor.operations.request import Request, fill
from debug_relay.supervisor.streams import forms
from debug_relay.supervisor.streams.stream import Stream

_SAME_AS: Final[Mapping[str, str]] = {"step": "step-over"}
_MOST_AT_ONCE: Final = 64  # Commands of a socket that have no result yet.
_OFFERED: Final = {name: row for name, row in OPERATIONS.items() if row.kind == "json"}
# The echo of a longer command is made in a thread: looking for secrets may take 100 ms.
_ECHOED_AT_ONCE_BYTES: Final = 16 * 1024


class _Command(Params, kw_only=True):
    action: str
    id: str | int | None = None
    arguments: dict[str, Any] = {}  # noqa: RUF012  # msgspec copies it
    if_stop: int | None = None
    idempotency_key: str | None = None


class Commands:
    """The commands of one socket that are under way. Results are sent as they come."""

    def __init__(
        self,
        dispatch: Dispatch,
        opening: Request,
        session_id: str | None,
        stream: Stream,
    ) -> None:
        self._dispatch = dispatch
        self._opening = opening
        self._session_id = session_id
        self._stream = stream
        self._under_way: set[asyncio.Task[None]] = set()
        # The commands among them that change breakpoints.
        self._changing: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(_MOST_AT_ONCE)

    async def take(self, text: bytes) -> None:
        """Take one message of the client. Waits while too many commands are under way, or the
        client has not taken too many results: its next messages wait in its socket.
        """
        await self._stream.has_room()
        await self._room.acquire()
        # In order: each command is sent to the worker before the next message is read.
        task = asyncio.create_task(
            self._perform(text), name=f"command for {self._session_id or 'any session'}"
        )
        self._under_way.add(task)
        task.add_done_callback(self._over)
        await asyncio.sleep(0)

    async def close(self) -> None:
        """Stop waiting for results; the worker continues what it has begun."""
        for task in self._under_way:
            task.cancel()
        if self._under_way:
            await asyncio.gather(*self._under_way, return_exceptions=True)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._changing.discard(task)
        self._room.release()

    async def _perform(self, text: bytes) -> None:
        request = Request(
            id=str(uuid.uuid4()),
            uid=self._opening.uid,
            address=self._opening.address,
            operation=None,
            agent=self._opening.agent,
            front=self._opening.front,
            key=self._opening.key,
            authorization=self._opening.authorization,
            ticketed=self._opening.ticketed,
            asked=("WS", "a command"),
        )
        id, action = None, ""
        try:
            sent = parse_json(text)
            id, action = _named(sent)
            command = convert(_Command, {}, {}, sent)
            if len(text) > _ECHOED_AT_ONCE_BYTES:
                echo = await asyncio.to_thread(_echo, command)
            else:
                echo = _echo(command)
            self._stream.put(forms.message(self._session_id, "ack", echo, id, action))
            _fill(request, command, self._session_id)
        except RelayError as error:
            finished = self._dispatch.refuse(request, error)
        else:
            await self._turn(request.operation)
            finished = await self._dispatch.perform(request)
        self._stream.put(self._result(finished, id, action))

    async def _turn(self, operation: Operation | None) -> None:
        """Wait until breakpoints that earlier commands set are there, if this one may resume the
        program: it might pass them.
        """
        task = asyncio.current_task()
        assert operation is not None
        assert task is not None
        if operation.drives and self._changing:
            await asyncio.wait(self._changing)
        elif operation.group == "breakpoints" and not operation.safe:
            self._changing.add(task)

    def _result(self, finished: Finished, id: str | int | None, action: str) -> bytes:
        return forms.message(self._session_id, "result", finished.body.rstrip(), id, action)


def _named(sent: Mapping[str, Any]) -> tuple[str | int | None, str]:
    """Id and action, also of a command that does not fit: its client waits for a result."""
    id, action = sent.get("id"), sent.get("action")
    is_id = isinstance(id, str | int) and not isinstance(id, bool)
    return id if is_id else None, action if isinstance(action, str) else ""


def _echo(command: _Command) -> bytes:
    """The command as JSON, with its secrets masked."""
    arguments = {
        name: masked_arguments(value) if _is_texts(value) else masked(name, value)
        for name, value in command.arguments.items()
    }
    return encode_json(msgspec.structs.replace(command, arguments=arguments))


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _fill(request: Request, command: _Command, session_id: str | None) -> None:
    operation = _operation(command.action)
    request.asked = ("WS", operation.path)
    request.if_stop = command.if_stop
    request.idempotency_key = command.idempotency_key
    arguments = dict(command.arguments)
    if operation.on_session:
        named = arguments["session_id"] = _session_of(
            arguments.get("session_id", session_id), command.action
        )
        if session_id is not None and named != session_id:
            raise RelayError(
                Code.INVALID_REQUEST,
                f"This socket belongs to {session_id}, not to {named[:100]}",
                "Leave session_id out, or open the socket of the other session.",
            )
    fill(request, operation, arguments)


def _session_of(given: Any, action: str) -> str:
    if isinstance(given, str) and given:
        return given
    raise RelayError(
        Code.MISSING_PARAMETER,
        f"{action[:100]} needs a session",
        "Name it in arguments.session_id: this socket belongs to no session.",
        errors=[Problem("arguments.session_id", "is missing", None)],
    )


def _operation(action: str) -> Operation:
    name = _SAME_AS.get(action, action)
    if name in _OFFERED:
        return _OFFERED[name]
    word = action[:100]
    near = [known for known in _OFFERED if word in known.split("-")]
    near += difflib.get_close_matches(word, [*_SAME_AS, *_OFFERED], 1)
    raise RelayError(
        Code.NOT_FOUND,
        f"There is no action {word!r}",
        f"Did you mean {near[0]}?"
        if near
        else f"Actions are operations by name: {call_of('openapi')} has them as operationId.",
        closest=near[0] if near else None,
    )
