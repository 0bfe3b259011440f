"""`intent.json` in a session's directory: written before its worker lives.

It says which request the session is made for, if that has an `Idempotency-Key`. When a relay is
killed before it has answered, the next one knows the session that such a request has made already.
"""

from __future__ import annotations

from contextvars import ContextVar
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from debug_relay.protocol.system import json_file
from debug_relay.supervisor.storage.json_files import read_json

_FILE: Final = "intent.json"


class KeyedRequest(Struct, frozen=True):
    """A request that is done once, however often it is sent."""

    caller: str
    path: str
    key: str
    fingerprint: str  # the body's hash
    began: float  # wall time

    @property
    def name(self) -> tuple[str, str, str, str]:
        return self.caller, self.path, self.key, self.fingerprint


class _Intent(Struct):
    session_id: str
    request: KeyedRequest | None = None


# The request that is being answered; None if it has no key.
CURRENT_REQUEST: Final[ContextVar[KeyedRequest | None]] = ContextVar(
    "current_request", default=None
)


def write(folder: Path, session_id: str) -> None:
    intent = _Intent(session_id, CURRENT_REQUEST.get())
    json_file.write(folder / _FILE, msgspec.to_builtins(intent), fsync=False)


def request_of(folder: Path) -> KeyedRequest | None:
    """The request that the session of this directory was made for."""
    try:
        return msgspec.convert(read_json(folder / _FILE), _Intent).request
    except msgspec.ValidationError:
        return None
