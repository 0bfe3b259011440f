"""One IDE that has joined the session: its name, its open requests, and the messages to it."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Mapping
from itertools import count
from typing import Any, Final

import msgspec
from msgspec import Struct

from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.scopes import SCOPES
from debug_relay.protocol.wire.dap import Message
from debug_relay.protocol.wire.frames import Caller, RequestHead
from debug_relay.worker.ide.arguments import Initialize
from debug_relay.worker.ide.connection import Connection
from debug_relay.worker.ide.expressions import Expressions
from debug_relay.worker.ide.frame_ids import FrameIds, NotStopped
from debug_relay.worker.ide.path_mappings import PathMappings
from debug_relay.worker.operations.call import Call
from debug_relay.worker.operations.perform import perform
from debug_relay.worker.session.session import Session

_NAME_CHARACTERS: Final = 40  # An IDE's own name, as callers are shown it.
_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]+")


class Request(Struct):
    """A request, and whether it was answered."""

    message: Message
    # The event before which it is answered, and the answer. IDEs expect that order, and the call
    # itself waits longer.
    on_event: tuple[str, Any] | None = None
    is_answered: bool = False


class JoinedIde:
    def __init__(
        self,
        session: Session,
        connection: Connection,
        uid: int,
        frame_ids: FrameIds,
        expressions: Expressions,
    ) -> None:
        self.session = session
        self.connection = connection
        self.frame_ids = frame_ids
        self.expressions = expressions
        self.left = asyncio.Event()
        # Its lease belongs to this connection: callers of the API may send its name.
        self.caller = Caller("ide", uid, SCOPES, "IDE", secrets.token_hex())
        self.paths = PathMappings(())
        self.first_line = self.first_column = 1
        self.shows_changes = False  # it reads variables again after the event `invalidated`
        self.asked_at = 0.0  # when its last request came, by the loop's clock
        self.has_attached = False
        self.is_configured = False
        self.stopped: set[int] = set()  # the threads that it shows as stopped
        # Its watchpoints: DAP's id of the value and the condition → the relay's id.
        self.watched: dict[tuple[str, str | None], str] = {}
        self.changing = asyncio.Lock()  # its changes of breakpoints take effect in its order
        self.requests: dict[asyncio.Task[None], Request] = {}
        self._numbers = count(1)

    @property
    def name(self) -> str:
        """The name in events and leases, and the owner of its breakpoints."""
        return self.caller.driver

    def introduce(self, arguments: Initialize, number: int) -> None:
        """Take the IDE's name; `number` distinguishes several of the same kind."""
        given = arguments.client_id or arguments.client_name or "unknown"
        name = "ide:" + (_IN_NAMES.sub("-", given)[:_NAME_CHARACTERS] or "unknown")
        if number > 1:
            name = f"{name}-{number}"
        front = _IN_NAMES.sub(" ", arguments.client_name or given)[:_NAME_CHARACTERS]
        self.caller = msgspec.structs.replace(self.caller, name=name, front=front.strip() or "IDE")
        self.first_line = 1 if arguments.lines_start_at1 else 0
        self.first_column = 1 if arguments.columns_start_at1 else 0
        self.shows_changes = arguments.supports_invalidated_event

    # -- the session's operations

    async def ask(self, operation: str, **fields: Any) -> Any:
        """Perform one of the session's operations for this IDE; fields that are None are left
        out.
        """
        given = {name: value for name, value in fields.items() if value is not None}
        given["session_id"] = self.session.settings.id
        params = msgspec.convert(given, OPERATIONS[operation].params)
        request_id = f"{self.caller.name}-{next(self._numbers)}"
        head = RequestHead(operation, request_id, self.caller, 0.0)
        return await perform(Call(self.session, head, self.left), params)

    def require_stopped(self, thread_id: int) -> None:
        if thread_id not in self.session.stops.stopped_threads():
            raise NotStopped

    def frame(self, number: int | None) -> tuple[int, int]:
        """The thread and the index of a frame; by default the top of the selected thread."""
        if number is not None:
            return self.frame_ids.find(number)
        current = self.session.stops.current
        if current is None:
            raise NotStopped
        return current.thread_id, 0

    def line(self, line: int) -> int:
        """A line as the IDE counts it."""
        return line - 1 + self.first_line

    # -- answering

    def own_request(self) -> Request | None:
        """The request that the present task serves, if it is one of this IDE's."""
        task = asyncio.current_task()
        return self.requests.get(task) if task is not None else None

    def answer(self, body: Any = None) -> None:
        """Answer the present request now, before any later event."""
        request = self.own_request()
        assert request is not None
        self.respond(request, body)

    def answer_on(self, event: str, body: Any = None) -> None:
        """Answer the present request right before this event is sent."""
        request = self.own_request()
        assert request is not None
        request.on_event = event, body

    def respond(self, request: Request, body: Any = None) -> None:
        if not request.is_answered:
            request.is_answered = True
            self.connection.respond(request.message, body)

    def send_event(self, event: str, body: Mapping[str, Any] | None = None) -> None:
        self.connection.send_event(event, body)

    def say(self, text: str) -> None:
        """Write a line into the IDE's debug console."""
        self.send_event("output", {"category": "console", "output": text.rstrip("\n") + "\n"})
