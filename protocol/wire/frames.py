"""Framing between supervisor and worker on their one Unix stream. Sans I/O.

u32 length of all that follows the prefix | u32 id | u8 kind | u8 flags | u32 length of head
    head: msgpack of the kind's Struct | payload: bytes that this layer does not interpret

A payload above `PIECE_BYTES` travels in several frames with the same id. All but the last have the
flag `MORE`, and all but the first an empty head. So a small answer never waits behind a large one.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct as Layout
from typing import Final

import msgspec
from msgspec import Struct

from debug_relay.protocol.version import MAX_FRAME_BYTES

# One piece of a longer payload: a small answer never waits behind a large one.
PIECE_BYTES: Final = 1 << 20
_PREFIX: Final = Layout("<I")
_FIXED: Final = Layout("<IBBI")
_MORE: Final = 1
PERSON: Final = " (human)"  # The end of a person's name; no agent's name has it.


class Kind(IntEnum):
    HELLO = 1  # the first frame in both directions; the worker answers the supervisor's
    REQUEST = 2
    REPLY = 3
    NEWS = 4  # worker → supervisor: state, event and output positions
    TOUCH = 5  # supervisor → worker: a caller uses the session
    CANCEL = 6  # supervisor → worker: no caller waits for request `id` any more
    PING = 7  # answered by an empty REPLY


class Hello(Struct, array_like=True):
    wire: int
    version: str
    pid: int
    session_id: str = ""
    start_ticks: int = 0


class Caller(Struct, array_like=True, frozen=True):
    """The caller of a request. Without configured tokens, a caller has every scope."""

    name: str
    uid: int
    scopes: tuple[str, ...]
    front: str = ""  # through which a person acts, such as an IDE; empty for an agent
    key: str = ""  # the hash of its X-Lease-Key: others who send the same names lack it

    @property
    def driver(self) -> str:
        """The name in leases and events: a person and an agent with one token are two drivers."""
        return f"{self.name}{PERSON}" if self.front else self.name


class RequestHead(Struct, array_like=True):
    operation: str
    request_id: str
    caller: Caller
    deadline: float  # seconds from now, computed by the supervisor
    if_stop: int | None = None
    idempotency_key: str | None = None
    format: str = "json"  # json | text | markdown
    max_bytes: int = 0  # bound of the reply, 0 = the operation's own


class NewsHead(Struct, array_like=True):
    """The session's position and state, carried by every reply and by frames of its own.

    `state` is the session's whole public state as JSON, present if it changed since the last frame
    on this connection.
    """

    events_end: int
    output_end: int
    state: bytes | None = None


class ReplyHead(Struct, array_like=True):
    news: NewsHead
    status: int
    content_type: str = "application/json"
    ok: bool = True


Head = Hello | RequestHead | NewsHead | ReplyHead | None

_HEADS: Final[dict[Kind, msgspec.msgpack.Decoder[Head] | None]] = {
    Kind.HELLO: msgspec.msgpack.Decoder(Hello),
    Kind.REQUEST: msgspec.msgpack.Decoder(RequestHead),
    Kind.REPLY: msgspec.msgpack.Decoder(ReplyHead),
    Kind.NEWS: msgspec.msgpack.Decoder(NewsHead),
    Kind.TOUCH: None,
    Kind.CANCEL: None,
    Kind.PING: None,
}
_encode_head: Final = msgspec.msgpack.Encoder().encode


class Frame(Struct):
    kind: Kind
    id: int
    head: Head
    payload: bytes


class FrameError(Exception):
    """The peer sent bytes that are not our frames; the stream is unusable from here on."""


def encode(kind: Kind, id: int, head: Head = None, payload: bytes = b"") -> bytes:
    """The bytes of one message: one frame, or several if the payload is large."""
    head_bytes = b"" if head is None else _encode_head(head)
    if len(payload) <= PIECE_BYTES:
        return _frame(kind, id, 0, head_bytes, payload)
    pieces = [payload[at : at + PIECE_BYTES] for at in range(0, len(payload), PIECE_BYTES)]
    frames = [_frame(kind, id, _MORE, head_bytes, pieces[0])]
    frames += [_frame(kind, id, _MORE, b"", piece) for piece in pieces[1:-1]]
    frames.append(_frame(kind, id, 0, b"", pieces[-1]))
    return b"".join(frames)


def _frame(kind: Kind, id: int, flags: int, head: bytes, payload: bytes) -> bytes:
    length = _FIXED.size + len(head) + len(payload)
    return b"".join((_PREFIX.pack(length), _FIXED.pack(id, kind, flags, len(head)), head, payload))


class Decoder:
    """Feed it the bytes of the socket; iterate over the complete frames."""

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self._buffer = bytearray()
        self._max = max_bytes
        # Incomplete messages that arrive in pieces: (kind, id) → head, payload so far.
        self._open: dict[tuple[Kind, int], tuple[Head, bytearray]] = {}

    def feed(self, data: bytes) -> Iterator[Frame]:
        self._buffer += data
        at = 0
        try:
            while len(self._buffer) - at >= _PREFIX.size:
                (length,) = _PREFIX.unpack_from(self._buffer, at)
                if not _FIXED.size <= length <= self._max:
                    raise FrameError(f"a frame of {length} bytes")
                end = at + _PREFIX.size + length
                if len(self._buffer) < end:
                    break
                frame = self._take(bytes(self._buffer[at + _PREFIX.size : end]))
                at = end
                if frame is not None:
                    yield frame
        finally:
            del self._buffer[:at]

    def _take(self, body: bytes) -> Frame | None:
        id, kind_number, flags, head_length = _FIXED.unpack_from(body)
        try:
            kind = Kind(kind_number)
        except ValueError:
            raise FrameError(f"a frame of unknown kind {kind_number}") from None
        start = _FIXED.size + head_length
        if start > len(body):
            raise FrameError(f"a head of {head_length} bytes in a frame of {len(body)}")
        payload = body[start:]
        key = (kind, id)
        if key in self._open:
            head, collected = self._open[key]
            collected += payload
            if len(collected) > self._max:
                raise FrameError(f"a message of more than {self._max} bytes")
            payload = bytes(collected)
        else:
            head = self._head(kind, body[_FIXED.size : start])
            collected = bytearray(payload) if flags & _MORE else bytearray()
        if flags & _MORE:
            self._open[key] = (head, collected)
            return None
        self._open.pop(key, None)
        return Frame(kind, id, head, payload)

    @staticmethod
    def _head(kind: Kind, raw: bytes) -> Head:
        decoder = _HEADS[kind]
        if decoder is None or (kind is Kind.REPLY and not raw):
            return None
        try:
            return decoder.decode(raw)
        except msgspec.MsgspecError as error:
            raise FrameError(f"the head of a {kind.name} frame: {error}") from None
