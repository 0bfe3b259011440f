"""The supervisor's JSON files: an unreadable file is moved aside, logged, and counts as absent.

Everything here blocks: the event loop calls it at start, or in a thread.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from debug_relay.protocol.system import files, json_file
from debug_relay.supervisor.log import Log

_log: Final = Log(__name__)


def read_json(path: Path) -> Any:
    """The value. None if there is no such file, or if it was damaged and is now moved aside."""
    try:
        return json_file.read(path)
    except FileNotFoundError:
        return None
    except json_file.Damaged as error:
        set_aside(path, str(error))
        return None
    except OSError as error:
        _log.error("store.unreadable", path=path, reason=error.strerror)
        return None


def set_aside(path: Path, reason: str) -> None:
    """Moves a damaged file aside, for a person to look at."""
    try:
        moved_to = files.move_aside(path)
    except OSError as error:
        _log.error("store.corrupt", path=path, reason=reason, kept=f"in place: {error.strerror}")
    else:
        _log.error("store.corrupt", path=path, reason=reason, moved_to=moved_to)
