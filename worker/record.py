"""The session's own record on disk: what survives the worker, the supervisor and a reboot.

Written by the worker alone, also when no supervisor lives. Values of the environment that look
secret are not in it.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from debug_relay.protocol.envelope import encode_json
from debug_relay.protocol.secrets import looks_secret
from debug_relay.protocol.version import VERSION, WIRE

if TYPE_CHECKING:
    from debug_relay.worker.session import Session

log = logging.getLogger("debug_relay.worker")


class Record:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._path = Path(session.params.record_dir) / "session.json"

    def save(self) -> bool:
        """Whether it is on disk. A full or read-only disk degrades persistence, never a session."""
        session = self._session
        value = {
            "version": VERSION,
            "wire": WIRE,
            "state": session.public(),
            "runtime_seconds": session.runtime_seconds,
            "limits": session.params.limits,
            "breakpoints": session.breakpoints.specs(),
            "exception_filters": session.exception_filters,
        }
        try:
            write_atomically(self._path, encode_json(value))
        except OSError as error:
            log.warning(
                "record.not_written",
                extra={"fields": {"path": str(self._path), "error": str(error)}},
            )
            return False
        return True


def write_atomically(path: Path, data: bytes) -> None:
    """Whole or not at all, whenever the machine stops."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def shown_environment(env: dict[str, Any]) -> dict[str, Any]:
    """As it may be shown: values that look secret are not."""
    return {
        name: "***" if value is not None and looks_secret(name) else value
        for name, value in env.items()
    }
