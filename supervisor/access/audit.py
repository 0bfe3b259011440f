"""The audit log: which caller did what to which session, with which result.

It has a JSON line for each call that changes something or runs code, also if the call was refused;
calls that only read have none. Refused connections have one line for each uid and reason, with a
count. A thread of its own writes the file, so a slow disk delays no call. Values that look secret
are hidden; of a program's standard input the log has only the length.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from debug_relay.protocol.models.blueprint import given_fields
from debug_relay.protocol.models.fields import Params
from debug_relay.protocol.operation_row import Operation
from debug_relay.protocol.secrets import HIDDEN, looks_secret, masked_arguments
from debug_relay.protocol.wire.envelope import timestamp
from debug_relay.supervisor.log import DROPPED, LineWriter, Log, RotatingFile, in_json, redact
from debug_relay.supervisor.setup_error import SetupError

_log: Final = Log(__name__)
_FILE_BYTES: Final = 10 * 1024 * 1024  # One file of the audit log, before it is rotated.
_MOST_FILES: Final = 10  # Files of the audit log.
# The last lines that a kill -9 of the relay may take from the audit log.
_LINGER_SECONDS: Final = 0.05
_TEXT_CHARACTERS: Final = 1000  # One text in a line of the audit log.
_MOST_ITEMS: Final = 50  # Entries of one list or object in a line of the audit log.
# A person may type a password into a program.
_TYPED: Final = frozenset({"input", "base64", "stdin_inputs"})


class AuditedCall(Struct, kw_only=True):
    """One call, as far as the relay understood it."""

    operation: str
    request_id: str
    uid: int
    address: str | None  # if the kernel names no uid
    caller: str | None
    session_id: str | None
    params: Params | None
    status: int | None  # None if the caller left before the answer came
    code: str | None  # of a refusal
    seconds: float


def is_audited(operation: Operation) -> bool:
    """Whether calls of it get a line: reading and `ping` do not."""
    return not operation.safe and operation.name != "ping"


class Audit:
    """The open file of the audit log."""

    def __init__(self, file: RotatingFile | None, path: Path) -> None:
        self._file = file
        self._path = path
        self._writer = (
            LineWriter(_dropped, file.write, _LINGER_SECONDS) if file is not None else None
        )

    @classmethod
    def open(cls, configured: str | None, usual: Path) -> Audit:
        """Raises SetupError if a configured file cannot be written. If the usual one cannot, the
        relay starts without an audit log.
        """
        path = Path(configured) if configured else usual
        try:
            file = RotatingFile(path, _FILE_BYTES, _MOST_FILES, is_own=not configured)
        except OSError as error:
            if configured:
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

    def note(self, call: AuditedCall) -> None:
        if self._writer is not None:
            self._write(call.operation, _fields(call))

    def refused(self, event: str, fields: dict[str, Any]) -> None:
        """Writes a line about refused connections or requests."""
        if self._writer is not None:
            self._write(event, {name: redact(name, value) for name, value in fields.items()})

    def _write(self, operation: str, fields: dict[str, Any]) -> None:
        assert self._writer is not None
        self._writer.put(lambda: _line(operation, fields))

    def warning(self) -> str | None:
        """For `/health`."""
        if self._writer is None:
            return f"there is no audit log: {self._path} cannot be written"
        lost = self._writer.lost
        return f"{lost} lines of the audit log {self._path} could not be written" if lost else None

    def close(self) -> None:
        """Writes the waiting lines, for a second at most."""
        if self._writer is None or self._file is None:
            return
        if self._writer.finish(timeout=1.0):
            self._file.close()
        self._writer = None


def _fields(call: AuditedCall) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "session_id": call.session_id,
        "caller": call.caller,
        "uid": call.uid,
        **({"address": call.address} if call.address is not None else {}),
        "request_id": call.request_id,
        "status": call.status,
        "seconds": round(call.seconds, 4),
    }
    if call.status is not None and call.status >= 400:
        fields["code"] = call.code
    if call.params is not None:
        # We shorten lists first, so that masking and cutting look only at what is shown.
        fields["parameters"] = _shown(_fewer(given_fields(call.params)))
    return fields


def _shown(fields: dict[str, Any]) -> Any:
    for name in _TYPED.intersection(fields):
        fields[name] = _lengths(fields[name])
    if looks_secret(str(fields.get("name", ""))) and "value" in fields:
        fields["value"] = HIDDEN  # the value of a variable with a name that looks secret
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
    """The value with only the first items of each list and mapping, and how many more there are."""
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


def _line(operation: str, fields: Mapping[str, Any]) -> bytes:
    return in_json({"ts": timestamp(), "operation": operation, **fields})


def _dropped(lines: int) -> bytes:
    return _line(DROPPED, {"lines": lines})
