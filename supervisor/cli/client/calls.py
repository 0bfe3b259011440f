"""Calls operations of a relay by name, over TCP or a Unix socket, and reads the answers.

`operations.json` beside this module says where each operation is. A connection is kept for further
calls of the same command.
"""

from __future__ import annotations

import errno
import http.client
import json
import os
import socket
import sys
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from debug_relay.protocol.version import VERSION
from debug_relay.supervisor.cli.client.address import Address, NoRelay, lease_key

_CONNECT_SECONDS = 10.0  # A machine that does not answer at all is given up after this time.
# How long the relay may take for an answer, beside the seconds that the call itself asks for.
_ANSWER_SECONDS = 90.0
_SECONDS_FIELDS = ("wait", "timeout", "connect_timeout", "wait_seconds", "grace")


class Refused(Exception):
    """The relay has answered with an error."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        super().__init__(reply.text)

    @property
    def code(self) -> str:
        """The error's code; some other text if the answer is not the relay's."""
        if self.reply.is_json:
            return str(self.reply.json["error"]["code"])
        return self.reply.text.removeprefix("error ").partition(":")[0]


class Reply(NamedTuple):
    status: int
    kind: str  # the content type
    body: bytes

    @property
    def is_json(self) -> bool:
        return self.kind.startswith("application/json")

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def data(self) -> Any:
        return self.json["data"]

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "backslashreplace")


class Person(NamedTuple):
    """A person who acts through a front, and the key to which their leases belong."""

    front: str
    lease_key: str | None


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@cache
def operations() -> dict[str, Any]:
    """Each operation's paths and fields, by name."""
    with open(os.path.join(os.path.dirname(__file__), "operations.json"), "rb") as file:
        found: dict[str, Any] = json.loads(file.read())
    return found


def callable_operations() -> dict[str, Any]:
    """The operations that answer one request with one reply."""
    return {name: row for name, row in operations().items() if row["kind"] in ("json", "document")}


class Relay:
    """One relay, as a caller with a token and a name sees it."""

    def __init__(
        self,
        address: Address,
        token: str | None,
        agent: str | None,
        data_dir: str | None = None,
        person: Person | None = None,
    ) -> None:
        self.address = address
        self.answer_seconds = _ANSWER_SECONDS
        self._headers = {"User-Agent": f"debug-relay/{VERSION}"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        if agent:
            self._headers["X-Agent"] = agent
        if person is None and sys.stdin is not None and sys.stdin.isatty():
            # A command typed on a terminal is a person's act: it takes a free lease.
            person = Person("command line", lease_key(data_dir))
        if person is not None:
            self._headers["X-Human-Front"] = person.front
            if person.lease_key:
                self._headers["X-Lease-Key"] = person.lease_key
        self._connection: http.client.HTTPConnection | None = None
        self._has_left = False

    def hang_up(self) -> None:
        """Ends the call under way, which raises NoRelay. Another thread calls this."""
        self._has_left = True
        sock = None if self._connection is None else self._connection.sock
        if sock is not None:
            with suppress(OSError):  # the relay has closed it first
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def call(self, name: str, /, *, form: str = "json", **fields: Any) -> Reply:
        """Calls an operation; fields that are None are left out. Raises Refused or NoRelay."""
        verb, target, body = self._request(name, form, fields)
        waits = sum(float(fields.get(field) or 0) for field in _SECONDS_FIELDS)
        headers = dict(self._headers)
        if body is not None:
            headers["Content-Type"] = "application/json"
        response = self._send(verb, target, body, headers, waits + self.answer_seconds)
        try:
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise self._lost(error) from error
        except KeyboardInterrupt:
            self.close()  # the next call must not read this one's answer
            raise
        reply = Reply(response.status, response.headers.get("Content-Type", ""), content)
        if reply.status >= 400 and not (name == "health" and reply.status == 503):
            raise Refused(reply)
        is_text = form != "json" or operations()[name]["kind"] != "json"
        if reply.kind.startswith("text/html") or not (reply.is_json or is_text):
            at = self.address
            raise NoRelay(f"what answers at {at.shown} (from {at.origin}) is no relay")
        return reply

    def _request(
        self, name: str, form: str, fields: dict[str, Any]
    ) -> tuple[str, str, bytes | None]:
        row = operations()[name]
        given = {key: value for key, value in fields.items() if value is not None}
        for key in row["path_fields"]:
            assert key in given, f"{name} needs {key}"
        path = row["paths"][0].format(
            **{key: quote(str(given.pop(key)), safe="") for key in row["path_fields"]}
        )
        query = {"format": form} if form != "json" else {}
        body = None
        if row["verb"] in ("GET", "DELETE"):
            query |= {key: _in_query(value) for key, value in given.items()}
        else:
            body = json.dumps(given).encode()
        target = self.address.path + path + ("?" + urlencode(query) if query else "")
        return row["verb"], target, body

    def _send(
        self, verb: str, target: str, body: bytes | None, headers: dict[str, str], seconds: float
    ) -> http.client.HTTPResponse:
        """Sends once. A read is repeated if the relay has closed the kept connection meanwhile;
        what changes something is not, because it may have been done.
        """
        is_kept = self._connection is not None and self._connection.sock is not None
        try:
            connection = self._connected(seconds)
            connection.request(verb, target, body, headers)
            if self._has_left:  # before there was a socket to shut down
                raise ConnectionAbortedError(errno.ECONNABORTED, "the caller has hung up")
            return connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            lost = self._lost(error)
            is_closed = isinstance(error, ConnectionResetError | BrokenPipeError)
            if not (is_kept and is_closed and verb == "GET"):
                raise lost from error
        except KeyboardInterrupt:
            self.close()
            raise
        return self._send(verb, target, body, headers, seconds)

    def _connected(self, seconds: float) -> http.client.HTTPConnection:
        if self._connection is None:
            at = self.address
            wait = _CONNECT_SECONDS
            if at.scheme == "unix":
                self._connection = _UnixConnection(at.socket, wait)
            elif at.scheme == "https":
                self._connection = http.client.HTTPSConnection(at.host, at.port, timeout=wait)
            else:
                self._connection = http.client.HTTPConnection(at.host, at.port, timeout=wait)
        if self._connection.sock is None:
            self._connection.connect()
        self._connection.sock.settimeout(seconds)
        return self._connection

    def _lost(self, error: Exception) -> NoRelay:
        self.close()
        at = self.address
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return NoRelay(f"no relay answers at {at.shown} (from {at.origin}): {reason}")


def _in_query(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
