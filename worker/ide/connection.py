"""One IDE's connection: DAP messages in and out. It knows nothing of the session."""

from __future__ import annotations

import json
from asyncio import StreamReader, StreamWriter
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from debug_relay.protocol.wire import dap
from debug_relay.protocol.wire.dap import DapError, Message

_MESSAGE_BYTES: Final = 4 * 1024 * 1024  # One message of an IDE's.
_PIECE_BYTES: Final = 64 * 1024  # One read.
# An IDE may leave this much unread. One that is further behind has stopped reading.
_UNREAD_BYTES: Final = 16 * 1024 * 1024
# After so many messages in a row that are no requests the peer is no IDE.
_MOST_USELESS: Final = 100


class Connection:
    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = dap.Decoder(_MESSAGE_BYTES)
        self._arrived: deque[Message] = deque()
        self._useless = 0  # messages since the last request
        self._seq = 0

    async def read(self) -> Message | None:
        """The next request; None at the end. Raises DapError if the bytes are not DAP, or if many
        messages in a row are no requests.

        A body that is no message is refused here: the next one begins where it ends. An IDE that
        does not read its answers is not read either.
        """
        try:
            await self._writer.drain()
            while not self._arrived:
                data = await self._reader.read(_PIECE_BYTES)
                if not data:
                    return None
                for body in self._decoder.bodies(data):
                    self._take(body)
                await self._writer.drain()
        except ConnectionError:
            return None
        return self._arrived.popleft()

    def _take(self, body: bytes | None) -> None:
        self._useless += 1
        if self._useless > _MOST_USELESS:
            raise DapError(f"{_MOST_USELESS} messages in a row are no requests")
        if body is None:
            words = f"A message may have {_MESSAGE_BYTES} bytes at most; this one was left out"
            self.refuse(Message("request"), words, words, False)
            return
        try:
            message = dap.decode_message(body)
        except DapError as error:
            words = f"This is {error}"
            self.refuse(_as_far_as_readable(body), words, words, False)
            return
        if message.type == "request":  # we send none to IDEs, so nothing else answers one
            self._useless = 0
            self._arrived.append(message)

    def respond(self, request: Message, body: Any = None) -> None:
        self._send({**self._response(request, True), "body": body or {}})

    def refuse(self, request: Message, message: str, words: str, show: bool) -> None:
        """Answer with an error: `message` for the IDE, `words` for the person. With `show` the IDE
        shows them at once.
        """
        error = {"id": 1, "format": _without_variables(words), "showUser": show}
        self._send({**self._response(request, False), "message": message, "body": {"error": error}})

    def send_event(self, event: str, body: Any = None) -> None:
        self._send({"type": "event", "event": event, "body": body or {}})

    def close(self) -> None:
        """Close when everything is sent; the listener's end disconnects a peer that
        does not read.
        """
        self._writer.close()

    def _response(self, request: Message, success: bool) -> dict[str, Any]:
        return {
            "type": "response",
            "request_seq": request.seq,
            "command": request.command[:200],
            "success": success,
        }

    def _send(self, message: Mapping[str, Any]) -> None:
        transport = self._writer.transport
        if transport.is_closing():
            return
        self._seq += 1
        self._writer.write(dap.encode({"seq": self._seq, **message}))
        if transport.get_write_buffer_size() > _UNREAD_BYTES:
            transport.abort()


def _as_far_as_readable(body: bytes) -> Message:
    """The request that a body was meant to be, so that its answer has its number."""
    try:
        read = json.loads(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return Message("request")
    fields = read if isinstance(read, dict) else {}
    seq, command = fields.get("seq"), fields.get("command")
    return Message(
        "request",
        seq=seq if type(seq) is int else 0,
        command=command if isinstance(command, str) else "",
    )


def _without_variables(words: str) -> str:
    """Escape braces, in which DAP's error format names variables."""
    return words.replace("{", "(").replace("}", ")")


__all__ = ["Connection", "DapError"]
