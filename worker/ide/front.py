"""The front of IDEs: a DAP server that joins them to the running session.

A stock `attach` of an IDE is enough, because the join port has checked its user already. Each
request becomes an operation of the session, the same that callers of the API have, and each event
of the session is sent to all IDEs that have joined. IDEs join and leave; the session does not
change.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from asyncio import StreamReader, StreamWriter
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import msgspec

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.output_events import EventType
from debug_relay.protocol.state import ENDED, LIVE, State
from debug_relay.protocol.system.peers import peer_uid
from debug_relay.protocol.wire.dap import DapError, Message
from debug_relay.worker.ide import event_messages
from debug_relay.worker.ide.arguments import Arguments, Initialize
from debug_relay.worker.ide.connection import Connection
from debug_relay.worker.ide.expressions import Expressions
from debug_relay.worker.ide.frame_ids import FrameIds, NotStopped
from debug_relay.worker.ide.inspection_requests import TAKE_OVER
from debug_relay.worker.ide.joined_ide import JoinedIde, Request
from debug_relay.worker.ide.joining_requests import left
from debug_relay.worker.ide.requests import PRESSED, REQUESTS
from debug_relay.worker.ide.shapes import CAPABILITIES
from debug_relay.worker.session.session import Session

log = logging.getLogger("debug_relay.worker")

# A connection that has not sent `initialize` within this time is closed.
_FIRST_SECONDS: Final = 10.0
# A request is answered within this time, and an evaluation within its own timeout and this.
_REQUEST_SECONDS: Final = 60.0
_MOST_UNANSWERED: Final = 64  # Requests of one IDE at a time; others wait to be read.
_LEAVING_SECONDS: Final = 5.0  # The breakpoints of an IDE that leaves are removed within this time.
_NOT_STOPPED: Final = "notStopped"  # DAP's own word for it
_PASSED: Final = "The program has run on since."
_ENDED: Final = "The program has ended."
_NOTHING: Final = "The session has no program yet."
_FIELD: Final = re.compile(r"`\$\.[^`]+`")  # msgspec names a field like this


class IdeFront:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._joined: list[JoinedIde] = []
        self._frame_ids = FrameIds()
        self._expressions = Expressions()
        self._tasks: set[asyncio.Task[None]] = set()
        session.log.events.heard_by = self._heard
        session.when_changed = self._variables_changed

    # -- one connection

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        uid = peer_uid(writer.get_extra_info("socket"))
        connection = Connection(reader, writer)
        known_uid = -1 if uid is None else uid
        ide = JoinedIde(self._session, connection, known_uid, self._frame_ids, self._expressions)
        try:
            async with asyncio.timeout(_FIRST_SECONDS):
                await self._introduce(ide)
            await self._converse(ide)
        except TimeoutError:
            log.info("ide.silent")
        except DapError as error:
            log.warning("ide.not_dap", extra={"fields": {"error": str(error)[:200]}})
        finally:
            await self._forget(ide)

    async def _introduce(self, ide: JoinedIde) -> None:
        """Wait for `initialize`; other requests are refused until then."""
        while (message := await ide.connection.read()) is not None:
            if message.command != "initialize":
                ide.connection.refuse(message, "initialize first", "initialize comes first", False)
                continue
            try:
                arguments = _decoded(message, Initialize)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                words = _does_not_fit(message, error)
                ide.connection.refuse(message, words, words, False)
                continue
            self._name(ide, arguments)
            ide.connection.respond(message, CAPABILITIES)
            ide.send_event("initialized")
            return

    def _name(self, ide: JoinedIde, arguments: Initialize) -> None:
        taken = {other.name for other in self._joined}
        number = 1
        ide.introduce(arguments, number)
        while ide.name in taken:
            number += 1
            ide.introduce(arguments, number)
        self._joined.append(ide)

    async def _converse(self, ide: JoinedIde) -> None:
        room = asyncio.Semaphore(_MOST_UNANSWERED)
        leaving = asyncio.ensure_future(ide.left.wait())
        try:
            while not ide.left.is_set():
                reading = asyncio.ensure_future(ide.connection.read())
                await asyncio.wait((reading, leaving), return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    reading.cancel()
                    return
                message = reading.result()
                if message is None:
                    return
                await room.acquire()
                self._begin(ide, message, room)
        finally:
            leaving.cancel()

    def _begin(self, ide: JoinedIde, message: Message, room: asyncio.Semaphore) -> None:
        request = Request(message)
        ide.asked_at = asyncio.get_running_loop().time()

        async def serve() -> None:
            task = asyncio.current_task()
            assert task is not None
            ide.requests[task] = request
            try:
                await self._answer(ide, request)
            finally:
                del ide.requests[task]
                room.release()

        task = asyncio.create_task(serve(), name=f"ide {message.command[:40]}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- one request

    async def _answer(self, ide: JoinedIde, request: Request) -> None:
        message = request.message
        kind, handler = REQUESTS.get(message.command, (Arguments, None))
        if handler is None:
            words = f"{message.command[:100]} is not supported"
            if message.command == "initialize":
                words = "This connection is initialized already"
            self._refuse(ide, request, words, words)
            return
        try:
            arguments = _decoded(message, kind)
            seconds = _REQUEST_SECONDS + self._session.settings.evaluate_timeout
            async with asyncio.timeout(seconds):
                body = await handler(ide, arguments)
            ide.respond(request, body)
        except NotStopped:
            state = self._session.lifecycle.state
            words = _ENDED if state in ENDED else _PASSED if state in LIVE else _NOTHING
            self._refuse(ide, request, _NOT_STOPPED, words)
        except RelayError as error:
            self._refuse(ide, request, *_in_words(error))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            words = _does_not_fit(message, error)
            self._refuse(ide, request, words, words)
        except TimeoutError:
            words = f"{message.command} took longer than {seconds:g} s"
            self._refuse(ide, request, words, words)
        except Exception as error:
            log.exception("ide.request_failed", extra={"fields": {"command": message.command}})
            words = f"{message.command} failed inside the relay: {type(error).__name__}"
            self._refuse(ide, request, words, words)

    def _refuse(self, ide: JoinedIde, request: Request, message: str, words: str) -> None:
        if not request.is_answered:
            request.is_answered = True
            show = request.message.command in PRESSED and message != _NOT_STOPPED
            ide.connection.refuse(request.message, message, words, show)

    # -- all of them

    def _heard(self, type: EventType, body: Mapping[str, Any]) -> None:
        """Send an event to all IDEs. A defect here must not stop the session."""
        if type in ("continued", "terminated", "session"):
            self._frame_ids.keep(self._session.stops.stopped_threads())
            if self._session.stops.current is None:
                self._expressions.clear()
        for ide in list(self._joined):
            try:
                event_messages.pass_on(ide, type, body)
            except Exception:
                log.exception("ide.not_told", extra={"fields": {"event": type}})

    def _variables_changed(self) -> None:
        """A caller has set a variable or run a statement: others show the old values."""
        for ide in self._joined:
            if (
                ide.is_configured
                and ide.shows_changes
                and ide.own_request() is None
                and ide.stopped
            ):
                ide.send_event("invalidated", {"areas": ["variables"]})

    async def _forget(self, ide: JoinedIde) -> None:
        """The IDE has left: remove its breakpoints, and leave everything else as it is."""
        ide.left.set()
        if ide in self._joined:
            self._joined.remove(ide)
            await self._take_back(ide)
            left(ide)
        ide.connection.close()

    async def _take_back(self, ide: JoinedIde) -> None:
        """Give back what the IDE has in the session, also while the program answers nobody: it is
        told when it answers again.
        """
        session = self._session
        if session.lease.belongs_to(ide.caller):
            with session.access.calling("drop-lease", ide.caller, None):
                session.lease.drop(ide.caller)
        for remove in (
            partial(session.exceptions.also, ide.name, []),
            partial(session.breakpoints.disown, ide.name),
        ):
            # The change in the session holds; the program takes it when it answers again.
            with contextlib.suppress(RelayError, TimeoutError):
                async with asyncio.timeout(_LEAVING_SECONDS), ide.changing:
                    with session.access.calling("clear-breakpoints", ide.caller, None):
                        await remove()

    async def close(self) -> None:
        for ide in list(self._joined):
            if ide.is_configured and self._session.lifecycle.state not in ENDED:
                ide.send_event("terminated")  # at the program's end it was sent already
            ide.left.set()
            ide.connection.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _decoded(message: Message, kind: type[Arguments]) -> Any:
    raw = bytes(message.arguments)
    return msgspec.json.decode(b"{}" if raw in (b"null", b"") else raw, type=kind)


def _does_not_fit(message: Message, error: Exception) -> str:
    """The words for wrong arguments, with the fields' names in DAP."""

    def in_dap(field: re.Match[str]) -> str:
        return re.sub(r"_([a-z])", lambda letter: letter[1].upper(), field[0])

    return f"The arguments of {message.command} do not fit: {_FIELD.sub(in_dap, str(error))}"


def _in_words(error: RelayError) -> tuple[str, str]:
    """DAP's short message for an error, and the words for the person."""
    if error.code is Code.SESSION_LEASED:
        holder = error.details["holder"]
        words = (
            f"{error.message}. Wait until {holder} has finished, or type {TAKE_OVER} into the "
            "debug console to take over."
        )
        return words, words
    needs_stop = error.details.get("required_state") == State.PAUSED
    if needs_stop or error.code is Code.STOP_CHANGED or error.details.get("from_earlier_stop"):
        return _NOT_STOPPED, error.message
    return error.message, error.message
