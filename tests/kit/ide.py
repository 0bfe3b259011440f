"""An IDE, as far as a debug adapter sees one: DAP over a real socket, message by message."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from tests.kit.client import Session

Message = dict[str, Any]
WITHIN = 20.0


def connected(session: Session) -> socket.socket:
    """A connection to the session's join port."""
    uri = urlsplit(session.get().ok()["debugger"]["uri"])
    assert uri.scheme == "tcp"
    return socket.create_connection((uri.hostname, uri.port), timeout=WITHIN)


class Ide:
    """Keeps every message in the order of its arrival."""

    def __init__(
        self,
        session: Session,
        client_id: str = "test",
        *,
        peer: socket.socket | None = None,
        **fields: Any,
    ) -> None:
        """`peer` is a connection that leads to the join port; default: one of its own."""
        self.who = {"clientID": client_id, "adapterID": "python", **fields}
        self.messages: list[Message] = []
        self.sent: list[Message] = []
        self.closed = False
        self._seq = 0
        self._news = threading.Condition()
        self._peer = connected(session) if peer is None else peer
        self._peer.settimeout(None)
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def __enter__(self) -> Ide:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if not self.closed:
            self._peer.shutdown(socket.SHUT_RDWR)
        self._reading.join(WITHIN)
        self._peer.close()

    # -- talking

    def send(self, command: str, **arguments: Any) -> int:
        self._seq += 1
        request = {"seq": self._seq, "type": "request", "command": command, "arguments": arguments}
        self.sent.append(request)
        self.send_raw(json.dumps(request).encode())
        return self._seq

    def send_raw(self, body: bytes) -> None:
        self._peer.sendall(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    def answer(self, seq: int) -> Message:
        return self.until(lambda m: m["type"] == "response" and m["request_seq"] == seq)

    def ask(self, command: str, **arguments: Any) -> Any:
        """The body of a success."""
        answer = self.answer(self.send(command, **arguments))
        assert answer["success"], answer
        return answer.get("body")

    def refused(self, command: str, **arguments: Any) -> Message:
        answer = self.answer(self.send(command, **arguments))
        assert not answer["success"], answer
        return answer

    def join(self, breakpoints: dict[str, list[int]] | None = None, **attach: Any) -> None:
        """The handshake as VS Code goes through it."""
        self.ask("initialize", **self.who)
        attached = self.send("attach", **attach)
        self.event("initialized")
        for path, lines in (breakpoints or {}).items():
            self.break_at(path, *lines)
        self.ask("setExceptionBreakpoints", filters=[])
        self.ask("configurationDone")
        assert self.answer(attached)["success"]

    def break_at(self, path: Any, *lines: int, **fields: Any) -> list[Message]:
        rows = [{"line": line, **fields} for line in lines]
        body = self.ask("setBreakpoints", source={"path": str(path)}, breakpoints=rows)
        return list(body["breakpoints"])

    # -- hearing

    def event(self, name: str, after: int = 0, **fields: Any) -> Message:
        """The first such event behind the first `after` messages; its body."""

        def fits(message: Message) -> bool:
            return (
                message["type"] == "event"
                and message["event"] == name
                and fields.items() <= message["body"].items()
            )

        return dict(self.until(fits, after)["body"])

    def until(self, fits: Callable[[Message], bool], after: int = 0) -> Message:
        with self._news:
            found: list[Message] = []

            def there() -> bool:
                found[:] = [m for m in self.messages[after:] if fits(m)][:1]
                return bool(found) or self.closed

            assert self._news.wait_for(there, WITHIN), self.messages[-20:]
            assert found, f"closed after {self.messages[-20:]}"
            return found[0]

    def until_closed(self) -> None:
        with self._news:
            assert self._news.wait_for(lambda: self.closed, WITHIN), self.messages[-20:]

    @property
    def events(self) -> list[str]:
        return [m["event"] for m in self.messages if m["type"] == "event"]

    def stopped(self, after: int = 0) -> tuple[Message, int]:
        """The body of the next stop, and the line of its top frame."""
        body = self.event("stopped", after)
        frames = self.ask("stackTrace", threadId=body["threadId"])["stackFrames"]
        return body, frames[0]["line"]

    def _read(self) -> None:
        data = b""
        while True:
            try:
                piece = self._peer.recv(65536)
            except OSError:
                piece = b""
            if not piece:
                break
            data += piece
            while b"\r\n\r\n" in data:
                head, _, rest = data.partition(b"\r\n\r\n")
                length = int(head.rpartition(b":")[2])
                if len(rest) < length:
                    break
                data = rest[length:]
                with self._news:
                    self.messages.append(json.loads(rest[:length]))
                    self._news.notify_all()
        with self._news:
            self.closed = True
            self._news.notify_all()
