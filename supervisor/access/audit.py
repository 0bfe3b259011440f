"""The audit log: who did what to which session, and what came of it. A JSON line for each call that
changes something or runs code, refused ones too; what only reads is not in it. Of those who were
not let in at all there is a line for each uid and reason, with their count.

Written like the relay's log: in a file that rotates, by a thread of its own, so that no disk holds
up a call. Values that look secret are hidden, and of what goes to a program's standard input only
the length is told.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from debug_relay.protocol.models.blueprint import given_fields
from debug_relay.protocol.models.fields import Params
from debug_relay.protocol.operations import Operation
from debug_relay.protocol.secrets import HIDDEN, looks_secret, masked_arguments
from debug_relay.protocol.wire.envelope import timestamp_of
from debug_relay.supervisor.log import Log, Place, RotatingFile, in_json, redact
from debug_relay.supervisor.setup_error import SetupError

_log: Final = Log(__name__)
_FILE_BYTES: Final = 10 * 1024 * 1024  # One file of the audit log, before it is rotated.
_MOST_FILES: Final = 10  # Files of the audit log.
# The last lines that a kill -9 of the relay may take from the audit log.
_LINGER_SECONDS: Final = 0.05
_TEXT_CHARACTERS: Final = 1000  # One text in a line of the audit log.
_MOST_ITEMS: Final = 50  # Entries of one list or object in a line of the audit log.
# What a person types into a program may be a password.
_TYPED: Final = frozenset({"input", "base64", "stdin_inputs"})


class Deed(Struct, kw_only=True):
    """One call, as far as it was understood."""

    operation: str
    request_id: str
    uid: int
    caller: str | None
    session_id: str | None
    params: Params | None
    status: int | None  # None: the caller had left before the answer came
    code: str | None  # of a refusal
    seconds: float


def is_deed(operation: Operation) -> bool:
    """Not what only reads, nor what only says that somebody is there."""
    return not operation.safe and operation.name != "ping"


class Audit:
    """The file, as long as it is not closed."""

    def __init__(self, file: RotatingFile | None, path: Path) -> None:
        self._file = file
        self._path = path
        self._place = Place(_line, file.write, _LINGER_SECONDS) if file is not None else None

    @classmethod
    def open(cls, asked: str | None, usual: Path) -> Audit:
        """One that was asked for must be there; without the usual one the relay starts as well."""
        path = Path(asked) if asked else usual
        try:
            file = RotatingFile(path, _FILE_BYTES, _MOST_FILES, is_own=not asked)
        except OSError as error:
            if asked:
                raise SetupError(
                    f"The audit log {path} cannot be written: {error.strerror}.",
                    "Correct audit_file below [log], or make its directory writable; "
                    'audit_file = "" puts it into the data directory.',
                ) from error
            _log.warning("audit.failed", path=path, reason=error.strerror)
            return cls(None, path)
        if file.moved_aside is not None:
            _log.error("audit.no_file", path=path, moved_to=file.moved_aside)
        return cls(file, path)

    def note(self, deed: Deed) -> None:
        if self._place is not None:
            self._write(deed.operation, _told(deed))

    def refused(self, event: str, fields: dict[str, Any]) -> None:
        """Who was not let in, counted."""
        if self._place is not None:
            self._write(event, {name: redact(name, value) for name, value in fields.items()})

    def _write(self, operation: str, fields: dict[str, Any]) -> None:
        assert self._place is not None
        record = logging.LogRecord(__name__, logging.INFO, "", 0, operation, None, None)
        record.fields = fields
        self._place.emit(record)

    def warning(self) -> str | None:
        """For `/health`."""
        if self._place is None:
            return f"there is no audit log: {self._path} cannot be written"
        lost = self._place.lost
        return f"{lost} lines of the audit log {self._path} could not be written" if lost else None

    def close(self) -> None:
        """Writes what waits, for a second at most."""
        if self._place is None or self._file is None:
            return
        if self._place.finish(timeout=1.0):
            self._file.close()
        self._place.close()
        self._place = None


def _told(deed: Deed) -> dict[str, Any]:
    told: dict[str, Any] = {
        "session_id": deed.session_id,
        "caller": deed.caller,
        "uid": deed.uid,
        "request_id": deed.request_id,
        "status": deed.status,
        "seconds": round(deed.seconds, 4),
    }
    if deed.status is not None and deed.status >= 400:
        told["code"] = deed.code
    if deed.params is not None:
        # Before anything else is done with them: what is left out costs nothing.
        told["parameters"] = _shown(_fewer(given_fields(deed.params)))
    return told


def _shown(fields: dict[str, Any]) -> Any:
    for name in _TYPED.intersection(fields):
        fields[name] = _lengths(fields[name])
    if looks_secret(str(fields.get("name", ""))) and "value" in fields:
        fields["value"] = HIDDEN  # of a variable
    for name in ("args", "python_args"):
        if name in fields:
            whose = fields.get("script") or fields.get("module") or ""
            fields[name] = masked_arguments(fields[name], whose if name == "args" else "")
    return _cut(redact("parameters", fields))


def _lengths(typed: Any) -> Any:
    if isinstance(typed, list):
        return [_lengths(text) for text in typed]
    return f"<{len(typed)} characters>" if isinstance(typed, str) else typed


def _fewer(value: Any) -> Any:
    """The first items of each list and mapping, and how many more there are."""
    if not isinstance(value, dict | list):
        return value
    more = len(value) - _MOST_ITEMS
    if isinstance(value, dict):
        pairs = itertools.islice(value.items(), _MOST_ITEMS)
        named = {name: _fewer(item) for name, item in pairs}
        return {**named, "…": f"(+{more})"} if more > 0 else named
    shown = [_fewer(item) for item in value[:_MOST_ITEMS]]
    return [*shown, f"… (+{more})"] if more > 0 else shown


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        more = len(value) - _TEXT_CHARACTERS
        return value if more <= 0 else f"{value[:_TEXT_CHARACTERS]}… (+{more} characters)"
    if isinstance(value, Mapping):
        return {name: _cut(item) for name, item in value.items()}
    return [_cut(item) for item in value] if isinstance(value, list) else value


def _line(record: logging.LogRecord) -> bytes:
    fields: dict[str, Any] = getattr(record, "fields", {})
    line = {"ts": timestamp_of(record.created), "operation": record.getMessage(), **fields}
    return in_json(line)
