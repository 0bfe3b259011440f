"""Streams as clients read them: `curl -N` for server-sent events, `websockets` for the others."""

from __future__ import annotations

import json
import queue
import shutil
import subprocess
import threading
from types import TracebackType
from typing import Any, NamedTuple

import pytest

from tests.kit.client import Client, Session

WITHIN = 20.0

needs_curl = pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")


class Sent(NamedTuple):
    """One server-sent event."""

    event: str
    data: Any
    id: str | None


class Curl:
    """`curl -N` on a stream; its events as they come."""

    def __init__(self, url: str, *flags: str) -> None:
        self.comments = 0
        self._process = subprocess.Popen(
            ["curl", "-sSN", *flags, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self._events: queue.Queue[Sent | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Curl:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()
        self._reader.join(WITHIN)

    def _read(self) -> None:
        fields: dict[str, str] = {}
        assert self._process.stdout is not None
        for raw in self._process.stdout:
            line = raw.decode().rstrip("\n")
            if line.startswith(":"):
                self.comments += 1
            elif line:
                name, _, value = line.partition(": ")
                fields[name] = value
            else:
                if "data" in fields:
                    data = json.loads(fields["data"])
                    self._events.put(Sent(fields["event"], data, fields.get("id")))
                fields = {}
        self._events.put(None)

    def next(self) -> Sent | None:
        """The next event; None at the end of the stream."""
        return self._events.get(timeout=WITHIN)

    def until(self, event: str) -> list[Sent]:
        """All events up to the first of this type, with it."""
        found: list[Sent] = []
        while not found or found[-1].event != event:
            one = self.next()
            assert one is not None, found
            found.append(one)
        return found

    def rest(self) -> list[Sent]:
        return [*iter(self.next, None)]  # type: ignore[list-item]

    @property
    def exit_code(self) -> int:
        return self._process.wait(WITHIN)


def curl(session: Session, path: str, *flags: str, prefix: str | None = None) -> Curl:
    client = session.client
    base = client.url if prefix is None else f"http://{client.host}:{client.port}{prefix}"
    return Curl(f"{base}/sessions/{session.id}{path}", *flags)


def socket_url(client: Client, path: str, prefix: str | None = None) -> str:
    start = client.prefix if prefix is None else prefix
    return f"ws://{client.host}:{client.port}{start}{path}"


def connect(session: Session, path: str, *, prefix: str | None = None, **options: Any) -> Any:
    """A socket of the session, by the `websockets` package."""
    sync = pytest.importorskip("websockets.sync.client")
    url = socket_url(session.client, f"/sessions/{session.id}{path}", prefix)
    options.setdefault("compression", None)
    headers = {**session.client.headers, **options.pop("headers", {})}
    return sync.connect(url, additional_headers=headers, **options)


def received(socket: Any, within: float = WITHIN) -> Any:
    return json.loads(socket.recv(timeout=within))


def all_of(socket: Any) -> tuple[list[Any], int, str]:
    """Every message to the end, the close code and its reason."""
    closed = pytest.importorskip("websockets.exceptions").ConnectionClosed
    found: list[Any] = []
    while True:
        try:
            found.append(received(socket))
        except closed as error:
            return found, error.rcvd.code, error.rcvd.reason
