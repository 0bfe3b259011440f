"""Encodes output and events for streams: as server-sent events and as WebSocket frames.

Each form turns one batch into the bytes that go out, so that streams share them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
from msgspec import Struct

from debug_relay.protocol.models.output_events import OutputEntry
from debug_relay.protocol.rendering import output_withheld
from debug_relay.protocol.wire.envelope import encode_json, timestamp
from debug_relay.supervisor.output.batches import Batch, RawEvent
from debug_relay.supervisor.streams.feed import Encoded
from debug_relay.supervisor.streams.stream import End

_TEXT_FRAME: Final = 0x81  # a whole text message, not masked: a server masks nothing
_SHORT: Final = 126
_LONG: Final = 1 << 16

HEARTBEAT: Final = b": heartbeat\n\n"
PING: Final = b"\x89\x00"
# A browser tries again after a second; it then sends the last id.
OPENING: Final = b"retry: 1000\n\n"


class _LogLine(Struct, omit_defaults=True):
    """The message of seed clients, with the fields that help to resume."""

    stream: str
    text: str
    timestamp: str
    cursor: str | None = None
    dropped: int = 0
    source: str | None = None
    line: int | None = None
    pid: int | None = None
    encoding: str | None = None
    end: str | None = None


class _Event(Struct):
    seq: int
    type: str
    timestamp: str
    body: msgspec.Raw


_decode_event: Final = msgspec.json.Decoder(_Event).decode


def frame(text: bytes) -> bytes:
    """One WebSocket text message."""
    size = len(text)
    if size < _SHORT:
        head = bytes((_TEXT_FRAME, size))
    elif size < _LONG:
        head = bytes((_TEXT_FRAME, _SHORT)) + size.to_bytes(2, "big")
    else:
        head = bytes((_TEXT_FRAME, _SHORT + 1)) + size.to_bytes(8, "big")
    return head + text


# -- server-sent events


def sse(event: str, data: bytes, id: str | None = None) -> bytes:
    """One event. The data is one line, because encoded JSON has no line breaks."""
    named = f"id: {id}\n" if id is not None else ""
    return f"{named}event: {event}\ndata: ".encode() + data + b"\n\n"


def sse_output(batch: Batch[OutputEntry]) -> Encoded:
    pieces = (sse("output", encode_json(entry), cursor) for entry, cursor in batch.messages)
    return _encoded(batch, _sse_dropped(batch.dropped), pieces)


def sse_events(batch: Batch[RawEvent]) -> Encoded:
    pieces = (sse(event.type, event.payload, cursor) for event, cursor in batch.messages)
    return _encoded(batch, _sse_dropped(batch.dropped), pieces)


def sse_end(end: End) -> bytes:
    return sse("end", encode_json(_told(end)))


def _sse_dropped(count: int) -> bytes:
    return sse("dropped", b'{"dropped":%d}' % count) if count else b""


# -- WebSockets


def log_frames(batch: Batch[OutputEntry]) -> Encoded:
    lines = [
        _LogLine(
            stream=entry.category,
            text=entry.output,
            timestamp=entry.timestamp,
            cursor=cursor,
            source=entry.source,
            line=entry.line,
            pid=entry.pid,
            encoding=entry.encoding,
        )
        for entry, cursor in batch.messages
    ]
    if batch.dropped and not lines:
        lines.append(_LogLine("console", "", timestamp(), batch.next_cursor))
    if lines:
        lines[0].dropped = batch.dropped
    return _encoded(batch, b"", (frame(encode_json(line)) for line in lines))


def log_end(end: End) -> bytes:
    """The last message, in the form of all others, so that clients need to know no second one."""
    text = f"[{end.message}]\n"
    line = _LogLine("console", text, timestamp(), end.cursor, end.missed, end=end.reason)
    return frame(encode_json(line))


def event_frames(session_id: str) -> Callable[[Batch[RawEvent]], Encoded]:
    """Events as `…/debug` pushes them."""
    id = encode_json(session_id)

    def pushed(event: RawEvent, cursor: str) -> bytes:
        whole = _decode_event(event.payload)
        return frame(
            b'{"session_id":%b,"kind":"event","event":"%b","payload":%b,"timestamp":"%b",'
            b'"seq":%d,"cursor":"%b"}'
            % (
                id, event.type.encode(), bytes(whole.body), whole.timestamp.encode(), event.seq,
                cursor.encode(),
            )
        )  # fmt: skip

    def encode(batch: Batch[RawEvent]) -> Encoded:
        lost = message(session_id, "dropped", b'{"dropped":%d}' % batch.dropped)
        head = lost if batch.dropped else b""
        return _encoded(batch, head, (pushed(event, cursor) for event, cursor in batch.messages))

    return encode


def message(
    session_id: str | None, kind: str, payload: bytes, id: Any = None, action: str = ""
) -> bytes:
    """One message of `…/debug`; the payload is JSON already."""
    named = b',"id":%b' % encode_json(id) if id is not None else b""
    if action:
        named += b',"action":%b' % encode_json(action)
    return frame(
        b'{"session_id":%b,"kind":"%b"%b,"payload":%b,"timestamp":"%b"}'
        % (encode_json(session_id), kind.encode(), named, payload, timestamp().encode())
    )


def debug_end(session_id: str | None, end: End) -> bytes:
    return message(session_id, "end", encode_json(_told(end)))


# -- both


def withheld(batch: Batch[RawEvent]) -> Batch[RawEvent]:
    """The batch for callers that may not read output: it says only that something was printed."""
    for event, _ in batch.messages:
        whole = msgspec.json.decode(event.payload)
        # `event.type` differs if a later version of the relay wrote the event.
        whole["body"] = output_withheld.in_event(whole["type"], whole["body"])
        event.payload = encode_json(whole)
    return batch


def _told(end: End) -> dict[str, Any]:
    return {
        "reason": end.reason,
        "message": end.message,
        "cursor": end.cursor,
        "missed": end.missed,
    }


def _encoded(batch: Batch[Any], head: bytes, pieces: Iterable[bytes]) -> Encoded:
    return Encoded(
        head + b"".join(pieces),
        batch.next_cursor,
        len(batch.messages),
        batch.dropped,
        batch.behind,
        batch.has_more,
    )
