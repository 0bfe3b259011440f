"""All streams: opened through the one dispatch, bounded in number, read from their feeds."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from aiohttp import web

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models import output_events
from debug_relay.protocol.models.relay import OpenCommands
from debug_relay.protocol.models.sessions import key_id
from debug_relay.protocol.scopes import READS_OUTPUT
from debug_relay.protocol.version import VERSION
from debug_relay.protocol.wire.envelope import encode_json
from debug_relay.supervisor.operations.answers import Finished
from debug_relay.supervisor.operations.dispatch import Dispatch, Opened
from debug_relay.supervisor.operations.request import Request
from debug_relay.supervisor.output import batches
from debug_relay.supervisor.sessions.mirror import Session
from debug_relay.supervisor.streams import forms
from debug_relay.supervisor.streams.commands import Commands
from debug_relay.supervisor.streams.feed import Encoded, Feed, RelayFeed
from debug_relay.supervisor.streams.sse import send_events
from debug_relay.supervisor.streams.stream import Patience, Stream
from debug_relay.supervisor.streams.tunnel import serve_tunnel
from debug_relay.supervisor.streams.websocket import is_upgrade, refuse_socket, serve_socket

MOST: Final = 1500  # Streams of a relay.
MOST_OF_A_CALLER: Final = 256  # Streams of one uid and name.
# The kernel would queue four megabytes for a client that reads slowly or not at all. It would be
# behind by so much before anybody noticed, and get its last message after them.
_SEND_BUFFER_BYTES: Final = 128 * 1024

_BY_HTTP: Final = (
    f"Connect with a WebSocket client; {call_of('stream-output')} and {call_of('stream-events')} "
    "send much the same by plain HTTP."
)
_WITHOUT_UPGRADE: Final = {
    "tunnel": "Run debug-relay tunnel {session_id} --listen :1234, and connect the debugger there."
}

_Read = Callable[[str | None], Encoded]
_NOTHING: Final = Encoded(b"", "", 0, 0, 0, False)


class Streams:
    def __init__(self, dispatch: Dispatch, patience: Patience | None = None) -> None:
        self._dispatch = dispatch
        self._patience = patience or Patience()
        self._feeds: dict[Session, Feed] = {}
        self._relay_feed = RelayFeed()
        self._open: Counter[tuple[int, str]] = Counter()  # uid and name of the caller

    async def serve(self, http: web.BaseRequest, request: Request) -> web.StreamResponse | Finished:
        """Send the stream to its end; returns a refusal that HTTP can still carry."""
        operation = request.operation
        assert operation is not None
        is_socket = operation.kind == "websocket"
        if is_socket and is_upgrade(http):
            request.format = "json"  # a socket has no other
        if not is_socket and (last := http.headers.get("Last-Event-ID")):
            others = [pair for pair in request.query if pair[0] != "cursor"]
            request.query = [*others, ("cursor", last)]
        opened = await self._dispatch.open(request)
        if isinstance(opened, Opened):
            try:
                return await self._send(http, request, opened)
            except RelayError as error:
                opened = self._dispatch.refuse(request, error)
        if is_socket and is_upgrade(http):
            return await refuse_socket(http, opened, self._patience)
        return opened

    async def _send(
        self, http: web.BaseRequest, request: Request, opened: Opened
    ) -> web.StreamResponse:
        session, caller = opened.session, opened.caller
        is_socket = opened.operation.kind == "websocket"
        if is_socket and not is_upgrade(http):
            raise RelayError(
                Code.UPGRADE_REQUIRED,
                f"{opened.operation.name} is a WebSocket",
                _WITHOUT_UPGRADE.get(opened.operation.name, _BY_HTTP),
            )
        with self._place(caller.uid, caller.name):
            if session is None:
                return await self._send_results(http, request, opened)
            if opened.operation.name == "tunnel":
                admit = partial(self._dispatch.admit, request)
                return await serve_tunnel(http, session, admit, self._patience.linger)
            return await self._follow(http, request, opened, session)

    async def _follow(
        self, http: web.BaseRequest, request: Request, opened: Opened, session: Session
    ) -> web.StreamResponse:
        _bound_send_buffer(http)
        feed = self._feeds.get(session) or Feed(session)
        cursor, read = _reader(feed, session, opened)
        self._feeds[session] = feed
        try:
            stream = Stream(
                feed, cursor, read, lambda: self._dispatch.admit(request), self._patience
            )
            if opened.operation.kind != "websocket":
                return await send_events(http, stream, request.id, self._patience)
            commands = None
            if opened.operation.name == "debug":
                commands = Commands(self._dispatch, request, session.id, stream)
            return await serve_socket(http, stream, session.id, commands, self._patience)
        finally:
            if not feed.has_readers and self._feeds.get(session) is feed:
                del self._feeds[session]

    async def _send_results(
        self, http: web.BaseRequest, request: Request, opened: Opened
    ) -> web.StreamResponse:
        """Serve a socket of commands for any session: say who its caller is, and send results."""
        assert isinstance(opened.params, OpenCommands)
        _bound_send_buffer(http)
        # A page cannot send the header X-Human-Front.
        request.front = opened.params.front or request.front
        caller = self._dispatch.admit(request)
        stream = Stream(
            self._relay_feed,
            None,
            lambda _: _NOTHING,
            lambda: self._dispatch.admit(request),
            self._patience,
        )
        hello = {
            "caller": caller.name,
            "driver": caller.driver,
            "key_id": key_id(caller.key),
            "scopes": list(caller.scopes),
            "version": VERSION,
        }
        stream.put(forms.message(None, "hello", encode_json(hello)))
        commands = Commands(self._dispatch, request, None, stream)
        return await serve_socket(http, stream, None, commands, self._patience)

    def close(self) -> None:
        """End the sockets that no session ends."""
        self._relay_feed.close()

    @contextmanager
    def _place(self, uid: int, name: str) -> Iterator[None]:
        """Count a stream of this caller as long as it is open; refuse one too many."""
        self._require_room(uid, name)
        who = uid, name
        self._open[who] += 1
        try:
            yield
        finally:
            self._open[who] -= 1
            if not self._open[who]:
                del self._open[who]

    def _require_room(self, uid: int, name: str) -> None:
        of_caller, all_of_them = self._open[uid, name], self._open.total()
        if of_caller >= MOST_OF_A_CALLER or all_of_them >= MOST:
            raise RelayError(
                Code.TOO_MANY_STREAMS,
                f"{of_caller} streams of {name} are open, {all_of_them} in all; "
                f"{MOST_OF_A_CALLER} of a caller and {MOST} in all may be",
                f"Close other streams, or poll with {call_of('events')}.",
                open=of_caller,
            )


def _bound_send_buffer(http: web.BaseRequest) -> None:
    if http.transport is not None:
        wire: socket.socket = http.transport.get_extra_info("socket")
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)


def _reader(feed: Feed, session: Session, opened: Opened) -> tuple[str | None, _Read]:
    """The cursor at which the stream begins, and the function that reads on from one."""
    params = opened.params
    if isinstance(params, output_events.StreamOutput):
        cursor, category = params.cursor, params.category
        return _checked(
            cursor,
            lambda at: feed.encoded(
                ("sse-output", category, at),
                lambda: forms.sse_output(batches.output_batch(session.output, at, category)),
            ),
        )
    if isinstance(params, output_events.StreamEvents):
        return _checked(params.cursor, _events(feed, opened, params.types, forms.sse_events))
    assert isinstance(params, output_events.OpenStream)
    if opened.operation.name == "logs":
        return _checked(
            params.cursor,
            lambda at: feed.encoded(
                ("logs", at),
                lambda: forms.log_frames(batches.output_batch(session.output, at, None)),
            ),
        )
    # A request returns past events; a client that drives wants those from now on.
    cursor = params.cursor or session.events.end_cursor()
    return _checked(cursor, _events(feed, opened, None, forms.event_frames(session.id)))


def _checked(cursor: str | None, read: _Read) -> tuple[str | None, _Read]:
    """Refuse a cursor of another session before anything is sent."""
    read(cursor)
    return cursor, read


def _events(
    feed: Feed,
    opened: Opened,
    types: str | None,
    encode: Callable[[batches.Batch[batches.RawEvent]], Encoded],
) -> _Read:
    session, wanted = feed.session, batches.event_numbers(types)
    shows_output = READS_OUTPUT in opened.caller.scopes

    def read(at: str | None) -> Encoded:
        def fresh() -> Encoded:
            batch = batches.event_batch(session.events, at, wanted, session.events_end)
            return encode(batch if shows_output else forms.withheld(batch))

        return feed.encoded((opened.operation.name, wanted, shows_output, at), fresh)

    return read
