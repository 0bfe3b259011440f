"""Raw bytes to a relay: for what no HTTP library would send."""

from __future__ import annotations

import socket

from tests.kit.client import Answer, Client

SECONDS = 20.0


class Wire:
    def __init__(self, client: Client) -> None:
        assert client.port is not None
        self.host = f"{client.host}:{client.port}"
        self.prefix = client.prefix
        self._address = (client.host, client.port)

    def connect(self) -> socket.socket:
        return socket.create_connection(self._address, timeout=SECONDS)

    def exchange(self, sent: bytes, shut: bool = False) -> bytes:
        """Everything that comes back until the relay closes."""
        with self.connect() as sock:
            sock.sendall(sent)
            if shut:
                sock.shutdown(socket.SHUT_WR)
            return received(sock)

    def ask(self, line: str, *headers: str, body: bytes = b"", host: str | None = None) -> Answer:
        """One request on a connection of its own; bytes of headers are Latin-1."""
        return parsed(self.exchange(self.request(line, *headers, body=body, host=host)))

    def request(
        self, line: str, *headers: str, body: bytes = b"", host: str | None = None
    ) -> bytes:
        lines = [f"{line} HTTP/1.1", f"Host: {host or self.host}", "Connection: close", *headers]
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def received(sock: socket.socket) -> bytes:
    pieces = []
    while piece := sock.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


def parsed(raw: bytes) -> Answer:
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return Answer(int(first.split(" ")[1]), dict(line.split(": ", 1) for line in lines), body)
