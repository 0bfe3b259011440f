"""The relay driven over HTTP by as little client as possible: a socket and a JSON decoder."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_SECONDS = 60.0


class Caller:
    """Calls on one connection that is kept, or on a new one each, as curl does."""

    def __init__(self, url: str, keep_alive: bool) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname, parts.port)
        self._prefix = parts.path
        self._host = parts.netloc
        self._keep_alive = keep_alive
        self._socket: socket.socket | None = None

    def call(self, verb: str, path: str, body: Any = None) -> Any:
        """The data of the answer."""
        payload = b"" if body is None else json.dumps(body).encode()
        head = f"{verb} {self._prefix}{path} HTTP/1.1\r\nHost: {self._host}\r\n"
        if not self._keep_alive:
            head += "Connection: close\r\n"
        if body is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(payload)}\r\n"
        connection = self._connection()
        try:
            connection.sendall(head.encode() + b"\r\n" + payload)
            answer = json.loads(_body(connection))
        finally:
            if not self._keep_alive:
                self.close()
        if not answer["success"]:
            raise RuntimeError(f"{verb} {path}: {answer['error']}")
        return answer["data"]

    def _connection(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=_SECONDS)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._socket

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _body(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += _some(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split()[0])
    while len(body) < length:
        body += _some(connection)
    return body


def _some(connection: socket.socket) -> bytes:
    data = connection.recv(1 << 18)
    if not data:
        raise RuntimeError("the relay closed the connection")
    return data


class Debugged:
    """A session of the relay's; every method is one call."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self.id = caller.call("POST", "/sessions", {})["session_id"]

    def by(self, caller: Caller) -> Debugged:
        """The same session, reached in another way."""
        other = Debugged.__new__(Debugged)
        other._caller, other.id = caller, self.id
        return other

    def get(self, path: str) -> Any:
        return self._caller.call("GET", f"/sessions/{self.id}{path}")

    def post(self, path: str, body: Any = None) -> Any:
        return self._caller.call("POST", f"/sessions/{self.id}{path}", body or {})

    def set_breakpoint(self, program: Path, line: int, condition: str | None = None) -> str:
        body = {"source": {"path": str(program)}, "line": line, "condition": condition}
        return str(self.post("/breakpoints", body)["breakpoints"][0]["id"])

    def launch(self, program: Path, wait: float = 30, python: str = sys.executable) -> Any:
        # The interpreter that debugpy's side has; what `python3` means here may be a shell script.
        body = {"script": str(program), "wait": wait, "python_path": python}
        return self.post("/launch", body)

    def end(self) -> None:
        self._caller.call("DELETE", f"/sessions/{self.id}?force=true")
